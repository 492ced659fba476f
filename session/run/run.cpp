// SPDX-License-Identifier: Apache-2.0
#include "session/run/run.hpp"

#include "core/base/error.hpp"
#include "session/config/schemas.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/fits.hpp"
#include "session/run/changes.hpp"
#include "session/run/record.hpp"
#include "session/run/run_place.hpp"
#include "session/run/run_record.hpp"
#include "session/run/waiting.hpp"
#include "session/shell.hpp"
#include "session/train/epochs.hpp"
#include "session/train/training.hpp"

namespace eng {
namespace {

// The parts of a run, in the order in which they are made; each may use the earlier ones.
struct Parts {
  Opened opened;
  std::optional<ResolvedConfig> resolved;
  Setup setup;
  std::optional<Data> data;
  bool again = false;  // the run existed before; whether it has a checkpoint is known later
};

// True if [data] says what the source needs.
bool has_data(const Config& config) try {
  config.require("data");
  return true;
} catch (const ConfigError&) {
  return false;
}

// Everything that can be checked before a directory is changed or memory is allocated.
void prepare(const RunRequest& request, Member& member, RunListener& listener, Parts& parts) {
  parts.again = std::filesystem::is_directory(request.open.target) ||
                (request.files && !request.out.empty() && RunDir::is_run(request.out));
  for (const auto& place : {request.open.target, request.out})
    if (is_analysis(place))
      throw Error(Exit::usage, place.string() + " is an analysis, not a run",
                  "resume it with:  engine analyse " + shell_word(place.string()));
  parts.opened = request.opened ? std::move(*request.opened) : open_config(request.open);
  Config& config = parts.opened.config;
  Registry& registry = *parts.opened.registry;
  const auto tell = [&](const std::vector<std::string>& notes) {
    if (member.first())
      for (const std::string& note : notes) listener.note(note);
  };
  if (!member.has_parent()) tell(config.notes());  // a parent has printed them
  const bool source = !request.without_data || has_data(config);
  if (source) config.require("data");
  refuse_described(config);
  member.join(registry, config);
  // A parent has done it. Without a parent, rank 0 does it and the others wait.
  bool built = false;
  const auto build = [&](int64_t vocabulary) {
    if (std::exchange(built, true)) return;
    if (source && member.first() && !member.has_parent() && request.build_data)
      request.build_data(config, registry, vocabulary);
    member.from_first("");
  };
  if (by_epochs(config)) {
    if (!source)
      throw Error(Exit::usage, "train.epochs counts samples of [data], and there are none", "give train.steps instead");
    build(model_vocabulary(config, registry));
    count_steps(config, registry, member.size());
  }
  parts.resolved.emplace(config);
  Communicator* comm = member.communicator();
  Readable readable = request.readable;
  // Weights that do not fit the model are reported before a plan that does not fit the machine.
  if (!parts.again) readable.traced = weights_check(config, registry);
  parts.setup = make_setup(config, registry, 0, comm ? comm->world() : World{}, comm, readable);
  tell(parts.setup.notes);
  check_fits(config, registry, parts.setup);
  const int64_t vocabulary = parts.setup.model.info.vocabulary;
  build(vocabulary);
  if (source)
    parts.data.emplace(registry, config, vocabulary, parts.setup.model.fields);
  else
    parts.data.emplace(config.section("train").integer("sequence_length"), vocabulary, parts.setup.model.fields);
  if (source) tell(notes_of(config, *parts.data, vocabulary));
  count_data(parts.setup, *parts.data);
  std::vector<Item> items = collective_items(parts.setup.plan);
  items.push_back(plugins_item(registry));
  items.push_back({"data", Exit::data, parts.data->info().content_hash, {}});
  agree(member.exchange(), items);
}

// Sets parameters and position from a checkpoint, from existing weights, or from the model's initialisation rules.
void fill(Trainer& trainer, const Parts& parts, const std::optional<std::filesystem::path>& from, bool first,
          RunListener& listener) {
  auto [reference, hash] = reference_weights(parts.opened.config, *parts.opened.registry);
  trainer.set_reference(std::move(reference), std::move(hash));
  if (from) return trainer.load(*from);
  const std::filesystem::path weights = weights_source(parts.opened.config);
  WeightsProgress progress;
  if (first) progress = [&](uint64_t done, uint64_t all) { listener.reading(weights, done, all); };
  trainer.initialise(weights_of(weights, parts.opened.config, *parts.opened.registry, progress));
}

// The changes that a resumed run makes; read before its files are written again. Only on the rank that has the
// directory.
struct Resumed {
  Document before;
  std::vector<Change> changes;
};

std::optional<Resumed> resumed(const RunRequest& request, const Parts& parts, const RunPlace& place,
                               RunListener& listener) {
  if (!place.from || !place.dir) return std::nullopt;
  const Config& config = parts.opened.config;
  Resumed out;
  try {
    out.before = parts.opened.before ? *parts.opened.before : read_resolved(place.dir->path() / "config.resolved.toml");
  } catch (const Error& e) {
    listener.note(std::string("it is not known what has changed since the run's last start: ") + e.what());
    return std::nullopt;
  }
  out.changes = changes(out.before, config, schemas_of(*parts.opened.registry));
  refuse_changes(out.changes, request.allowed_changes, config);
  return out;
}

// On rank 0. Of a run that is resumed, the checkpoints that it has count.
void check_space(const RunRequest& request, const Config& config, const Setup& setup, const RunPlace& place) {
  if (saves_nothing(config.section("checkpoint"))) return;
  if (!place.dir) {
    check_disk(config, setup.plan, request.out.empty() ? config.section("run").string("out") : request.out.string());
    return;
  }
  const size_t present = list_checkpoints(place.dir->checkpoints().path()).size();
  check_disk(config, setup.plan, place.dir->path(), place.from ? checkpoint_step(*place.from).value_or(0) : 0, present);
}

}  // namespace

struct Run::State {
  const RunRequest request;
  Member& member;
  RunListener& listener;
  Parts parts;
  RunPlace place;
  std::filesystem::path path;
  std::optional<Trainer> trainer;
  std::optional<TraceFile> trace;
  std::optional<HeldFolder> held;  // on other ranks than the first, which has RunDir
  std::optional<Recorder> recorder;
  std::optional<Silent> silent;
  std::optional<TrainingLoop> loop;

  State(const RunRequest& asked, Member& of, RunListener& to) : request(asked), member(of), listener(to) {}
  void find();
  void start();
  void record();
};

// Finds the directory where the run is, or will be.
void Run::State::find() {
  if (request.files) {
    place = find_place(request, member, listener);
  } else if (RunDir::is_run(request.open.target)) {
    std::string from;
    if (member.first()) from = find_weights(request.open.target).string();
    place.from = member.from_first(from);
  }
}

void Run::State::start() {
  const auto& [opened, resolved, setup, data, again] = parts;
  const auto& [registry, config, plugin_folders, before] = opened;
  if (!place.from && again) check_weights(config, *registry, setup);
  const std::optional<Resumed> once = resumed(request, parts, place, listener);
  if (member.first() && request.files) check_space(request, config, setup, place);
  if (setup.kernels->host_memory()) check_threads(setup.kernels->info().parallel);
  release_freed_memory();  // of planning
  trainer.emplace(config, *registry, setup, *data, member.communicator(),
                  member.first() && place.from ? choices_of(*place.from) : "");
  fill(*trainer, parts, place.from, member.first(), listener);
  check_epochs(config, data->info().train_samples, trainer->step(), trainer->samples(), member.size());
  release_freed_memory();  // of reading a checkpoint
  trace.emplace(request.trace, trainer->step(), setup.plan);
  if (member.first() && !place.dir && request.files) place.dir.emplace(new_run(request, config));
  if (place.from && place.dir) set_aside_newer(place.dir->checkpoints().inside(), trainer->step());
  if (place.dir) {
    const RunStart start{place.dir->path(), config, setup, *data, place.from, trainer->step()};
    if (!trainer->choices().empty()) place.dir->write("device_choices.txt", trainer->choices());
    if (once) {
      const uint32_t ranks_before = read_record(start.directory).ranks;
      for (const std::string& note :
           resume_notes({once->before, config, once->changes, ranks_before, member.size(), start.step, *registry}))
        listener.note(note);
    }
    write_identity(*place.dir, member, *registry, start, *resolved, plugin_folders, before.has_value(),
                   once ? once->changes : std::vector<Change>());
    listener.started(start);
  }
  record();
}

void Run::State::record() {
  path = member.from_first(place.dir ? place.dir->path().string() : "");
  std::filesystem::path checkpoints;
  if (request.files) {
    member.works_in(path);
    trace->into(path);
    const HeldFolder& folder = place.dir ? place.dir->folder() : held.emplace(path);
    checkpoints = folder.inside() / checkpoints_folder;
  }
  if (place.dir)
    recorder.emplace(
        *place.dir, *trainer, *trace, listener, parts.opened.config.section("log").boolean("tensorboard"),
        DeviceMonitor(*parts.opened.registry, parts.setup.kernels->device(), parts.setup.plan.ranks.world.local_rank));
  else
    silent.emplace(*trace, request.tell_all ? &listener : nullptr);
  Listener& events = place.dir ? static_cast<Listener&>(*recorder) : *silent;
  const Training options{checkpoints, request.stop, request.max_seconds, parts.resolved->hash, trace->trace()};
  loop.emplace(*trainer, parts.opened.config, *parts.data, events, options);
}

// Records a failure of a started run.
template <class Work>
auto Run::guarded(const Work& work) {
  State& s = *state_;
  try {
    try {
      return work();
    } catch (const Error& e) {
      if (!s.recorder) throw;
      s.recorder->failed(e.exit());
      if (e.exit() == Exit::disk) s.recorder->check_there();  // a save fails in its own words if that comes first
      throw;
    }
  } catch (...) {
    s.member.failed(std::current_exception());
    if (s.place.dir && !s.member.many()) s.place.dir->log("error: " + failure(std::current_exception()).text);
    throw;
  }
}

Run::Run(const RunRequest& request, Member& member, RunListener& listener)
    : state_(std::make_unique<State>(request, member, listener)) {
  check_resume(request.resume);
  prepare(request, member, listener, state_->parts);
  state_->find();
  guarded([this] { state_->start(); });
}

Run::~Run() = default;

bool Run::more() const {
  return state_->loop->more();
}

std::string Run::over() const {
  return state_->loop->over();
}

void Run::step(const Batch* given) {
  guarded([&] { state_->loop->step(given); });
}

void Run::save() {
  if (!state_->request.files) throw Error(Exit::usage, "this run has no directory to save into", "open it with files");
  guarded([this] { state_->loop->save(); });
}

RunEnd Run::end() {
  State& s = *state_;
  RunEnd end;
  end.exit = guarded([&] { return s.loop->end(); });
  end.over = s.loop->over();
  if (s.recorder) s.recorder->ended(end.exit, end.over);
  s.trace->finish(s.trainer->step());
  if (s.place.dir) end.directory = s.place.dir->path();
  end.last_checkpoint = s.trainer->last_checkpoint();
  end.held_out = s.parts.data->info().validation_samples > 0;
  return end;
}

void Run::fail(const std::string& why) {
  try {
    guarded([&] { throw Error(Exit::bug, why); });
  } catch (const Error&) {  // it is reported
  }
}

Trainer& Run::trainer() {
  return *state_->trainer;
}
const Setup& Run::setup() const {
  return state_->parts.setup;
}
const Config& Run::config() const {
  return state_->parts.opened.config;
}
Registry& Run::registry() const {
  return *state_->parts.opened.registry;
}
const Data& Run::data() const {
  return *state_->parts.data;
}
const std::filesystem::path& Run::directory() const {
  return state_->path;
}

RunEnd run_rank(const RunRequest& request, Member& member, RunListener& listener) {
  Run run(request, member, listener);
  while (run.more()) run.step();
  return run.end();
}

}  // namespace eng
