// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/list.hpp"

namespace cuda {

// Puts a kernel in the place of each one for attention and its gradient that asks choose_attention who computes a call:
// cuDNN, or the kernel that was there.
void add_cudnn_attention(List& list);

}  // namespace cuda
