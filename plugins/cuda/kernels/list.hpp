// SPDX-License-Identifier: Apache-2.0
// The kernels of this device.
#pragma once

#include <vector>

#include "../copy.hpp"

namespace cuda {

inline const std::vector<const eng_kernel*>& kernels() {
  static const std::vector<const eng_kernel*> none;
  return none;
}

}  // namespace cuda
