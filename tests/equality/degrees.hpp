// SPDX-License-Identifier: Apache-2.0
// Ranks that divide layers or sequences beside ranks with the same samples that divide neither.
#pragma once

#include <cmath>

#include "all_equal.hpp"

namespace equality::degrees {

// Ranks with these samples that have whole sequences, and the whole model.
inline Group undivided(Group group) {
  group.world /= group.same_rows() * group.pipeline;
  group.tensor = group.context = group.pipeline = group.virtual_stages = 1;
  return group;
}
inline Result trained(const Group& group, const Draw& draw = {}) {
  return train(group, plan(group, draw), {11});
}

inline double largest(const std::vector<float>& values) {
  double out = 0;
  for (const float x : values) out = std::max(out, std::abs(double{x}));
  return out;
}

// The sum of the losses of all ranks, and the norm, of every step. Where there are several ranks, each also says what
// all have.
struct Steps {
  std::vector<double> losses, norms;
};
inline Steps steps(const Group& group, const Result& result) {
  Steps out;
  const std::vector<float>&losses = numbers(result, "losses"), &norms = numbers(result, "norms");
  const size_t ranks = group.world / group.pipeline / group.tensor,
               all = losses.size() / (ranks * static_cast<size_t>(group.steps));
  const size_t mine = all / (ranks > 1 ? 1 + ranks : 1);  // micro-batches x terms
  REQUIRE(losses.size() == ranks * all * static_cast<size_t>(group.steps));
  REQUIRE(mine % static_cast<size_t>(group.accumulate) == 0);
  for (size_t s = 0; s < static_cast<size_t>(group.steps); ++s) {
    out.losses.push_back(0), out.norms.push_back(double{norms[s * ranks]});
    for (size_t r = 0; r < ranks; ++r)
      for (size_t a = 0; a < mine; ++a) out.losses.back() += double{losses[(s * ranks + r) * all + a]};
  }
  return out;
}

// Checks that two trainings differ by rounding only, and that they differ: nothing is compared with itself.
inline void near(const Group& a, const Result& x, const Group& b, const Result& y, double most = 2e-5) {
  REQUIRE(x.complaint == "");
  REQUIRE(y.complaint == "");
  const Steps one = steps(a, x), two = steps(b, y);
  for (size_t s = 0; s < one.losses.size(); ++s) {
    CHECK(two.losses[s] == Approx(one.losses[s]).epsilon(1e-5));
    CHECK(two.norms[s] == Approx(one.norms[s]).epsilon(1e-4));
  }
  const auto role = [](const std::string& name) { return name.substr(0, name.find(' ')); };
  std::map<std::string, double> sizes;
  for (const auto& [name, values] : x.tensors) sizes[role(name)] = std::max(sizes[role(name)], largest(values));
  double all = 0;
  for (const auto& [name, values] : x.tensors) {
    if (name == "losses" || name == "norms" || name == "scales") continue;
    const std::vector<float>& theirs = numbers(y, name);
    REQUIRE(values.size() == theirs.size());
    double apart = 0;
    for (size_t k = 0; k < values.size(); ++k) apart = std::max(apart, std::abs(double{values[k]} - double{theirs[k]}));
    INFO(name << " " << apart);
    CHECK(apart <= most * std::max(largest(values), 1e-3 * sizes[role(name)]));
    all = std::max(all, apart);
  }
  CHECK(all > 0);
}
inline void near_undivided(const Group& group) {
  INFO(describe(group));
  const Group whole = undivided(group);
  near(whole, trained(whole), group, trained(group));
}

}  // namespace equality::degrees
