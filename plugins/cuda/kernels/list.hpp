// SPDX-License-Identifier: Apache-2.0
// The kernels of this device, one function for each file.
#pragma once

#include <vector>

#include "engine/kernel.h"

namespace cuda {

using List = std::vector<const eng_kernel*>;
void add_elementwise(List& list);
void add_optimizer(List& list);
void add_step(List& list);

inline const List& kernels() {
  static const List all = [] {
    List list;
    for (auto* add : {add_elementwise, add_optimizer, add_step}) add(list);
    return list;
  }();
  return all;
}

}  // namespace cuda
