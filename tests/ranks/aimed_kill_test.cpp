// SPDX-License-Identifier: Apache-2.0
// SIGKILL of one rank in each phase of a step and of a checkpoint. killer/killer.c kills in forward, backward and
// update, killer/disk.cpp at a call that writes; each leaves a note of where that was, and the run is never aimed at
// again.
#include <signal.h>

#include <list>

#include "killed.hpp"
#include "tests/ranks/names.hpp"

using namespace cli;

namespace {

constexpr int steps = 6, every = 2, accumulate = 2, kept = 2;

// A rank, and where it dies.
struct Aim {
  int ranks;
  const char* zero;
  int rank;
  const char* where;  // forward, backward, optimizer: in `step`; else a call of killer/disk.cpp in its checkpoint
  int step;
  const char* path = "";  // a file of the checkpoint
  int number = 1;         // the micro-batch, or the call on that file
  bool asynchronous = false;

  bool in_step() const { return call().empty(); }
  std::string call() const {
    const std::string text = where;
    return text == "forward" || text == "backward" || text == "optimizer" ? "" : text;
  }
  std::string text() const {
    return std::to_string(ranks) + " ranks, " + zero + ", rank " + std::to_string(rank) + ", " + where + " " + path +
           " " + std::to_string(number) + " of step " + std::to_string(step) + (asynchronous ? ", asynchronous" : "");
  }
};

Args command(const Args& words, const std::string& ranks) {
  Args out = {"--plugin-path", killer().string()};
  // The `engine` with killer/disk.cpp does not lie where those of the build tree are found from.
  for (const std::string& plugin : names(ENGINE_PLUGIN_DIR))
    out.insert(out.end(), {"--plugin-path", std::string(ENGINE_PLUGIN_DIR) + "/" + plugin});
  out.insert(out.end(), words.begin(), words.end());
  out.insert(out.end(), {"--ranks", ranks});
  return out;
}

// The run of so many ranks that nothing happens to. Strategies and asynchronous checkpoints change none of its numbers.
const fs::path& undisturbed(int ranks) {
  struct Whole {
    Scratch scratch;
    fs::path run = scratch / "run";
  };
  static std::map<int, Whole> all;
  const Whole& whole = all[ranks];
  if (fs::exists(whole.run / "state.json") && state(whole.run).at("status") == "done") return whole.run;
  write_config(whole.scratch, kept);
  const Result result =
      engine(whole.scratch, command({"run", "config.toml", "--out", whole.run.string()}, std::to_string(ranks)));
  INFO(result.err);
  REQUIRE(result.exit == 0);
  CHECK(column(whole.run, "loss").back() < column(whole.run, "loss").front());
  return whole.run;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

// The victim's own note says that it died where it was to die.
void died_there(const Aim& aim, const Json& note) {
  INFO(note.dump());
  REQUIRE(note.at("where") == aim.where);
  if (!aim.in_step()) {
    CHECK(has(note.at("path"), "/checkpoints/.tmp-" + name_of(aim.step)));
    CHECK(has(note.at("path"), aim.path));
    // Asynchronous files are written beside the steps, and get their names between two of them.
    CHECK(note.at("own_thread") == (aim.asynchronous && aim.call() == "write"));
    return;
  }
  const int before = (aim.step - 1) * accumulate;  // micro-batches of earlier steps
  const std::string where = aim.where;
  CHECK(note.at("forwards") == before + (where == "optimizer" ? accumulate : aim.number));
  CHECK(note.at("backwards") == note.at("forwards").get<int>() - (where == "forward"));
  // Parameters in front of the victim are updated, those behind it are not.
  CHECK(note.at("update") == (where == "optimizer" ? aim.step : aim.step - 1));
  if (where == "optimizer") CHECK(note.at("runs") == 2);
}

// A run that is aimed at, from its start to its end.
struct Victim {
  explicit Victim(const Aim& a) : aim(a) {
    write_config(scratch, kept);
    Args words = {"run", "config.toml", "--out", run.string(), std::string("zero.plugin=") + aim.zero};
    Limits limits;
    if (aim.asynchronous) words.push_back("checkpoint.asynchronous=true");
    if (!aim.in_step()) {
      limits.program = killer_folder() / "engine-killer";
      scratch.write("kill-at", aim.call() + " .tmp-" + name_of(aim.step) + aim.path + " " + std::to_string(aim.number));
    } else {
      const Args place = Place{aim.rank, aim.step, aim.where, aim.number}.words();
      words.insert(words.end(), place.begin(), place.end());
    }
    child.emplace(scratch, command(words, std::to_string(aim.ranks)), limits);
  }
  ~Victim() {
    child.reset();
    for (const pid_t left : processes(run.string())) kill(left, SIGKILL);
  }
  // True once it has ended.
  bool look() {
    if (result) return true;
    const bool over = !child->running();
    if (!died && fs::exists(note)) died = Clock::now();
    if (!over) return false;
    seconds = died ? seconds_since(*died) : 0;
    result = child->wait();
    return true;
  }
  const Aim aim;
  Scratch scratch;
  fs::path run = scratch / "run", note = scratch / "killed";
  std::optional<Child> child;
  std::optional<Clock::time_point> died;
  std::optional<Result> result;
  double seconds = 0;  // from the kill to the end
};

void went_down(const Victim& victim) {
  const Aim& aim = victim.aim;
  const std::string& err = victim.result->err;
  REQUIRE(victim.died);
  CHECK(victim.seconds < 10 * patience);
  CHECK(victim.result->exit == 8);
  const Json note = Json::parse(read(victim.note));
  died_there(aim, note);
  // One cause, once, and it is the victim.
  CHECK(count(err, "error: ") == 1);
  CHECK(count(err, "was killed by signal 9 (SIGKILL)") == 1);
  CHECK(has(err, "error: rank " + std::to_string(aim.rank) + " (process " +
                     std::to_string(note.at("process").get<int>()) + " on "));
  CHECK(processes(victim.run.string()).empty());
}

// No step counts whose losses were not complete, no checkpoint has a name that is not. Returns the last one that is.
std::string left_behind(const Victim& victim) {
  const Aim& aim = victim.aim;
  const fs::path& run = victim.run;
  const bool renamed = aim.call() == "renamed", halfway = !aim.in_step() && !renamed;
  const int last = aim.in_step() ? (aim.step - 1) / every * every : aim.step - (renamed ? 0 : every);
  CHECK(has(victim.result->err, "the last complete checkpoint is " + name_of(last) + ";"));
  CHECK(state(run).at("status") == "failed");
  CHECK(state(run).at("last_checkpoint") == name_of(last));
  CHECK(state(run).at("exit_code") == 8);
  // In an update the losses are known to all, and nobody needs anybody any more.
  const double told = aim.in_step() ? column(run, "step").back() : 0;
  if (aim.in_step()) CHECK((told == aim.step - 1 || (std::string(aim.where) == "optimizer" && told == aim.step)));
  const std::vector<std::string> found = names(run / "checkpoints");
  CHECK(found.back() == name_of(last));
  // If another rank than the first dies, the first one may still tidy up.
  const bool there = found.front() == ".tmp-" + name_of(aim.step);
  if (!halfway || aim.rank == 0) CHECK(there == halfway);
  if (there)
    CHECK(fs::exists(run / "checkpoints" / found.front() / "manifest.json") ==
          (aim.call() == "rename" || std::string(aim.path) == "/manifest.json"));
  const Result verify = engine(victim.scratch, {"ckpt", "verify", run.string()});
  INFO(verify.out << verify.err);
  CHECK(verify.exit == 0);
  return name_of(last);
}

// By the same configuration to the end: nothing is in the way, nothing is left, and no bit differs.
void goes_on(const Victim& victim, const std::string& last) {
  const fs::path &run = victim.run, &whole = undisturbed(victim.aim.ranks);
  const Result on = engine(victim.scratch, command({"run", run.string()}, std::to_string(victim.aim.ranks)));
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(has(on.err, "resumes from " + last));
  CHECK_FALSE(has(on.err, "warning"));
  CHECK(state(run).at("status") == "done");
  CHECK(names(run / "checkpoints") == std::vector<std::string>{name_of(steps - every), name_of(steps)});
  CHECK(names(run) == names(whole));
  for (const char* key : {"step", "loss", "grad_norm"}) CHECK(column(run, key) == column(whole, key));
  const Result diff =
      engine(victim.scratch, {"ckpt", "diff", checkpoint(run, steps).string(), checkpoint(whole, steps).string()});
  INFO(diff.out << diff.err);
  CHECK(diff.exit == 0);
}

// They mostly wait for their end, so they do it beside each other.
void kill_and_go_on(const std::vector<Aim>& aims) {
  std::list<Victim> victims;
  for (const Aim& aim : aims) victims.emplace_back(aim);
  const auto begin = Clock::now();
  for (bool over = false; !over && seconds_since(begin) < 120 * patience;
       std::this_thread::sleep_for(std::chrono::milliseconds(5)))
    over = std::count_if(victims.begin(), victims.end(), [](Victim& v) { return v.look(); }) ==
           static_cast<std::ptrdiff_t>(victims.size());
  for (const Victim& victim : victims) {
    INFO(victim.aim.text());
    REQUIRE(victim.result);
    INFO(victim.result->err);
    went_down(victim);
    goes_on(victim, left_behind(victim));
  }
}

}  // namespace

TEST_CASE("a rank is killed in a forward", "[ranks][kill][.slow]") {
  kill_and_go_on({
      {2, "zero2", 0, "forward", 5, "", 1},
      {2, "zero3", 1, "forward", 5, "", 2},
  });
}

TEST_CASE("a rank is killed in a backward", "[ranks][kill][.slow]") {
  kill_and_go_on({
      {2, "zero2", 1, "backward", 5, "", 2},
      {2, "zero3", 0, "backward", 4, "", 1},
      {3, "zero3", 2, "backward", 5, "", 2},
  });
}

TEST_CASE("a rank is killed in an update", "[ranks][kill][.slow]") {
  kill_and_go_on({
      {2, "zero2", 1, "optimizer", 5},
      {2, "zero3", 0, "optimizer", 3},
  });
}

TEST_CASE("a rank is killed while it writes a checkpoint", "[ranks][kill][.slow]") {
  kill_and_go_on({
      // The second write is the first of a tensor.
      {2, "zero2", 1, "write", 4, "/model-00001.safetensors", 2},
      {2, "zero3", 0, "write", 4, "/optim-00000.safetensors", 2},
      {3, "zero3", 1, "sync", 6, "/optim-00001.safetensors", 1},
      // All of it is written; the manifest is not, or not whole; it has no name yet; it has, and nobody was told.
      {2, "zero2", 0, "write", 4, "/manifest.json", 1},
      {2, "zero3", 0, "rename", 4},
      {2, "zero2", 0, "renamed", 4},
  });
}

TEST_CASE("a rank is killed while it writes a checkpoint beside the steps", "[ranks][kill][.slow]") {
  kill_and_go_on({
      {2, "zero3", 1, "write", 4, "/model-00001.safetensors", 2, true},
      {2, "zero2", 0, "write", 4, "/optim-00000.safetensors", 2, true},
      {2, "zero3", 0, "rename", 4, "", 1, true},
  });
}
