// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.hpp"

#include "core/trace/op.hpp"

namespace eng {

const eng_ops& standard_ops() {
  return ::ops::standard();
}

const eng_ops& collectives() {
  return ::ops::collectives();
}

}  // namespace eng
