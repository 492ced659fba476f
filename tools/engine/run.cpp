// SPDX-License-Identifier: Apache-2.0
// engine run.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "core/base/error.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/progress.hpp"
#include "session/run/run.hpp"
#include "session/store/s3.hpp"
#include "session/train/epochs.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/on_ranks.hpp"

namespace eng {
namespace {

struct RunFlags {
  std::string target, out, resume = "auto", max_time, trace;
  std::vector<std::string> overrides, allowed_changes;
  RankFlags ranks;
};

// Prints a run's progress to stderr. A reader that stalls does not stop the run.
class Shown final : public RunListener {
 public:
  // `first`: messages of plugins are printed too.
  explicit Shown(bool first) : plugins_(first) {
    if (plugins_)
      set_plugin_log([this](const std::string& id, int32_t, const std::string& text) {
        out_.put(fmt::format("[{}] {}\n", id, for_terminal(text)));
      });
  }
  ~Shown() override {
    if (plugins_) set_plugin_log(print_plugin_log);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  void note(const std::string& text) override { out_.put(fmt::format("note: {}\n", for_terminal(text))); }
  void passed_over(const CheckpointRow& checkpoint) override { out_.put(refused_text(checkpoint)); }
  void reading(const std::filesystem::path& weights, uint64_t done, uint64_t all) override {
    if (!reading_) reading_ = weights_progress(weights.string(), [this](const std::string& text) { out_.put(text); });
    reading_(done, all);
  }
  void started(const RunStart& start) override {
    const Section& train = start.config.section("train");
    const int64_t steps = train.integer("steps");
    progress_.emplace(out_, STDERR_FILENO, look_of(STDERR_FILENO), start.config.section("log").integer("every"), steps);
    line(fmt::format("run   {}", start.directory.string()));
    line(fmt::format("model {}: {} parameters; {} training samples of {} tokens, {} held out; {} steps",
                     start.setup.model.plugin, start.setup.plan.parameters, start.data.info().train_samples,
                     train.integer("sequence_length"), start.data.info().validation_samples, steps));
    epochs_ = by_epochs(start.config);
    if (epochs_) line(epochs_text(start.config, start.data.info().train_samples, start.setup.plan.ranks.world.size));
    if (start.from) line(fmt::format("resumes from {}", start.from->filename().string()));
    if (const Section& checkpoint = start.config.section("checkpoint"); saves_nothing(checkpoint))
      line("saves nothing: checkpoint.every = 0 and checkpoint.last = false; it cannot be resumed");
    if (start.step >= steps)
      line(fmt::format("nothing is left to do: step {} is done, train.steps is {}", start.step, steps));
  }
  const char* longer() const { return epochs_ ? "train.epochs=N" : "train.steps=N"; }
  void step(const Metrics& metrics, double seconds_left) override { progress_->step(metrics, seconds_left); }
  void evaluated(int64_t step, const Evaluation& evaluation) override { progress_->evaluated(step, evaluation); }
  void alert(int64_t step, const std::string& text) override { progress_->alert(step, text); }
  void saving() override {}
  void saved(const Saved& saved) override { progress_->saved(saved); }
  void line(const std::string& text) { progress_->line(for_terminal(text)); }
  void finish() { progress_->finish(); }

 private:
  const bool plugins_;
  Outlet out_{STDERR_FILENO, "stderr"};
  WeightsProgress reading_;
  std::optional<Progress> progress_;
  bool epochs_ = false;
};

// Prints the result of a run that ended normally.
void show_end(const RunEnd& end, const RunFlags& flags, const Member& member, Shown& shown) {
  const std::string path = end.directory.string();
  if (end.exit == Exit::stopped) {
    // A parent has printed the signal; with many ranks another rank may have received it.
    const int signal = Signals::pending();
    const std::string by = signal && !member.has_parent()     ? Signals::name(signal)
                           : signal || flags.max_time.empty() ? "a signal"
                                                              : "--max-time";
    return shown.line(end.last_checkpoint.empty()
                          ? fmt::format("stopped by {}; nothing was saved, so it cannot be resumed", by)
                          : fmt::format("stopped by {}; resume with:  {}", by, member.again(path)));
  }
  if (!end.over.empty()) shown.line(end.over);
  const std::string next = end.held_out ? fmt::format("\n  next:   engine eval {}", shell_word(path)) : "";
  const std::string saved = end.last_checkpoint.empty()
                                ? "\n  saved:  nothing, so it cannot be resumed or evaluated"
                                : fmt::format("{}\n  longer: {} {}", next, member.again(path), shown.longer());
  shown.line(fmt::format("done  {0}\n  curves: {0}/metrics.jsonl{1}", path, saved));
}

Exit train_rank(const Common& common, const RunFlags& flags, Member& member) {
  RunRequest request;
  request.open = {flags.target, flags.overrides, common.plugin_paths, {}};
  request.out = flags.out, request.resume = flags.resume, request.trace = flags.trace;
  request.allowed_changes = flags.allowed_changes;
  request.stop = stop_asked;
  request.open_store = [](const std::string& address) { return store::open_store(address); };
  if (!flags.max_time.empty()) {
    request.max_seconds = parse_duration(flags.max_time);
    if (!request.max_seconds)
      throw Error(Exit::usage, "--max-time " + flags.max_time + " is not a duration",
                  "write it like 90s, 15m or 3h50m");
  }
  Shown shown(member.first());
  const BuildData build = [](const Config& config, Registry& registry, int64_t vocabulary) {
    build_data(config, registry, vocabulary, false);
  };
  const RunEnd end = run_rank(request, member, shown, build);
  if (!end.directory.empty()) {
    shown.finish();
    show_end(end, flags, member, shown);
  }
  return end.exit;
}

// The words that resume `run` as it was asked for at first, `seconds` later. Overrides are in the run's configuration.
std::vector<std::string> resuming(const Common& common, const RunFlags& flags, const std::string& run,
                                  const std::vector<std::string>& changes, double seconds) {
  std::vector<std::string> out;
  for (const auto& folder : common.plugin_paths) out.insert(out.end(), {"--plugin-path", folder.string()});
  out.insert(out.end(), {"run", run});
  out.insert(out.end(), changes.begin(), changes.end());
  if (const auto whole = flags.max_time.empty() ? std::nullopt : parse_duration(flags.max_time))
    out.insert(out.end(), {"--max-time", fmt::format("{:.0f}s", std::max(1.0, *whole - seconds))});
  if (!flags.trace.empty()) out.push_back("--trace=" + flags.trace);
  return out;
}

}  // namespace

void add_run(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("run", "train, or resume a run");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("target", flags->target, "a configuration file, or a run directory")->required();
  add_overrides(*command, flags->overrides);
  command->add_option("--out", flags->out, "the run directory: new, empty, or a run to resume");
  command->add_option("--resume", flags->resume, "auto, never, must, or the step of a checkpoint");
  command
      ->add_option("--allow-change", flags->allowed_changes,
                   "section.key: resume although this key has another value; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--max-time", flags->max_time, "save and exit with 75 after this time, for example 3h50m");
  command->add_flag("--trace{auto}", flags->trace,
                    "write a trace of every action: of steps 2 to 4, or of the given steps, as in --trace=2-4");
  add_rank_flags(*command, flags->ranks);
  add_restart_flags(*command, flags->ranks);
  command->callback([&common, flags] {
    const Launching what{"run", flags->target, [&] { return load_config(common, flags->target, flags->overrides); },
                         [&](const auto&... how) { return resuming(common, *flags, how...); }};
    if (weights_kind(flags->target) == WeightsKind::hugging_face)
      throw Error(Exit::usage, flags->target + " is a Hugging Face directory; a configuration or a run is needed here",
                  "write a configuration with  [model] from = " + toml_text(flags->target) + "  and [data]");
    common.exit =
        on_ranks(common, flags->ranks, what, [&](Member& member) { return train_rank(common, *flags, member); });
  });
}

}  // namespace eng
