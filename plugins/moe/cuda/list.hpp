// SPDX-License-Identifier: Apache-2.0
// The kernels of the ops of mixtures of experts for the device "cuda", one function for each file.
#pragma once

#include <vector>

#include "engine/kernel.h"

namespace moe {

void add_product(std::vector<const eng_kernel*>& list);
void add_rows(std::vector<const eng_kernel*>& list);
void add_route(std::vector<const eng_kernel*>& list);
void add_sigmoid(std::vector<const eng_kernel*>& list);

inline std::vector<const eng_kernel*> cuda_kernels() {
  std::vector<const eng_kernel*> list;
  add_product(list), add_rows(list), add_route(list), add_sigmoid(list);
  return list;
}

}  // namespace moe
