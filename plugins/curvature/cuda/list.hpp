// SPDX-License-Identifier: Apache-2.0
// The kernels of curvature's ops for the device "cuda".
#pragma once

#include <vector>

#include "engine/kernel.h"

namespace curvature {

std::vector<const eng_kernel*> cuda_kernels();

}  // namespace curvature
