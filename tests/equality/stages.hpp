// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline beside the ranks of one stage that have the whole model.
#pragma once

#include <cmath>

#include "all_equal.hpp"
#include "core/base/error.hpp"
#include "plugins.hpp"

namespace equality::stages {

inline Group staged(const char* model, uint32_t stages, int64_t micro_batches, uint32_t world = 0, uint32_t parts = 1) {
  Group group;
  group.virtual_stages = parts;
  group.model = model, group.pipeline = stages, group.world = world ? world : stages;
  group.accumulate = micro_batches;
  return group;
}
// The ranks of one stage, with the whole model.
inline Group whole(Group group) {
  group.world /= group.pipeline, group.pipeline = group.virtual_stages = 1, group.cuts.clear();
  return group;
}
inline Result trained(const Group& group, const Draw& draw = {}) {
  return train(group, plan(group, draw), {11});
}
inline void same_as_whole(const Group& group, const Draw& draw = {}) {
  INFO(describe(group) << "; " << describe(draw));
  CHECK(difference(trained(whole(group), draw), trained(group, draw)) == "");
}

// A model with as many blocks.
inline std::string layered(const char* plugin, int blocks) {
  return fmt::format(
      "plugin = '{}'\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = {}\nnum_attention_heads = 4\n"
      "num_key_value_heads = 2\n",
      plugin, blocks - 2);
}

// Checks that two trainings differ by rounding, and that they differ. Their updates follow gradients in proportion, so
// that rounding stays rounding.
inline void near_whole(Group group) {
  group.optimizer = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";
  INFO(describe(group));
  const Result one = trained(whole(group)), two = trained(group);
  REQUIRE(one.complaint == "");
  REQUIRE(two.complaint == "");
  REQUIRE(one.tensors.size() == two.tensors.size());
  double all = 0;
  for (size_t t = 0; t < one.tensors.size(); ++t) {
    const auto& [name, values] = one.tensors[t];
    if (name == "losses" || name == "scales") continue;
    const std::vector<float>& theirs = two.tensors[t].second;
    REQUIRE(name == two.tensors[t].first);
    // All ranks of a stage tell the norm, and there are more stages.
    double most = 1e-6, apart = 0;
    for (size_t k = 0; k < values.size(); ++k) {
      const float other = name == "norms" ? theirs[k * theirs.size() / values.size()] : theirs[k];
      most = std::max(most, std::abs(double{values[k]}));
      apart = std::max(apart, std::abs(double{values[k]} - double{other}));
    }
    INFO(name << " " << apart << " of " << most);
    CHECK(apart <= 1e-4 * most);
    all = std::max(all, apart);
  }
  CHECK(all > 0);
}

inline std::string refusal(const Group& group, const Draw& draw = {}) {
  try {
    plan(group, draw);
  } catch (const eng::Error& e) {
    CHECK(e.exit() == eng::Exit::usage);
    return std::string(e.what()) + "; " + e.help();
  }
  return "";
}

}  // namespace equality::stages
