// SPDX-License-Identifier: Apache-2.0
// engine run.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.hpp"
#include "tools/commit.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/config_text.hpp"
#include "tools/engine/launch.hpp"
#include "tools/engine/progress.hpp"
#include "tools/engine/ranks_member.hpp"
#include "tools/engine/run_dir.hpp"
#include "tools/engine/signals.hpp"
#include "tools/engine/trace.hpp"
#include "tools/engine/training.hpp"

namespace eng {
namespace {

struct RunFlags {
  std::string target, out, resume = "auto", max_time, trace;
  std::vector<std::string> overrides;
  std::optional<uint32_t> ranks;
};

// The run to go on with, locked, if there is one: RUN itself, or what --out names.
std::optional<RunDir> existing_run(const RunFlags& flags, bool target_is_run) {
  if (target_is_run && !flags.out.empty())
    throw Error(Exit::usage, "--out goes with a configuration, not with a run",
                "leave --out away: the run goes on in its own directory");
  std::optional<RunDir> run;
  if (target_is_run)
    run.emplace(RunDir::open(flags.target));
  else if (!flags.out.empty() && RunDir::is_run(flags.out))
    run.emplace(RunDir::at(flags.out));
  return run;
}

RunDir new_run(const RunFlags& flags, const Config& config) {
  if (!flags.out.empty()) return RunDir::at(flags.out);
  return RunDir::create(config.section("run").string("out"), config.section("run").string("name"));
}

// --resume STEP; nullopt for the words.
std::optional<int64_t> resume_step(const std::string& text) {
  if (text == "auto" || text == "never" || text == "must") return std::nullopt;
  int64_t step = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || *end || step < 0)
    throw Error(Exit::usage, "--resume takes auto, never, must or a step, not " + text);
  return step;
}

// The checkpoint to go on from, if any.
std::optional<std::filesystem::path> choose_checkpoint(const RunFlags& flags, RunDir& run) {
  if (flags.resume == "never") {
    if (run.attempt() > 1)
      throw Error(Exit::usage, run.path().string() + " is a run already, and --resume never was given",
                  "give another --out");
    return std::nullopt;
  }
  if (auto step = resume_step(flags.resume)) {
    std::filesystem::path path = run.checkpoints() / checkpoint_name(*step);
    if (!std::filesystem::exists(path))
      throw Error(Exit::checkpoint, "there is no checkpoint of step " + flags.resume + " in " + run.path().string(),
                  "there is:\n" + checkpoint_table(list_checkpoints(run.checkpoints())));
    return path;
  }
  Found found = newest_checkpoint(run.checkpoints());
  if (!found.path && !found.refused.empty())
    throw Error(Exit::checkpoint, "no checkpoint of " + run.path().string() + " is usable",
                "start a new run, or remove the damaged checkpoints to start this one again");
  if (!found.path && flags.resume == "must")
    throw Error(Exit::checkpoint, run.path().string() + " has no checkpoint to go on from");
  return found.path;
}

// Of the parameters' names and shapes.
std::string model_hash(const Plan& plan) {
  std::string text;
  for (const TensorShare& t : parameters(plan)) text += fmt::format("{} {}\n", t.name, fmt::join(t.shape, " "));
  return Checksum::of(text);
}

// run.json: what would have to be the same for the run to be the same; and the configuration.
void write_identity(const RunDir& run, const Member& member, const Config& config, const Registry& registry,
                    const Setup& setup, const Data& data, bool target_is_run) {
  using Json = nlohmann::ordered_json;
  Json plugins = Json::array();
  for (const auto& p : registry.loaded())
    plugins.push_back({{"id", p.id}, {"version", p.version}, {"sha256", p.sha256}});
  const std::filesystem::path source = weights_source(config);
  const Json identity{{"version", version},
                      {"commit", ENGINE_COMMIT},
                      {"build", ENG_ABI_DRAFT_ID},
                      {"command", member.command()},
                      {"plugins", std::move(plugins)},
                      {"data_hash", data.info().content_hash},
                      {"model_hash", model_hash(setup.plan)},
                      {"config_hash", Checksum::of(resolved_text(config))},
                      {"seeds", {{"seed", config.section("train").integer("seed")}}},
                      {"ranks", member.size()},
                      {"hosts", member.hosts()},
                      {"attempt", run.attempt()},
                      {"started", utc_now(true)},
                      {"from", source.empty() ? Json() : Json(std::filesystem::absolute(source).string())},
                      {"extra", {{"base_dir", std::filesystem::absolute(config.base_dir()).string()}}}};
  // A command line or host name need not be UTF-8.
  run.write("run.json", identity.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  // What the user wrote stays what the user wrote when a run goes on by its resolved configuration.
  std::filesystem::path given = run.path() / "config.toml";
  bool keep = target_is_run && std::filesystem::exists(given);
  run.write("config.toml", keep ? read_text(given, uint64_t{1} << 30, Exit::disk) : config.source());
  run.write("config.resolved.toml", resolved_text(config));
}

// Keeps the run directory up to date, then shows what happened.
class Recorder final : public Listener {
 public:
  Recorder(const RunDir& run, const Trainer& trainer, Progress& progress, TraceFile& trace)
      : run_(run), trainer_(trainer), progress_(progress), trace_(trace), metrics_(run.metrics(), trainer.step()) {
    state("running", 0);
  }
  void step(const Metrics& metrics, double seconds_left) override {
    metrics_.append(metrics);
    progress_.step(metrics, seconds_left);
    trace_.step(metrics.step);
  }
  void evaluated(int64_t step, const Evaluation& evaluation) override { progress_.evaluated(step, evaluation); }
  void saving() override { metrics_.sync(); }
  void saved(const Saved& saved) override {
    progress_.saved(saved);
    state("running", 0);
  }
  void state(const char* status, int exit_code) const {
    run_.write_state(status, trainer_.step(), trainer_.last_checkpoint(), exit_code);
  }

 private:
  const RunDir& run_;
  const Trainer& trainer_;
  Progress& progress_;
  TraceFile& trace_;
  MetricsFile metrics_;
};

// Of ranks other than the first.
class Silent final : public Listener {
 public:
  explicit Silent(TraceFile& trace) : trace_(trace) {}
  void step(const Metrics& metrics, double) override { trace_.step(metrics.step); }
  void evaluated(int64_t, const Evaluation&) override {}
  void saving() override {}
  void saved(const Saved&) override {}

 private:
  TraceFile& trace_;
};

// Trains, and leaves in state.json how it ended.
template <class Run>
Exit train(Trainer& trainer, const RunDir& run, Progress& progress, TraceFile& trace, Run train_with) {
  Recorder recorder(run, trainer, progress, trace);
  try {
    const Exit exit = train_with(recorder);
    recorder.state(exit == Exit::done ? "done" : "stopped", static_cast<int>(exit));
    return exit;
  } catch (const Error& e) {
    try {
      recorder.state("failed", static_cast<int>(e.exit()));
    } catch (const Error&) {
      // The disk that failed the step fails this too; the first error is the one to tell.
    }
    throw;
  }
}

bool stop_asked() {
  return Signals::pending() != 0;
}

// The directory and what it goes on from, which rank 0 finds and tells.
struct Place {
  std::optional<RunDir> dir;  // rank 0's, once it is there
  std::optional<std::filesystem::path> from;
};

Place find_place(const RunFlags& flags, bool target_is_run, const Member& member) {
  Place place;
  if (member.first()) {
    // A run that is there is locked first. A new one is made last, when all that can be refused has been accepted.
    if (auto found = existing_run(flags, target_is_run)) place.dir.emplace(std::move(*found));
    if (place.dir) {
      remove_leftovers(place.dir->checkpoints());
      place.from = choose_checkpoint(flags, *place.dir);
    } else if (resume_step(flags.resume) || flags.resume == "must") {
      throw Error(Exit::checkpoint, "a new run has no checkpoint to go on from",
                  "name the run, or leave --resume away");
    }
  }
  const std::string from = member.from_first(place.from ? place.from->string() : "");
  if (!from.empty()) place.from = from;
  return place;
}

Exit train_rank(const Common& common, const RunFlags& flags, Member& member) {
  Training options;
  options.stop = stop_asked;
  if (!flags.max_time.empty()) {
    options.max_seconds = parse_duration(flags.max_time);
    if (!options.max_seconds)
      throw Error(Exit::usage, "--max-time " + flags.max_time + " is no duration", "write it like 90s, 15m or 3h50m");
  }
  resume_step(flags.resume);
  bool target_is_run = std::filesystem::is_directory(flags.target);
  auto [registry, config] = load_config(common, flags.target, flags.overrides);
  config.require("data");
  member.join(*registry, config);
  options.config_hash = Checksum::of(resolved_text(config));
  Communicator* comm = member.communicator();
  Setup setup = make_setup(config, *registry, 0, comm ? comm->world() : World{}, comm);
  if (member.first()) print_notes(setup);
  check_fits(config, *registry, setup);
  // A parent has done it; else rank 0 does, and the others wait.
  if (member.first() && !member.has_parent()) build_data(config, *registry, setup.model.info.vocabulary, false);
  member.from_first("");
  Data data(*registry, config, setup.model.info.vocabulary);
  if (member.first()) print_notes(config, data);
  std::vector<Item> items = collective_items(setup.plan);
  items.push_back(plugins_item(*registry));
  items.push_back({"data", Exit::data, data.info().content_hash, {}});
  agree(member.exchange(), items);
  auto [dir, from] = find_place(flags, target_is_run, member);
  std::optional<Progress> progress;
  Exit exit = Exit::done;
  try {
    if (!from) check_weights(config, *registry, setup);
    Trainer trainer(config, *registry, setup, data, comm);
    if (from) {
      trainer.load(*from);
    } else {
      const std::filesystem::path weights = weights_source(config);
      trainer.initialise(weights_of(weights, config, *registry,
                                    member.first() ? weights_progress(weights.string()) : WeightsProgress{}));
    }
    TraceFile trace(flags.trace, trainer.step(), setup.plan);
    options.trace = trace.trace();
    if (member.first() && !dir) dir.emplace(new_run(flags, config));
    if (from && dir) set_aside_newer(dir->checkpoints(), trainer.step());
    if (dir) {
      write_identity(*dir, member, config, *registry, setup, data, target_is_run);
      dir->write("plan.txt", plan_text(setup.plan, report_context(setup, config)));
      progress.emplace(STDERR_FILENO, isatty(STDERR_FILENO) != 0, config.section("log").integer("every"),
                       config.section("train").integer("steps"));
      progress->line(fmt::format("run   {}", dir->path().string()));
      progress->line(fmt::format("model {}: {} parameters; {} training samples of {} tokens, {} held out; {} steps",
                                 setup.model.plugin, setup.plan.parameters, data.info().train_samples,
                                 config.section("train").integer("sequence_length"), data.info().validation_samples,
                                 config.section("train").integer("steps")));
      if (from) progress->line(fmt::format("goes on from {}", from->filename().string()));
      if (trainer.step() >= config.section("train").integer("steps"))
        progress->line(fmt::format("nothing is left to do: step {} is done, train.steps is {}", trainer.step(),
                                   config.section("train").integer("steps")));
    }
    const std::filesystem::path path = member.from_first(dir ? dir->path().string() : "");
    member.works_in(path);
    options.checkpoints = path / "checkpoints";
    trace.into(path);
    Silent silent(trace);
    const auto train_with = [&, &config = config](Listener& listener) {
      return run_training(trainer, config, data, listener, options);
    };
    exit = dir ? train(trainer, *dir, *progress, trace, train_with) : train_with(silent);
    trace.finish(trainer.step());
  } catch (...) {
    // Before anything is taken down that could wait for the other ranks.
    member.failed(std::current_exception());
    if (dir && !member.many()) dir->log("error: " + failure(std::current_exception()).text);
    throw;
  }
  if (!dir) return exit;
  const std::string path = dir->path().string();
  if (exit == Exit::stopped) {
    // A parent has said which signal; with many ranks another one may have had it.
    const int signal = Signals::pending();
    const std::string by = signal && !member.has_parent()     ? Signals::name(signal)
                           : signal || flags.max_time.empty() ? "a signal"
                                                              : "--max-time";
    progress->line(fmt::format("stopped by {}; go on with:  {}", by, member.again(path)));
  } else {
    const std::string next =
        data.info().validation_samples ? fmt::format("\n  next:   engine eval {}", shell_word(path)) : "";
    progress->line(fmt::format("done  {0}\n  losses: {0}/metrics.jsonl{1}\n  longer: {2} train.steps=N", path, next,
                               member.again(path)));
  }
  return exit;
}

// The ranks do the work; here is only what would otherwise be told by each of them, or keep all but one waiting.
int launch_ranks(const Common& common, const RunFlags& flags) {
  // Every rank reads it for itself, and a pipe can be read once.
  const std::filesystem::file_type type = std::filesystem::status(flags.target).type();
  if (flags.target.starts_with("/dev/") || type == std::filesystem::file_type::fifo)
    throw Error(Exit::usage, "with --ranks the configuration cannot come from a pipe: each rank reads it",
                "write it to a file");
  auto [registry, config] = load_config(common, flags.target, flags.overrides);
  config.require("data");
  share_batch(config, *flags.ranks);
  build_data(config, *registry, model_vocabulary(config, *registry), true);
  Launch what;
  what.command = common.command;
  what.ranks = *flags.ranks;
  what.timeout = config.section("comm").number("timeout");
  what.again = fmt::format("--ranks {}", what.ranks);
  for (size_t i = 0; i < common.arguments.size(); ++i) {
    const std::string& word = common.arguments[i];
    if (word == "--ranks")
      ++i;
    else if (word.rfind("--ranks=", 0) != 0)
      what.arguments.push_back(word);
  }
  return launch(what);
}

int run(Common& common, const RunFlags& flags) {
  if (weights_kind(flags.target) == WeightsKind::hugging_face)
    throw Error(Exit::usage, flags.target + " is a Hugging Face directory, and here a configuration or a run is needed",
                "write a configuration with  [model] from = " + toml_text(flags.target) + "  and [data]");
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  if (flags.ranks) {
    const Announced announced = Announced::read(variable);
    if (announced.size > 1 || announced.by == "mpirun")
      throw Error(Exit::usage,
                  fmt::format("--ranks starts ranks, and this is one already (rank {} of {}, started by {})",
                              announced.rank, announced.size, announced.by),
                  "leave --ranks away here, or leave the launcher away");
    if (*flags.ranks > 1) return launch_ranks(common, flags);
  }
  const Signals signals(std::getenv("SLURM_STEP_NUM_TASKS") != nullptr);
  std::optional<Member> member;
  try {
    member.emplace(common);
    member->check_started();
    if (!member->many() && !flags.ranks) check_alone(variable, command_words(common.arguments));
    const Exit exit = train_rank(common, flags, *member);
    return member->leave(exit);
  } catch (...) {
    if (!member || !member->many()) throw;
    member->failed(std::current_exception());
    // Not by way of destructors and exit handlers, where this rank could wait for the others.
    std::fflush(nullptr);
    ::_exit(failure(std::current_exception()).exit);
  }
}

}  // namespace

void add_run(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("run", "train, or go on where a run stopped");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("target", flags->target, "a configuration file, or a run directory")->required();
  command->add_option("overrides", flags->overrides, "section.key=value ...");
  command->add_option("--out", flags->out, "the run directory itself: new, empty, or a run to go on with");
  command->add_option("--resume", flags->resume, "auto, never, must, or the step of a checkpoint");
  command->add_option("--max-time", flags->max_time, "save and leave with 75 after this long, for example 3h50m");
  command->add_flag("--trace{auto}", flags->trace,
                    "write when every action ran: of steps 2 to 4, or of those given, as in --trace=2-4");
  command->add_option("--ranks", flags->ranks, "so many processes on this machine, started through mpirun")
      ->check(CLI::Range(1, 65536));
  command->callback([&common, flags] { common.exit = run(common, *flags); });
}

}  // namespace eng
