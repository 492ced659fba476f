// SPDX-License-Identifier: Apache-2.0
// engine plan, engine check.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/base/error.hpp"
#include "engine/model.h"
#include "session/ranks/ranks.hpp"
#include "session/train/trainer.hpp"
#include "session/version.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

std::string size(uint64_t n) {
  return format_bytes(static_cast<double>(n));
}

void line(const char* what, const std::string& text) {
  fmt::print("  {:<11} {:<90} ok\n", what, text);
}

// A note if the usual name of the model's preset states another size than it has; otherwise "".
std::string preset_note(const Registry& registry, const Section& model, int64_t parameters) {
  const Provided* plugin = registry.find(ENG_MODEL_KIND, model.string("plugin"));
  if (!plugin || !model.has("preset")) return "";
  const std::string name = model.string("preset");
  const Preset& preset = plugin->schema.presets.at(name);
  if (!preset.count("called")) return "";
  const std::string text = std::get<std::string>(preset.at("called"));
  const double unit = text.ends_with("B") ? 1e9 : text.ends_with("M") ? 1e6 : 1;
  const double size = std::atof(text.c_str()) * unit, more = 100 * (static_cast<double>(parameters) / size - 1);
  return fmt::format("  note              {} is called {}; it has {} parameters, {:.1f} % {}\n", name, text, parameters,
                     std::abs(more), more < 0 ? "fewer" : "more");
}

int check(const Common& common, const std::string& target, const std::vector<std::string>& overrides) {
  auto [registry, config] = load_config(common, target, overrides);
  config.require("data");
  fmt::print("engine {}  {}\n", version, target);
  size_t given = 0, all = 0;
  for (const Section& s : config.sections())
    for (const auto& [key, setting] : s.settings()) ++all, given += setting.given;
  line("config", fmt::format("{} keys, {} given", all, given));
  Setup setup = make_setup(config, *registry);
  print_notes(setup);
  std::string plugins;
  for (const auto& p : registry->loaded()) plugins += (plugins.empty() ? "" : "  ") + p.id + " " + p.version;
  line("plugins", plugins);
  line("model", fmt::format("{}, {} parameters", setup.model.plugin, setup.plan.parameters));
  if (const auto source = weights_source(config); !source.empty()) {
    check_weights(config, *registry, setup);
    line("from", source.string());
  }
  build_data(config, *registry, setup.model.info.vocabulary, true);
  Data data(*registry, config, setup.model.info.vocabulary);
  print_notes(config, data, setup.model.info.vocabulary);
  if (!data.info().train_samples)
    throw Error(Exit::data, "there is nothing to train on: data.validation is 1", "set data.validation to 0.5 or less");
  line("data", fmt::format("{} files, {} tokens; {} training samples, {} held out; ids below {} <= {}",
                           data.info().files, data.info().tokens, data.info().train_samples,
                           data.info().validation_samples, data.info().vocabulary, setup.model.info.vocabulary));
  const Section& train = config.section("train");
  int64_t samples = train.integer("micro_batch") * train.integer("accumulate");
  line("batch", fmt::format("micro {} x accumulate {} = {} samples = {} tokens per step", train.integer("micro_batch"),
                            train.integer("accumulate"), samples, samples * train.integer("sequence_length")));
  Schedule schedule = make_schedule(config);
  line("schedule", fmt::format("{}: {:.3g} at update 1, {:.3g} at update {}", config.section("schedule").string("kind"),
                               schedule.at(1), schedule.at(train.integer("steps")), train.integer("steps")));
  check_fits(config, *registry, setup);
  line("memory", fmt::format("{} of {}", size(planned_peak(setup)), size(setup.kernels->info().total_bytes)));
  const uint64_t free = check_disk(config, setup.plan, config.section("run").string("out"));
  const int64_t keep = std::max<int64_t>(config.section("checkpoint").integer("keep"), 1);
  const uint64_t each = checkpoint_bytes(saved_tensors(setup.plan));
  line("disk", fmt::format("{} checkpoints x {} (one more while saving), free {}", keep, size(each),
                           free == UINT64_MAX ? "unknown" : size(free)));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("plan", "print memory and work of a step, without running it");
  struct Flags {
    std::string target;
    std::vector<std::string> overrides;
    bool json = false, dump = false;
    uint32_t ranks = 1;
  };
  auto flags = std::make_shared<Flags>();
  command->add_option("config", flags->target, "a configuration file (only [model] is needed), or a run directory")
      ->required();
  add_overrides(*command, flags->overrides);
  command->add_option("--ranks", flags->ranks, "number of ranks that share the step; they need not exist")
      ->check(CLI::Range(1, 65536));
  command->add_flag("--json", flags->json, "print one JSON object");
  command->add_flag("--dump", flags->dump, "print every action with its buffers, waits and addresses");
  command->callback([&common, flags] {
    auto [registry, config] = load_config(common, flags->target, flags->overrides);
    share_batch(config, flags->ranks);
    // Without this key it is unknown how many ranks share this machine's memory.
    const Section& comm = config.section("comm");
    const char* per_node = "describe.ranks_per_node";
    const uint32_t local =
        comm.has(per_node) ? std::min(static_cast<uint32_t>(comm.integer(per_node)), flags->ranks) : 1;
    // Scratch is for as many threads as a rank has; the machines are assumed to be like this one.
    const std::string mine = processors();
    share_threads(config, mine, std::vector<std::string>(local, mine));
    Setup setup = make_setup(config, *registry, 0, {0, flags->ranks, 0, local});
    print_notes(setup);
    ReportContext context = report_context(setup, config);
    fmt::print("{}", flags->json   ? plan_json(setup.plan, context)
                     : flags->dump ? plan_dump(setup.plan)
                                   : plan_text(setup.plan, context));
    if (!flags->json && !flags->dump)
      fmt::print("{}", preset_note(*registry, config.section("model"), setup.plan.parameters));
    uint64_t limit = setup.kernels->info().total_bytes;
    if (!flags->json && limit && machine_peak(setup) > limit)
      for (const auto& edit : edits_that_fit(config, *registry, setup, limit)) fmt::print("  would fit: {}\n", edit);
  });
}

void add_check(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("check", "check everything that can fail, without training");
  auto target = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  command->add_option("config", *target, "a configuration file")->required();
  add_overrides(*command, *overrides);
  command->callback([&common, target, overrides] { common.exit = check(common, *target, *overrides); });
}

}  // namespace eng
