// SPDX-License-Identifier: Apache-2.0
// engine plan, engine check.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/base/error.hpp"
#include "engine/model.h"
#include "session/file.hpp"
#include "session/gguf/export.hpp"
#include "session/job/parts.hpp"
#include "session/model/activations.hpp"
#include "session/model/reference.hpp"
#include "session/model/tensor_parallel.hpp"
#include "session/model/transforms.hpp"
#include "session/planning/fit/text.hpp"
#include "session/planning/free_workspace.hpp"
#include "session/ranks/ranks.hpp"
#include "session/report/timeline.hpp"
#include "session/run/record.hpp"
#include "session/train/epochs.hpp"
#include "session/train/trainer.hpp"
#include "session/version.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

std::string size(uint64_t n) {
  return format_bytes(static_cast<double>(n));
}

void line(const char* what, const std::string& text, const char* state = "ok") {
  print_out("  {:<11} {:<90} {}\n", what, text, state);
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

// Says whether `engine ckpt export --to FILE.gguf` will work; nothing if the plugin does not know GGUF files.
void check_export(Registry& registry, const Config& config, const Model& model) {
  const PluginSchema& plugin = registry.find(ENG_MODEL_KIND, config.section("model").string("plugin"))->schema;
  if (!pretrained_of(plugin).gguf) return;
  std::vector<TensorShape> parameters;  // what a transform adds is left out, or merged
  for (const Parameter& p : model.params)
    if (const eng_desc all = p.whole(); p.added_by.empty() && !(p.flags & of_reference))
      parameters.push_back({p.name, {all.dims, all.dims + all.ndim}});
  const std::filesystem::path source = weights_source(config);
  const bool directory = weights_kind(source) == WeightsKind::hugging_face;
  try {
    line("gguf", check_gguf(parameters, config, plugin, gguf_tokenizer(registry, config, directory ? source : "")));
  } catch (const Error& error) {
    line("gguf", error.what(), "not possible");
  }
}

int check(const Common& common, const std::string& target, const std::vector<std::string>& overrides, uint32_t ranks) {
  auto [registry, config] = load_config(common, target, overrides);
  config.require("data");
  const World world = planned_world(config, ranks);
  ranks = world.size;
  print_out("engine {}  {}\n", version, target);
  size_t given = 0, all = 0;
  for (const Section& s : config.sections())
    for (const auto& [key, setting] : s.settings()) ++all, given += setting.given;
  line("config", fmt::format("{} keys, {} given", all, given));
  if (by_epochs(config)) build_data(config, *registry, model_vocabulary(config, *registry), true);
  const std::string epochs = count_steps(config, *registry, ranks);
  settle(config, planned_workspace(config, *registry, world));
  Setup setup = make_plan_only(config, *registry, world, {.traced = weights_check(config, *registry)});
  print_notes(setup);
  std::string plugins;
  for (const auto& p : registry->loaded()) plugins += (plugins.empty() ? "" : "  ") + p.id + " " + p.version;
  line("plugins", plugins);
  line("model", fmt::format("{}, {} parameters", setup.model.plugin, setup.plan.parameters));
  for (const std::string& text : transform_lines(setup.model)) line("transform", text);
  if (const std::string text = parallel_line(setup.model, setup.plan.ranks); !text.empty()) line("parallel", text);
  if (const auto source = weights_source(config); !source.empty()) line("from", source.string());
  if (const std::string text = reference_line(setup.model, config); !text.empty()) line("reference", text);
  check_export(*registry, config, setup.model);
  if (epochs.empty()) build_data(config, *registry, setup.model.info.vocabulary, true);
  Data data(*registry, config, setup.model.info.vocabulary, setup.model.fields);
  print_notes(config, data, setup.model.info.vocabulary);
  if (!data.info().train_samples)
    throw Error(Exit::data, "there is nothing to train on: data.validation is 1", "set data.validation to 0.5 or less");
  line("data", fmt::format("{} files, {} tokens; {} training samples, {} held out; ids below {} <= {}",
                           data.info().files, data.info().tokens, data.info().train_samples,
                           data.info().validation_samples, data.info().vocabulary, setup.model.info.vocabulary));
  const Section& train = config.section("train");
  const int64_t samples = train.integer("micro_batch") * train.integer("accumulate") * data_ranks(config, ranks);
  line("batch",
       fmt::format("micro {} x accumulate {}{} = {} samples = {} tokens per step", train.integer("micro_batch"),
                   train.integer("accumulate"), ranks > 1 ? fmt::format(" x {} ranks", data_ranks(config, ranks)) : "",
                   samples, samples * train.integer("sequence_length")));
  if (!epochs.empty()) line("epochs", epochs);
  const Schedule schedule = make_schedule(config, *registry);
  if (schedule.plugin)  // each rate of a plugin is checked as it is asked for
    for (int64_t k = 1; k < train.integer("steps"); ++k) schedule.at(k);
  line("schedule", fmt::format("{}: {:.3g} at update 1, {:.3g} at update {}", config.section("schedule").string("kind"),
                               schedule.at(1), schedule.at(train.integer("steps")), train.integer("steps")));
  check_fits(config, *registry, setup);
  count_data(setup, data);
  check_device(*registry, setup);
  const std::optional<Card>& card = setup.target.card;
  const std::string sharing =
      ranks == 1
          ? ""
          : fmt::format(", {} {} ranks",
                        world.local_size > 1 && setup.target.host_memory() ? "a machine's of" : "each of", ranks);
  const uint64_t there = available(setup).device;
  line("memory", fmt::format("{} of {}{}{}", size(machine_peak(setup)), there ? size(there) : "an unknown amount",
                             card ? ", described by " + card->name : "", sharing));
  const int64_t keep = kept_checkpoints(config);
  const bool none = saves_nothing(config.section("checkpoint"));
  const std::string checkpoints =
      none ? "no checkpoint is saved"
           : fmt::format("{} checkpoints x {} (one more while saving)", keep, size(written_bytes(setup.plan)));
  if (card) {
    // It is in another machine, with another disk and another host.
    line("disk", checkpoints + ", on another machine", "not checked");
    if (!setup.target.host_memory() && !available(setup).host)
      line("host", size(peak_of(setup.plan, beside(setup)).hosts) + " of another machine's: host.memory is not given",
           "not checked");
    return 0;
  }
  const uint64_t free = none ? 0 : check_disk(config, setup.plan, config.section("run").string("out"));
  const std::string of_them = none ? "" : fmt::format(", free {}", free == UINT64_MAX ? "unknown" : size(free));
  line("disk", checkpoints + of_them);
  if (!setup.storage.tier.empty()) {
    try_storage(setup.plan, setup.offload, config.section("offload"), *registry);
    uint64_t reserved = 0;
    for (const Arena& arena : setup.plan.arenas) reserved += arena.kind == "storage" ? arena.total() : 0;
    line("tier", fmt::format("{}: {}{} reserved and given back", setup.storage.tier, size(reserved),
                             ranks == 1 ? "" : " of a rank"));
  }
  return 0;
}

}  // namespace

namespace {

struct PlanFlags {
  std::string target, host, job, trace;
  std::optional<std::string> fit;  // "": of the device of the configuration
  std::vector<std::string> overrides;
  bool json = false, dump = false, activations = false, lossy = false, timeline = false;
  uint32_t ranks = 1;
};

// The value of --fit may be left out, so the word after it may be the configuration or an override.
void sort_words(PlanFlags& flags) {
  const auto is_override = [](const std::string& word) { return word.find('=') != std::string::npos; };
  if (!flags.fit) return;
  if (is_override(*flags.fit)) {
    flags.overrides.insert(flags.overrides.begin(), std::exchange(*flags.fit, ""));
  } else if (flags.target.empty() || is_override(flags.target)) {
    if (!flags.target.empty()) flags.overrides.insert(flags.overrides.begin(), flags.target);
    flags.target = std::exchange(*flags.fit, "");
  }
}

// Flags as keys. A path on the command line starts at the working directory, one in the configuration there.
void add_described(PlanFlags& flags) {
  if (flags.fit && !flags.fit->empty()) {
    const Card card = find_card(card_meant(*flags.fit), std::filesystem::current_path(), "--fit");
    flags.overrides.push_back("device.describe=" + toml_text(card.name));
  }
  if (flags.host.empty()) return;
  const auto bytes = parse_bytes(flags.host);
  if (!bytes || !*bytes || lacks_unit(flags.host))
    throw Error(Exit::usage, fmt::format("--host {}: this is no amount of memory", flags.host),
                "give bytes, such as 512GiB: the memory of a host, which its ranks share");
  flags.overrides.push_back(fmt::format("host.memory={}", *bytes));
}

// The estimated step over time; into the file `trace` too, if that is not "".
void draw(const Setup& setup, const Config& config, const std::string& trace) {
  const Machine machine = machine_of(config.section("comm"), setup.target, setup.storage);
  if (!timed(setup.plan, machine))
    throw Error(Exit::usage, "--timeline: the rates of the device, or those between ranks, are not known",
                "plan for a card: device.describe=a800-80g; or give comm.describe.flops, and with several ranks "
                "comm.describe.bandwidth");
  const Timeline timeline = timeline_of(setup.plan, machine);
  if (!trace.empty()) write_atomic(trace, timeline_trace(timeline, setup.plan));
  put_out(timeline_text(timeline, setup.plan));
}

Exit plan(const Common& common, PlanFlags flags) {
  sort_words(flags);
  if (flags.target.empty())
    throw Error(Exit::usage, "a configuration file or a run directory is missing",
                "engine plan CONFIG; with --fit too: engine plan CONFIG --fit 24GiB");
  flags.timeline = flags.timeline || !flags.trace.empty();
  if (flags.fit && (flags.dump || flags.activations || flags.timeline))
    throw Error(Exit::usage,
                fmt::format("--{} prints one plan, and --fit compares many", flags.dump       ? "dump"
                                                                             : flags.timeline ? "timeline"
                                                                                              : "activations"),
                "leave out one of them");
  if (flags.lossy && !flags.fit)
    throw Error(Exit::usage, "--lossy says what --fit may choose", "add --fit, or leave it out");
  add_described(flags);
  if (!flags.job.empty()) flags.overrides.push_back("job.plugin=" + toml_text(flags.job));
  auto [registry, config] = load_config(common, flags.target, flags.overrides);
  const World world = planned_world(config, flags.ranks);
  flags.ranks = world.size;
  std::optional<MadeJob> made;
  JobParts parts;
  if (!flags.job.empty() || is_analysis(flags.target)) {
    if (flags.fit)
      throw Error(Exit::usage, "--fit compares settings for training; it does not know jobs", "leave out --fit");
    if (flags.timeline)
      throw Error(Exit::usage, "--timeline draws a step of training; a job has none", "leave out --timeline");
    made.emplace(make_job(config, *registry));
    take_batch(config, *made, flags.ranks);
    parts = divide_job(config, *registry, world, false);
    if (parts.count()) made.emplace(make_job(config, *registry, {parts.largest(), parts.count()}));
  }
  const std::string epochs = made ? "" : try_count_steps(config, *registry, flags.ranks);
  if (flags.fit) {
    const Fit fit = find_fit(config, *registry, world, std::numeric_limits<double>::infinity(), flags.lossy);
    flags.json ? write_out(fit_json(fit)) : put_out(fit_text(fit));
    return refusal(fit);
  }
  const Readable job{.job = made ? &made->job : nullptr, .resting = parts.resting(parts.largest())};
  settle(config, planned_workspace(config, *registry, world, job));
  Setup setup = make_plan_only(config, *registry, world, job);
  if (flags.activations) {
    flags.json ? write_out(activations_json(setup.model)) : put_out(activations_text(setup.model));
    return Exit::done;
  }
  if (flags.timeline) {
    draw(setup, config, flags.trace);
    return refusal(setup);
  }
  if (made) count_job(setup, *made, config.section("checkpoint").boolean("asynchronous"));
  if (parts.count()) count_part(setup, {parts.largest(), parts.count()});
  print_notes(setup);
  ReportContext context = report_context(setup, config);
  if (!flags.dump) context.stages = plan_stages(config, *registry, setup, context.machine);
  if (flags.json || flags.dump)
    write_out(flags.json ? plan_json(setup.plan, context) : plan_dump(setup.plan));
  else
    put_out((parts.count() ? parts_text(parts) : "") + plan_text(setup.plan, context) +
            stages_text(context.stages, pipeline_of(setup.plan.ranks, setup.plan.accumulate),
                        timed(setup.plan, context.machine)));
  if (!flags.json && !flags.dump) {
    if (!epochs.empty()) print_out("  epochs            {}\n", epochs);
    put_out(preset_note(*registry, config.section("model"), setup.plan.parameters));
    flush_out();  // what follows takes seconds
    if (!fits(setup) && !made) {
      const Fit fit = find_fit(config, *registry, world, seconds_for_proposals);
      for (const auto& edit : proposals(fit)) print_out("  would fit: {}\n", edit);
      if (fit.cut) print_out("  would fit: {}\n", cut_text(fit));
    }
  }
  // A device that is not here has told no memory. The plan holds all the same.
  if (!available(setup).device) check_device(*registry, setup);
  return refusal(setup);
}

void add_ranks(CLI::App& command, uint32_t& ranks) {
  command.add_option("--ranks", ranks, "number of ranks that share the step; they need not exist")
      ->check(CLI::Range(1, 65536));
}

}  // namespace

void add_plan(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("plan", "print memory and work of a step, without running it");
  auto flags = std::make_shared<PlanFlags>();
  command->add_option("config", flags->target, "a configuration file (only [model] is needed), or a run directory");
  add_overrides(*command, flags->overrides);
  add_ranks(*command, flags->ranks);
  command
      ->add_option_function<std::vector<std::string>>(
          "--fit", [flags](const std::vector<std::string>& words) { flags->fit = words.empty() ? "" : words[0]; },
          "find the fastest settings that fit into so many bytes, into a card (a800-80g, the path of its file), or, "
          "without a value, into the device of the configuration")
      ->expected(0, 1)
      ->allow_extra_args(false);
  command->add_flag("--lossy", flags->lossy,
                    "with --fit: also what moves gradients and weights between ranks in fewer bits");
  command->add_option("--host", flags->host, "memory of a host, which its ranks share: [host] memory");
  command->add_option("--job", flags->job, "plan a job of `engine analyse` instead of training: job.plugin");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->add_flag("--dump", flags->dump, "print every action with its buffers, waits and addresses");
  command->add_flag("--timeline", flags->timeline, "draw the estimated step over time, in place of the memory")
      ->excludes("--dump")
      ->excludes("--json");
  command->add_option("--trace", flags->trace, "write that to a file for ui.perfetto.dev as well")
      ->excludes("--dump")
      ->excludes("--json");
  command->add_flag("--activations", flags->activations, "print the activations that a program can ask a step to keep")
      ->excludes("--dump");
  command->callback([&common, flags] { common.exit = static_cast<int>(plan(common, *flags)); });
}

void add_check(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("check", "check everything that can fail, without training");
  auto target = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  command->add_option("config", *target, "a configuration file")->required();
  add_overrides(*command, *overrides);
  auto ranks = std::make_shared<uint32_t>(1);
  add_ranks(*command, *ranks);
  command->callback([&common, target, overrides, ranks] { common.exit = check(common, *target, *overrides, *ranks); });
}

}  // namespace eng
