// SPDX-License-Identifier: Apache-2.0
// The kernels of the ops of preferences for the device "cuda".
#pragma once

#include <vector>

#include "engine/kernel.h"

namespace preference {

std::vector<const eng_kernel*> cuda_kernels();

}  // namespace preference
