// SPDX-License-Identifier: Apache-2.0
// eng.loss/1: equal runs have equal bits, on any number of ranks; gradients are those of the loss.
#include "core/program/program.hpp"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {

void test_loss(const Subject& s, Sheet& sheet) {
  Chosen<eng_loss> chosen;
  std::unique_ptr<Machine> on;
  const bool made = sheet.check("create", [&] {
    chosen = s.chosen<eng_loss>();
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
  // The sample's batch has tokens and labels alone.
  const auto needs_fields = [&](Random& random) {
    try {
      trace_forward("sample", sample_model, sample_options(random), 2, 8, ENG_F32, false, {},
                    make_loss(chosen.name, chosen.table, chosen.options));
    } catch (const Error& e) {
      if (std::string(e.what()).find("the batch has no ") != std::string::npos) throw Untested(e.what());
      throw;
    }
  };
  sheet.check("equal runs, however parameters are distributed", [&] {
    Random random = s.random("loss");
    needs_fields(random);
    const bool zero3 = s.registry.find(ENG_ZERO_KIND, "zero3") != nullptr;
    for (int round = 0; round < s.rounds; ++round) {
      Course course = plain_course(s, random);
      course.optimizer = usual_optimizer(s);
      course.loss = chosen;
      course.rows += course.rows % 2;  // a loss may compare pairs of sequences
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
    needs_fields(random);
    return check_gradients(s, {"sample", sample_model, sample_options(random)}, random, {}, chosen);
  });
}

}  // namespace eng::plugin_test
