// SPDX-License-Identifier: Apache-2.0
// reshape, transpose, split and concat: copies on one thread.
#include "../../common/layout.hpp"
#include "reference.hpp"

namespace reference {

void add_layout(List& list) {
  list.insert(list.end(),
              {&cpu::kernel<cpu::ReshapeKernel<cpu::OneThread>>, &cpu::kernel<cpu::TransposeKernel<cpu::OneThread>>,
               &cpu::kernel<cpu::SplitKernel<cpu::OneThread>>, &cpu::kernel<cpu::ConcatKernel<cpu::OneThread>>});
}

}  // namespace reference
