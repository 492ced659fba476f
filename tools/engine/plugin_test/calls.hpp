// SPDX-License-Identifier: Apache-2.0
// Random calls of the ops of the headers (engine/ops.h and those beside it): shapes, attributes, and values that mean
// something to the op.
#pragma once

#include <optional>

#include "tools/engine/plugin_test/machine.hpp"

namespace eng::plugin_test {

// One call with its inputs.
struct Case {
  Call call;
  std::vector<Array> in;
};

// Computes an op for inputs that are results of another op (statistics of a norm). Throws if nothing computes it.
using Forward = std::function<std::vector<Array>(const Call&, const std::vector<Array>&)>;

// The number of forms of the calls of an op. Form 0 is without what a kernel may ignore unnoticed in other calls:
// segments, positions, loss weights, z_loss. Each other form has one of them, or several.
uint32_t forms_of(const std::string& op);
// A call with floats of type `dtype`. nullopt: the op is no standard one, or a collective.
std::optional<Case> standard_case(const std::string& op, int32_t dtype, uint32_t form, Random& random,
                                  const Forward& forward);
// True if the contract of a standard op says EXACT.
bool is_exact(const std::string& op);

}  // namespace eng::plugin_test
