// SPDX-License-Identifier: Apache-2.0
// The kernels of this device, one function for each file.
#pragma once

#include <vector>

#include "../../common/call.hpp"
#include "engine/kernel.h"

namespace cuda {

using List = std::vector<const eng_kernel*>;  // as in common/cuda/glue.hpp
void add_attention(List& list);
void add_cross_entropy(List& list);
void add_elementwise(List& list);
void add_layout(List& list);
void add_norm(List& list);
void add_optimizer(List& list);
void add_packed(List& list);
void add_product(List& list);
void add_sequence(List& list);
void add_step(List& list);
void add_vocabulary(List& list);

// True if this gradient of attention, which a kernel of the list serves, can be computed by wgmma, too.
bool has_wgmma(const common::Call& gradient);

inline const List& kernels() {
  static const List all = [] {
    List list;
    for (auto* add : {add_attention, add_cross_entropy, add_elementwise, add_layout, add_norm, add_optimizer,
                      add_packed, add_product, add_sequence, add_step, add_vocabulary})
      add(list);
    return list;
  }();
  return all;
}

}  // namespace cuda
