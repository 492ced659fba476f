// SPDX-License-Identifier: Apache-2.0
// eng.job/1: it always says the same of itself, and its programs fit into plans.
#include "session/job/made_job.hpp"
#include "session/planning/setup.hpp"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

// The job's description of itself before it runs.
std::string said_by(const MadeJob& made) {
  const eng_job_info& info = made.job.info;
  std::string out = fmt::format("{} programs, batch {}, windows {}, kept {:x}, writes {:x}", info.programs,
                                info.micro_batch, info.windows, info.kept, info.writes);
  for (const std::string& state : made.states) out += "; state " + state;
  for (size_t v = 0; v < made.job.values.size(); ++v)
    out += fmt::format("; value {} {} {}", made.job.values[v].name, describe(made.job.values[v].desc),
                       static_cast<int>(made.kept[v]));
  return out;
}

}  // namespace

void test_job(const Subject& s, Sheet& sheet) {
  std::optional<MadeJob> made;
  const bool fine = sheet.check("create, describe, states, values; the same twice", [&] {
    const Config config = s.config();
    const Section& section = config.section("job");
    const Watched options(section);
    const auto table = s.table<eng_job>();
    Sink sink;
    void* self = nullptr;
    check_made(table.create(options.get(), &self, sink.get()), sink, options.misuse());
    table.destroy(self);
    made.emplace(make_job(config, s.registry));
    const std::string first = said_by(*made), second = said_by(make_job(config, s.registry));
    if (first != second)
      throw Broken(fmt::format("of two objects with the same options one says\n  {}\nand one\n  {}", first, second));
    if (made->job.info.programs < 64 && made->job.info.writes >> made->job.info.programs)
      throw Broken("a program that it does not have writes parameters");
    if (made->states.size() < 64 && made->job.info.kept >> made->states.size())
      throw Broken("a state that it does not have is kept");
    return first;
  });
  if (!fine) return;
  sheet.check("its programs and sites in plans of several strategies and formats", [&] {
    if (!s.registry.find(ENG_MODEL_KIND, "llama")) throw Untested("needs the model llama, which no plugin provides");
    size_t actions = 0;
    for (const auto& [ranks, zero, precision] :
         {std::tuple(1u, "none", "fp32"), {2u, "zero1", "fp32"}, {2u, "zero3", "bf16"}}) {
      Config config =
          s.config(fmt::format("[model]\nplugin = \"llama\"\npreset = \"tiny\"\nnum_hidden_layers = 2\n"
                               "[train]\nsequence_length = 16\n[zero]\nplugin = \"{}\"\n"
                               "[precision]\nplugin = \"{}\"\n",
                               zero, precision));
      take_batch(config, *made, ranks);
      const Setup setup = make_plan_only(config, s.registry, {0, ranks, 0, ranks}, {.job = &made->job});
      for (const Program& program : setup.plan.programs)
        for (const Segment& segment : program.segments) actions += segment.actions.size();
    }
    return fmt::format("{} actions", actions);
  });
}

}  // namespace eng::plugin_test
