// SPDX-License-Identifier: Apache-2.0
// eng.observer/1: it reads, and changes no bit of a run.
#include <cmath>

#include "engine/observer.h"
#include "session/config/toml.hpp"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {

Section entry_options(const Subject& s, const std::string& section, const Schema& keys) {
  std::map<std::string, Setting> settings;
  for (const Option& option : keys) {
    Value value = option.fallback;
    for (const std::string& given : s.given) {
      if (!given.starts_with(option.key + "=")) continue;
      std::string odd;
      const std::string text = "v = " + given.substr(option.key.size() + 1);
      value = value_of(*parse_toml(text).get("v"), odd);
    }
    if (const Misfit wrong = fit(option, value); wrong.code || (option.required && !value.index()))
      throw Untested(fmt::format("it cannot be made: {} {}; give KEY=VALUE", option.key,
                                 wrong.code ? wrong.text : "has no default"));
    settings[option.key] = {value, "default", false};
  }
  return Section(section, std::move(settings));
}

Section observer_options(const Subject& s) {
  return entry_options(s, "observers", s.one.schema.options);
}

void test_observer(const Subject& s, Sheet& sheet) {
  Chosen<eng_observer> chosen;
  std::unique_ptr<Machine> on;
  const bool made = sheet.check("create", [&] {
    chosen = {s.one.name, s.table<eng_observer>(), observer_options(s)};
    const Watched options(chosen.options);
    Sink sink;
    void* self = nullptr;
    check_made(chosen.table.create(options.get(), &self, sink.get()), sink, options.misuse());
    chosen.table.destroy(self);
    on = machine(s, "cpu", 2);
    load_ops(s.registry);
    return "";
  });
  if (!made) return;
  sheet.check("changes no bit; numbers; the same twice", [&] {
    Random random = s.random("observer");
    size_t numbers = 0;
    for (int round = 0; round < s.rounds; ++round) {
      Course course = plain_course(s, random);
      course.optimizer = usual_optimizer(s);
      course.ranks = static_cast<uint32_t>(pick(random, 1, 2));
      const Results plain = results_of(course, *on);
      course.observers = {chosen};
      std::vector<float> seen[2];
      for (auto& all : seen) {
        Training run(course, *on);
        run.init();
        Results observed;
        for (int64_t k = 0; k < course.steps; ++k) {
          observed.numbers.push_back(run.step());
          all.insert(all.end(), run.observed().begin(), run.observed().end());
        }
        observed.tensors = run.tensors();
        if (const std::string d = first_difference(plain, observed); !d.empty())
          throw Broken(fmt::format("a run of {} ranks that it observes has other bits: {}", course.ranks, d));
      }
      if (seen[0].size() != seen[1].size() ||
          (!seen[0].empty() && std::memcmp(seen[0].data(), seen[1].data(), seen[0].size() * sizeof(float)) != 0))
        throw Broken("two equal runs are observed differently");
      for (float x : seen[0])
        if (std::isnan(x)) throw Broken("a result of a healthy run is not a number");
      numbers += seen[0].size();
    }
    return fmt::format("{} results", numbers);
  });
}

}  // namespace eng::plugin_test
