// SPDX-License-Identifier: Apache-2.0
// eng.transform/1: equal runs have equal bits, on any number of ranks; gradients are those of the changed model.
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {

Section transform_options(const Subject& s) {
  Schema keys;
  for (const Option& key : *entry_keys("transforms"))
    if (!key.required) keys.push_back(key);  // all but the plugin
  keys.insert(keys.end(), s.one.schema.options.begin(), s.one.schema.options.end());
  Section out = entry_options(s, "transforms", keys);
  if (!out.strings("targets").empty()) return out;
  // One that refuses to work on everything gets the linear maps of the sample.
  try {
    make_transform(s.one.name, s.table<eng_transform>(), out);
    return out;
  } catch (const Error&) {
    return out.with("targets", std::vector<std::string>{"*.gate", "*.up", "*.down"});
  }
}

void test_transform(const Subject& s, Sheet& sheet) {
  Chosen<eng_transform> chosen;
  std::unique_ptr<Machine> on;
  const bool made = sheet.check("create", [&] {
    chosen = {s.one.name, s.table<eng_transform>(), transform_options(s)};
    const Watched options(chosen.options);
    Sink sink;
    void* self = nullptr;
    const eng_status status = chosen.table.create(options.get(), &self, sink.get());
    check_made(status, sink, options.misuse());
    chosen.table.destroy(self);
    on = machine(s, "cpu", 2);
    load_ops(s.registry);
    return "";
  });
  if (!made) return;
  sheet.check("equal runs, however parameters are distributed", [&] {
    Random random = s.random("transform");
    const bool zero3 = s.registry.find(ENG_ZERO_KIND, "zero3") != nullptr;
    for (int round = 0; round < s.rounds; ++round) {
      Course course = plain_course(s, random);
      course.optimizer = usual_optimizer(s);
      course.transforms = {chosen};
      const Results once = results_of(course, *on);
      if (const std::string d = first_difference(once, results_of(course, *on)); !d.empty())
        throw Broken("two equal runs have other bits: " + d);
      course.ranks = 2;
      const Results whole = results_of(course, *on);
      if (!zero3) continue;
      course.zero = {"zero3", s.registry.table<eng_axis>(ENG_ZERO_KIND, "zero3"), defaults(s, "zero", "zero3")};
      if (const std::string d = first_difference(whole, results_of(course, *on)); !d.empty())
        throw Broken("a run of 2 ranks that keep parts has other bits: " + d);
    }
    return fmt::format("{} random plans{}", s.rounds, zero3 ? ", also with zero3" : "");
  });
  sheet.check("gradients of the sample", [&] {
    Random random = s.random("gradients");
    return check_gradients(s, {"sample", sample_model, sample_options(random)}, random, {chosen});
  });
}

}  // namespace eng::plugin_test
