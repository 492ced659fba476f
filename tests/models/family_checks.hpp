// SPDX-License-Identifier: Apache-2.0
// The checks that all families have in common, against what transformers computed: logits, losses, gradients, updates,
// other options, directories, and keys of config.json.
#pragma once

#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine_run.hpp"
#include "from.hpp"

namespace models {

// A family and the name of one of its goldens.
using Variant = std::pair<const char*, const char*>;

// Checks a golden on a device, and calls more(run) behind the step. The same gradients, 1 % too large, must be refused.
template <class F>
void check_golden(const Golden& golden, const std::string& device, F more) {
  Run run(golden, device);
  CHECK(run.logits_error() < limit / 10);
  CHECK(run.step() == Approx(golden.about["loss"].get<double>()).epsilon(1e-6));
  more(run);
  std::string worst;
  size_t seen = 0;
  const double error = run.gradient_error(worst, seen);
  INFO("worst: " << worst);
  CHECK(error < limit);
  CHECK(seen == run.trained());
  CHECK(run.gradient_error(worst, seen, 1.01) > limit);
}

inline void check_goldens(const std::vector<Variant>& variants) {
  const std::string device = GENERATE(from_range(devices));
  for (const auto& [family, variant] : variants) {
    INFO(family << " " << variant << " on " << device);
    check_golden(read_golden(variant, family), device, [](Run&) {});
  }
}

// Updates of AdamW, and those of another learning rate, which must be seen, for each golden that has them.
inline void check_updates(const std::vector<Variant>& variants) {
  size_t trained = 0;
  for (const auto& [family, variant] : variants) {
    const Golden golden = read_golden(variant, family);
    if (!golden.about.contains("training")) continue;
    INFO(family << " " << variant);
    CHECK(training_deviation(golden, devices[0], 1.0) < limit);
    CHECK(training_deviation(golden, devices[0], 1.01) > limit);
    ++trained;
  }
  CHECK(trained > 0);
}

// The larger of the errors of logits and gradients.
inline double error_of(const Golden& golden) {
  Run run(golden, devices[0]);
  const double logits = run.logits_error();
  run.step();
  std::string worst;
  size_t seen = 0;
  return std::max(logits, run.gradient_error(worst, seen));
}

// Family, golden, an option, and another value of it that must be seen.
using Fault = std::tuple<const char*, const char*, const char*, nlohmann::json>;

inline void check_faults(const std::vector<Fault>& faults) {
  for (const auto& [family, variant, key, value] : faults) {
    Golden golden = read_golden(variant, family);
    golden.about["options"][key] = value;
    INFO(family << " " << variant << " with another " << key << ": " << value);
    CHECK(error_of(golden) > limit);
  }
}

// The losses of the directories that `expected.json` beside them names. `others`: plugins that have not the name of the
// directory.
inline void check_directories(const fs::path& directories, size_t count,
                              const std::map<std::string, std::string>& others = {}) {
  const auto losses = nlohmann::json::parse(std::ifstream(directories / "expected.json")).at("loss");
  CHECK(losses.size() == count);
  for (const auto& [name, loss] : losses.items()) {
    INFO(name);
    const std::string plugin = others.count(name) ? others.at(name) : name;
    CHECK(config_from(directories / name).section("model").string("plugin") == plugin);
    CHECK(loss_of(directories / name) == Approx(loss.get<double>()).epsilon(1e-5));
  }
}

// Directory, a text of its config.json, what stands there in its place, and a part of the refusal.
using OtherKey = std::tuple<const char*, const char*, const char*, const char*>;

inline void check_refused_keys(const fs::path& directories, const std::vector<OtherKey>& cases) {
  for (const auto& [name, from, to, told] : cases) {
    const eng::test::Scratch scratch;
    const fs::path copied = scratch / name;
    fs::copy(directories / name, copied);
    edit(copied / "config.json", from, to);
    INFO(name << " " << to);
    CHECK_THAT(eng::test::refusal(eng::Exit::usage, [&] { config_from(copied); }), Catch::Contains(told));
  }
}

// The number of elements of a model with the preset `name` of its family.
template <class ElementsOf>
void check_presets(const std::map<std::string, int64_t>& expected, const std::vector<std::string>& presets,
                   int64_t tiny, ElementsOf elements) {
  std::set<std::string> seen;
  for (const std::string& name : presets) {
    INFO(name);
    const int64_t count = elements(name);
    if (name == "tiny") {
      CHECK(count < tiny);
      continue;
    }
    REQUIRE(expected.count(name) == 1);
    CHECK(count == expected.at(name));
    seen.insert(name);
  }
  CHECK(seen.size() == expected.size());
}

}  // namespace models
