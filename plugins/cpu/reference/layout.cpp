// SPDX-License-Identifier: Apache-2.0
// reshape, transpose, split and concat: copies on one thread.
#include "../../common/layout.hpp"
#include "reference.hpp"

namespace reference {

void add_layout(List& list) {
  list.insert(list.end(), {&common::kernel<common::ReshapeKernel<common::OneThread>>,
                           &common::kernel<common::TransposeKernel<common::OneThread>>,
                           &common::kernel<common::SplitKernel<common::OneThread>>,
                           &common::kernel<common::ConcatKernel<common::OneThread>>});
}

}  // namespace reference
