// SPDX-License-Identifier: Apache-2.0
// Layers that ranks divide, of every family of plugins/decoders: the numbers of one rank within rounding.
#include <catch2/catch.hpp>

#include <cmath>

#include "all_equal.hpp"
#include "plugins.hpp"

namespace divided_families_test {

using namespace equality;

namespace {

double largest(const std::vector<float>& values) {
  double out = 0;
  for (const float x : values) out = std::max(out, std::abs(double{x}));
  return out;
}

// The greatest difference of two runs, as a part of the greatest value of the same tensor, or of a thousandth of that
// of the tensors of its role.
double apart(const Result& a, const Result& b) {
  REQUIRE(a.complaint == "");
  REQUIRE(b.complaint == "");
  REQUIRE(a.tensors.size() == b.tensors.size());
  const auto role = [](const std::string& name) { return name.substr(0, name.find(' ')); };
  std::map<std::string, double> sizes;
  for (const auto& [name, x] : a.tensors) sizes[role(name)] = std::max(sizes[role(name)], largest(x));
  double most = 0;
  for (const auto& [name, x] : a.tensors) {
    const std::vector<float>& y = numbers(b, name);
    REQUIRE(x.size() == y.size());
    const double size = std::max(largest(x), 1e-3 * sizes[role(name)]);
    for (size_t k = 0; k < x.size() && size > 0; ++k)
      most = std::max(most, std::abs(double{x[k]} - double{y[k]}) / size);
  }
  return most;
}

Group of(const std::string& family, const std::string& more, uint32_t ranks) {
  Group group;
  group.model = fmt::format("plugin = '{}'\npreset = 'tiny'\nnum_hidden_layers = 2\n{}", family, more);
  group.world = ranks, group.tensor = ranks, group.accumulate = 2, group.steps = 3;
  group.optimizer = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";
  return group;
}

Result trained(const Group& group) {
  return train(group, plan(group, {}), {11});
}

}  // namespace

TEST_CASE("two ranks that divide the layers train what one rank trains, in every family of decoders") {
  const std::string window = "sliding_window = 4\n";
  for (const auto& [family, more] : std::vector<std::pair<std::string, std::string>>{{"gemma2", window},
                                                                                     {"gemma3", window},
                                                                                     {"gpt2", ""},
                                                                                     {"gpt_neox", ""},
                                                                                     {"granite", ""},
                                                                                     {"internlm2", ""},
                                                                                     {"minicpm", ""},
                                                                                     {"ministral", window},
                                                                                     {"mistral", window},
                                                                                     {"olmo2", ""},
                                                                                     {"phi3", ""},
                                                                                     {"qwen3", ""},
                                                                                     {"smollm3", ""}}) {
    INFO(family);
    const double difference = apart(trained(of(family, more, 1)), trained(of(family, more, 2)));
    CHECK(difference > 0);  // sums of other orders: nothing was compared with itself
    CHECK(difference < 2e-5);
  }
}

}  // namespace divided_families_test
