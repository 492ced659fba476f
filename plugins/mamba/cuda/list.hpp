// SPDX-License-Identifier: Apache-2.0
// The kernels of Mamba's ops for the device "cuda", one function for each file.
#pragma once

#include <vector>

#include "engine/kernel.h"

namespace mamba {

void add_conv(std::vector<const eng_kernel*>& list);
void add_norm(std::vector<const eng_kernel*>& list);
void add_scan(std::vector<const eng_kernel*>& list);
void add_scan_grad(std::vector<const eng_kernel*>& list);
void add_simple(std::vector<const eng_kernel*>& list);
void add_ssd(std::vector<const eng_kernel*>& list);
void add_ssd_grad(std::vector<const eng_kernel*>& list);

inline std::vector<const eng_kernel*> cuda_kernels() {
  std::vector<const eng_kernel*> list;
  add_conv(list), add_norm(list), add_scan(list), add_scan_grad(list), add_simple(list), add_ssd(list),
      add_ssd_grad(list);
  return list;
}

}  // namespace mamba
