// SPDX-License-Identifier: Apache-2.0
// engine analyse.
#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "core/base/error.hpp"
#include "session/job/analysis.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/outlet.hpp"
#include "session/report/progress.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/on_ranks.hpp"

namespace eng {
namespace {

struct AnalyseFlags {
  std::string target, job, out, max_time;
  std::vector<std::string> overrides;
  RankFlags ranks;
};

// Prints the progress of an analysis to stderr, at most a line a second. A reader that stalls does not stop it.
class ShownAnalysis final : public AnalysisListener {
 public:
  // `first`: messages of plugins are printed too.
  explicit ShownAnalysis(bool first) : plugins_(first) {
    if (plugins_)
      set_plugin_log(
          [this](const std::string& id, int32_t, const std::string& text) { line(fmt::format("[{}] {}", id, text)); });
  }
  ~ShownAnalysis() override {
    if (plugins_) set_plugin_log(print_plugin_log);
  }
  ShownAnalysis(const ShownAnalysis&) = delete;
  ShownAnalysis& operator=(const ShownAnalysis&) = delete;
  void note(const std::string& text) override { line("note: " + text); }
  void passed_over(const CheckpointRow& checkpoint) override { out_.put(refused_text(checkpoint)); }
  void reading(const std::filesystem::path& weights, uint64_t done, uint64_t all) override {
    if (!reading_) reading_ = weights_progress(weights.string(), [this](const std::string& text) { out_.put(text); });
    reading_(done, all);
  }
  void started(const AnalysisStart& start) override {
    line(fmt::format("{}   {}", start.made.job.name, start.directory.string()));
    line(fmt::format("model {}: {} parameters; {} training windows of {} tokens, {} held out", start.setup.model.plugin,
                     start.setup.plan.parameters, start.data.info().train_samples, start.data.length(),
                     start.data.info().validation_samples));
    if (start.from) line("resumes from " + start.from->filename().string());
  }
  void progress(const std::string& phase, uint64_t done, uint64_t all, const std::string& note) override {
    if (!note.empty()) line(note);
    const bool other = phase != phase_, last = all && done >= all;
    if (other) phase_ = phase, began_ = SteadyClock::now(), before_ = done;
    if (!other && !last && since(told_) < 1) return;
    told_ = SteadyClock::now();
    const double left = done > before_ && all > done
                            ? since(began_) / static_cast<double>(done - before_) * static_cast<double>(all - done)
                            : 0;
    line(fmt::format("{} {}{}{}", phase, done, all ? fmt::format("/{}", all) : "",
                     left > 0 ? " left: " + duration_text(left) : ""));
  }
  void line(const std::string& text) { out_.put(for_terminal(text) + "\n"); }

 private:
  const bool plugins_;
  Outlet out_{STDERR_FILENO, "stderr"};
  WeightsProgress reading_;
  std::string phase_;
  SteadyClock::time_point began_{}, told_{};
  uint64_t before_ = 0;  // done when the phase began
};

Exit analyse_rank(const Common& common, const AnalyseFlags& flags, Member& member) {
  AnalysisRequest request;
  request.open = {flags.target, flags.overrides, common.plugin_paths, {}};
  request.job = flags.job, request.out = flags.out;
  request.stop = stop_asked;
  request.build_data = [](const Config& config, Registry& registry, int64_t vocabulary) {
    build_data(config, registry, vocabulary, false);
  };
  if (!flags.max_time.empty()) {
    request.max_seconds = parse_duration(flags.max_time);
    if (!request.max_seconds)
      throw Error(Exit::usage, "--max-time " + flags.max_time + " is not a duration",
                  "write it like 90s, 15m or 3h50m");
  }
  ShownAnalysis shown(member.first());
  const AnalysisEnd end = run_analysis(request, member, shown);
  if (end.directory.empty()) return end.exit;
  const std::string path = end.directory.string();
  if (end.exit == Exit::stopped) {
    const int signal = Signals::pending();
    const std::string by = signal && !member.has_parent()     ? Signals::name(signal)
                           : signal || flags.max_time.empty() ? "a signal"
                                                              : "--max-time";
    shown.line(fmt::format("stopped by {}; resume with:  {}", by, member.again(path, "analyse")));
  } else {
    shown.line("done  " + path);
    for (const std::string& file : end.files) shown.line(fmt::format("  {}/{}", path, file));
  }
  return end.exit;
}

}  // namespace

void add_analyse(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("analyse", "do a job on a model other than training, or go on with one");
  auto flags = std::make_shared<AnalyseFlags>();
  command
      ->add_option("target", flags->target,
                   "a configuration; a run, whose newest checkpoint has the weights; a Hugging Face directory; or the "
                   "directory of an analysis, to resume it")
      ->required();
  add_overrides(*command, flags->overrides);
  command->add_option("--job", flags->job,
                      "the job's plugin; without it job.plugin, or else the usual one of the plugins");
  command->add_option("--out", flags->out, "the directory of the analysis: new, empty, or an analysis to resume");
  command->add_option("--max-time", flags->max_time, "stop with 75 after this time, for example 3h50m");
  add_rank_flags(*command, flags->ranks);
  command->callback([&common, flags] {
    const Launching what{
        "analyse", flags->target, [&] {
          Opened opened = open_for_job({flags->target, flags->overrides, common.plugin_paths, {}}, flags->job);
          for (const auto& note : opened.config.notes()) print_err("note: {}\n", note);
          return Loaded{std::move(opened.registry), std::move(opened.config)};
        }};
    common.exit =
        on_ranks(common, flags->ranks, what, [&](Member& member) { return analyse_rank(common, *flags, member); });
  });
}

}  // namespace eng
