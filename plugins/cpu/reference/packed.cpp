// SPDX-License-Identifier: Apache-2.0
// pack and unpack on one thread.
#include "../../common/packed.hpp"

#include "../../common/layout.hpp"
#include "reference.hpp"

namespace reference {

void add_packed(List& list) {
  list.insert(list.end(),
              {&cpu::kernel<cpu::PackKernel<cpu::OneThread>>, &cpu::kernel<cpu::UnpackKernel<cpu::OneThread>>});
}

}  // namespace reference
