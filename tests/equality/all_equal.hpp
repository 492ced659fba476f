// SPDX-License-Identifier: Apache-2.0
// One group, trained in several ways: the same bits each time.
#pragma once

#include <catch2/catch.hpp>
#include <optional>
#include <stdexcept>

#include "draw.hpp"

namespace equality {

// The values of that name in the result.
inline const std::vector<float>& numbers(const Result& result, const std::string& name) {
  for (const auto& [own, values] : result.tensors)
    if (own == name) return values;
  throw std::runtime_error(name);
}

// Trains by each of the draws and checks that all results are equal; returns the first.
inline Result all_equal(const Group& group, const std::vector<Draw>& draws) {
  std::optional<Result> first;
  uint64_t seed = 5;
  for (const Draw& draw : draws) {
    INFO(describe(group) << "; " << describe(draw));
    const Result result = train(group, plan(group, draw), {++seed, seed % 2 == 0});
    if (!first) first = result;
    CHECK(difference(*first, result) == "");
  }
  return first.value();
}

}  // namespace equality
