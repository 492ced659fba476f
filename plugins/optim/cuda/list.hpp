// SPDX-License-Identifier: Apache-2.0
// The kernels of muon's and adamw8bit's ops for the device "cuda", one function for each file.
#pragma once

#include <vector>

#include "engine/kernel.h"

namespace optim {

void add_adamw8bit(std::vector<const eng_kernel*>& list);
void add_muon(std::vector<const eng_kernel*>& list);

inline std::vector<const eng_kernel*> cuda_kernels() {
  std::vector<const eng_kernel*> list;
  add_adamw8bit(list), add_muon(list);
  return list;
}

}  // namespace optim
