// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_place.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.hpp"
#include "session/config/failure.hpp"
#include "session/run/second_place.hpp"

namespace eng {
namespace {

// A step; nullopt for auto, never and must.
std::optional<int64_t> resume_step(const std::string& text) {
  if (text == "auto" || text == "never" || text == "must") return std::nullopt;
  int64_t step = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || *end || step < 0)
    throw Error(Exit::usage, "--resume takes auto, never, must or a step, not " + text);
  return step;
}

// The run to resume, locked, if there is one: RUN itself, or the directory of --out.
std::optional<RunDir> existing_run(const RunRequest& request) {
  const bool target_is_run = std::filesystem::is_directory(request.open.target);
  if (target_is_run && !request.out.empty())
    throw Error(Exit::usage, "--out is for a configuration, not for a run",
                "remove --out: a run is resumed in its own directory");
  std::optional<RunDir> run;
  if (target_is_run)
    run.emplace(RunDir::open(request.open.target));
  else if (!request.out.empty() && RunDir::is_run(request.out))
    run.emplace(RunDir::at(request.out));
  return run;
}

// The newest of the run and of its second place.
std::optional<std::filesystem::path> newest_of_both(const RunDir& run, CopyPlace* second, RunListener& listener) {
  const auto passed_over = [&](const CheckpointRow& row) { listener.passed_over(row); };
  std::optional<std::filesystem::path> found;
  std::exception_ptr none;
  try {
    found = usable_checkpoint(run, "run", passed_over);
  } catch (const Error& e) {
    if (!second || e.exit() != Exit::checkpoint) throw;
    none = std::current_exception();
  }
  if (!second) return found;
  const int64_t step = found ? checkpoint_step(*found).value_or(0) : -1;
  try {
    if (auto copy = newest_copy(run.folder().inside(), *second, run.checkpoints().path(), step, passed_over)) {
      if (copy->parent_path() == run.checkpoints().path())
        listener.note(
            fmt::format("{} was brought from the second place, {}", copy->filename().string(), second->name()));
      return copy;
    }
  } catch (const Error& e) {  // a store that is damaged or not there: what is here will do
    if (!found || e.exit() == Exit::stopped || e.exit() == Exit::disk) throw;
    listener.note(fmt::format("checkpoint.second: {}", e.what()));
  }
  if (none) std::rethrow_exception(none);
  return found;
}

// The checkpoint to resume from, if any.
std::optional<std::filesystem::path> newest_to_resume(const std::string& resume, const RunDir& run, CopyPlace* second,
                                                      RunListener& listener) {
  if (resume == "never") {
    if (run.attempt() > 1)
      throw Error(Exit::usage, run.path().string() + " is already a run, but --resume never was given",
                  "give another --out");
    return std::nullopt;
  }
  if (auto step = resume_step(resume)) {
    std::filesystem::path path = run.checkpoints().path() / checkpoint_name(*step);
    if (std::filesystem::exists(path)) return path;
    const auto tell = [&](const CheckpointRow& row) { listener.passed_over(row); };
    const auto copy =
        second ? newest_copy(run.folder().inside(), *second, run.checkpoints().path(), -1, tell, *step) : std::nullopt;
    if (!copy)
      throw Error(Exit::checkpoint, "there is no checkpoint of step " + resume + " in " + run.path().string(),
                  "available:\n" + checkpoint_table(list_checkpoints(run.checkpoints().path())));
    return copy;
  }
  const auto found = newest_of_both(run, second, listener);
  if (!found && resume == "must")
    throw Error(Exit::checkpoint, run.path().string() + " has no checkpoint to resume from");
  return found;
}

}  // namespace

void check_resume(const std::string& resume) {
  resume_step(resume);
}

std::string checkpoint_table(const std::vector<CheckpointRow>& rows) {
  std::string text;
  for (const CheckpointRow& r : rows)
    text += fmt::format("{}  {:>10.1f} MiB  {:>5} tensors  {}{}\n", r.path.filename().string(),
                        static_cast<double>(r.bytes) / (1 << 20), r.tensors,
                        r.problem.empty() ? "complete" : for_terminal(r.problem), r.best ? "  best" : "");
  return text;
}

std::optional<std::filesystem::path> usable_checkpoint(const RunDir& run, const char* what,
                                                       const TellRow& passed_over) {
  Found found = find_latest(run.checkpoints().path());
  for (const CheckpointRow& row : found.refused) passed_over(row);
  if (!found.path && !found.refused.empty())
    throw Error(Exit::checkpoint, "no checkpoint of " + run.path().string() + " is usable",
                fmt::format("start a new {}, or remove the damaged checkpoints to start this one again", what));
  return found.path;
}

RunPlace find_place(const RunRequest& request, const Config& config) {
  RunPlace place;
  if (auto found = existing_run(request)) place.dir.emplace(std::move(*found));
  const std::filesystem::path run = place.dir ? place.dir->path() : request.out;
  if (const auto second = run.empty() ? nullptr : second_place(config, run, request.open_store)) try {
      check_second_place(run, *second);
    } catch (const Error& e) {  // it is looked at again before the first copy
      if (e.exit() != Exit::communication && !(place.dir && e.exit() == Exit::data)) throw;
    }
  if (place.dir)
    remove_leftovers(place.dir->checkpoints().inside());
  else if (resume_step(request.resume) || request.resume == "must")
    throw Error(Exit::checkpoint, "a new run has no checkpoint to resume from", "give the run, or remove --resume");
  return place;
}

void choose_checkpoint(RunPlace& place, const RunRequest& request, const Config& config, RunListener& listener) {
  if (!place.dir) return;
  const auto second = second_place(config, place.dir->path(), request.open_store);
  place.from = newest_to_resume(request.resume, *place.dir, second.get(), listener);
  remove_unfinished(place.dir->checkpoints().path());  // of a checkpoint that was not taken
  if (place.from && place.from->parent_path() != place.dir->checkpoints().path())
    listener.note("the newest usable checkpoint is in the second place: " + place.from->string());
}

}  // namespace eng
