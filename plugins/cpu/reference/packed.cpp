// SPDX-License-Identifier: Apache-2.0
// pack and unpack on one thread.
#include "../../common/packed.hpp"

#include "../../common/layout.hpp"
#include "reference.hpp"

namespace reference {

void add_packed(List& list) {
  list.insert(list.end(), {&common::kernel<common::PackKernel<common::OneThread>>,
                           &common::kernel<common::UnpackKernel<common::OneThread>>});
}

}  // namespace reference
