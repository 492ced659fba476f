// SPDX-License-Identifier: Apache-2.0
#include "session/run/run.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.hpp"
#include "session/config/schemas.hpp"
#include "session/planning/fits.hpp"
#include "session/run/changes.hpp"
#include "session/run/host_rate.hpp"
#include "session/run/record.hpp"
#include "session/run/recovery.hpp"
#include "session/run/run_place.hpp"
#include "session/run/run_record.hpp"
#include "session/run/second_place.hpp"
#include "session/shell.hpp"
#include "session/train/epochs.hpp"
#include "session/train/training.hpp"

namespace eng {
namespace {

// The changes that a resumed run makes; read before its files are written again. Only on the rank that has the
// directory.
struct Resumed {
  Document before;
  std::vector<Change> changes;
};

std::optional<Resumed> resumed(const RunRequest& request, const Opening& opening, RunListener& listener) {
  const auto& [registry, config, plugin_folders, before] = opening.opened;
  const RunPlace& place = opening.place;
  if (!place.from || !place.dir) return std::nullopt;
  Resumed out;
  try {
    out.before = before ? *before : read_resolved(place.dir->path() / "config.resolved.toml");
  } catch (const Error& e) {
    listener.note(std::string("it is not known what has changed since the run's last start: ") + e.what());
    return std::nullopt;
  }
  out.changes = changes(out.before, config, schemas_of(*registry));
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

void check_request(const RunRequest& request) {
  check_resume(request.resume);
  for (const auto& folder : {request.open.target, request.out})
    if (is_analysis(folder))
      throw Error(Exit::usage, folder.string() + " is an analysis, not a run",
                  "resume it with:  engine analyse " + shell_word(folder.string()));
}

}  // namespace

struct Run::State {
  const RunRequest request;
  Opening& opening;
  RunListener& listener;
  Member& member = opening.member();
  bool again = false;  // the run existed before; whether it has a checkpoint is known later
  std::optional<TraceFile> trace;
  std::optional<SecondPlace> second;  // where the directory is
  std::optional<Recorder> recorder;
  std::optional<Silent> silent;
  std::optional<TrainingLoop> loop;

  State(const RunRequest& asked, Opening& by, RunListener& to) : request(asked), opening(by), listener(to) {}
  void prepare();
  void find();
  void start();
  void record();
  void finish_copies();
  // False if it resumes from the second place.
  bool own_checkpoint() const {
    const RunPlace& place = opening.place;
    return place.from && place.dir && place.from->parent_path() == place.dir->checkpoints().path();
  }
};

// Everything that can be checked before a directory is changed or memory is allocated.
void Run::State::prepare() {
  again = std::filesystem::is_directory(request.open.target) ||
          (request.files && !request.out.empty() && RunDir::is_run(request.out));
  opening.join();
  // Weights that do not fit the model are reported before a plan that does not fit the machine.
  opening.plan(request.readable, !again);
  check_fits(opening.opened.config, *opening.opened.registry, opening.setup);
  opening.open_data();
  if (member.many()) member.planned(peak_of(opening.setup.plan, beside(opening.setup)).host);
}

// Finds the directory where the run is, or will be.
void Run::State::find() {
  if (!request.files && !RunDir::is_run(request.open.target)) return;
  const Config& config = opening.opened.config;
  if (member.first() && request.files)
    opening.place = find_place(request, config);
  else if (member.first())
    opening.place.from = find_weights(request.open.target);
  if (request.files && (request.resume == "auto" || request.resume == "must"))
    recover(config, member, opening.place, listener);
  if (member.first() && request.files) choose_checkpoint(opening.place, request, config, listener);
  opening.share_place();
}

void Run::State::start() {
  const auto& [registry, config, plugin_folders, before] = opening.opened;
  const Setup& setup = opening.setup;
  const RunPlace& place = opening.place;
  if (!place.from && again) check_weights(config, *registry, setup);
  const std::optional<Resumed> once = resumed(request, opening, listener);
  if (member.first() && request.files) check_space(request, config, setup, place);
  if (member.first() && !place.from) opening.host_rate = host_rate_for(setup, config);
  opening.start();
  const Trainer& trainer = *opening.trainer;
  check_epochs(config, opening.data->info().train_samples, trainer.step(), trainer.samples(), member.size());
  trace.emplace(request.trace, trainer.step(), setup.plan);
  if (request.files) opening.make_directory(request.out);
  if (place.from && place.dir) {
    // One of the same step is damaged if that of the second place was taken.
    set_aside_newer(place.dir->checkpoints().inside(), trainer.step() - !own_checkpoint());
  }
  if (place.dir) {
    const RunStart begun{place.dir->path(), config, setup, *opening.data, place.from, trainer.step()};
    if (!trainer.choices().empty()) place.dir->write("device_choices.txt", trainer.choices());
    if (once) {
      const uint32_t ranks_before = read_record(begun.directory).ranks;
      for (const std::string& note :
           resume_notes({once->before, config, once->changes, ranks_before, member.size(), begun.step, *registry}))
        listener.note(note);
    }
    if (const std::string note = host_rate_note(opening.host_rate); !note.empty()) listener.note(note);
    write_identity(opening, begun, once ? once->changes : std::vector<Change>());
    listener.started(begun);
  }
  record();
}

void Run::State::record() {
  const auto& [registry, config, plugin_folders, before] = opening.opened;
  const Setup& setup = opening.setup;
  const std::optional<RunDir>& dir = opening.place.dir;
  const std::filesystem::path checkpoints = opening.enter();
  if (request.files) trace->into(opening.directory);
  if (auto other = dir ? second_place(config, dir->path(), request.open_store) : nullptr)
    second.emplace(dir->folder().inside(), std::move(other), config.section("checkpoint").integer("keep"),
                   opening.trainer->step(), own_checkpoint() ? opening.place.from : std::nullopt);
  if (dir)
    recorder.emplace(*dir, *opening.trainer, *trace, listener, second ? &*second : nullptr,
                     config.section("log").boolean("tensorboard"),
                     DeviceMonitor(*registry, setup.kernels->device(), setup.plan.ranks.world.local_rank));
  else
    silent.emplace(*trace, request.tell_all ? &listener : nullptr);
  Listener& events = dir ? static_cast<Listener&>(*recorder) : *silent;
  const std::string attempt = member.from_first(dir ? std::to_string(dir->attempt()) : "");
  const std::filesystem::path copies =
      request.files ? copies_of(config, opening.directory, std::strtoll(attempt.c_str(), nullptr, 10)) : "";
  const Training options{checkpoints, request.stop,  request.max_seconds, opening.resolved->hash,
                         copies,      trace->trace()};
  loop.emplace(*opening.trainer, config, *opening.data, events, options);
}

// The others wait meanwhile, so rank 0 meets them every second.
void Run::State::finish_copies() {
  const Section& checkpoint = opening.opened.config.section("checkpoint");
  if (!request.files || !checkpoint.given("second") || checkpoint.string("second").empty()) return;
  const int64_t step = opening.trainer->step();
  bool told = false;
  for (;;) {
    const bool over = !second || second->wait(1);
    if (!over && !std::exchange(told, true))
      recorder->alert(step, fmt::format("checkpoint.second: waits for the copy in {}", second->place()));
    if (member.from_first(over ? "over" : "") == "over") break;
  }
  if (!second) return;
  for (const std::string& text : second->news()) recorder->alert(step, text);
  if (const std::string text = second->missing(); !text.empty()) recorder->alert(step, text);
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
    if (s.opening.place.dir && !s.member.told())
      s.opening.place.dir->log("error: " + failure(std::current_exception()).text);
    throw;
  }
}

Run::Run(const RunRequest& request, Opening& opening, RunListener& listener)
    : state_(std::make_unique<State>(request, opening, listener)) {
  check_request(request);
  state_->prepare();
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
  guarded([&] { s.finish_copies(); });
  if (s.recorder) s.recorder->ended(end.exit, end.over);
  s.trace->finish(s.opening.trainer->step());
  if (s.opening.place.dir) end.directory = s.opening.place.dir->path();
  end.last_checkpoint = s.opening.trainer->last_checkpoint();
  end.held_out = s.opening.data->info().validation_samples > 0;
  return end;
}

void Run::fail(const std::string& why) {
  try {
    guarded([&] { throw Error(Exit::bug, why); });
  } catch (const Error&) {  // it is reported
  }
}

RunEnd run_rank(const RunRequest& request, Member& member, RunListener& listener, BuildData build_data) {
  check_request(request);  // an analysis may have a configuration that is none of a run
  Opening opening(open_config(request.open), {.build_data = std::move(build_data)}, member, listener);
  Run run(request, opening, listener);
  while (run.more()) run.step();
  return run.end();
}

}  // namespace eng
