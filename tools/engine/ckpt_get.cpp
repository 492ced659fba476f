// SPDX-License-Identifier: Apache-2.0
// engine ckpt get: a run from a store of objects.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <set>

#include "core/base/error.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/progress.hpp"
#include "session/run/run_dir.hpp"
#include "session/run/second_place.hpp"
#include "session/store/s3.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

// The file of a folder that is being filled; it names the address.
constexpr const char* record_name = ".engine-store";

// "its runs are ...", or "".
std::string runs_below(ObjectStore& store) {
  std::set<std::string> names;
  for (const Object& object : store.list(""))
    if (const size_t at = object.key.find('/');
        at != object.key.npos && object.key.compare(at, 13, "/checkpoints/") == 0)
      names.insert(object.key.substr(0, at));
  std::string out;
  for (const std::string& name : names)
    if (out.size() < 1000) out += fmt::format("\n  {}/{}", store.address(), for_terminal(name));
  return out.empty() ? "" : "runs there are:" + out;
}

// Makes the folder, or goes on with one that was begun.
void begin_folder(const fs::path& to, const std::string& address) {
  std::error_code none;
  if (fs::exists(to / record_name, none) && read_text(to / record_name, 4096, Exit::disk) == address + "\n") return;
  if (fs::exists(to, none) && !fs::is_empty(to, none))
    throw Error(Exit::usage, to.string() + " is not empty", "give a new folder with --to");
  make_directories(to);
  write_text(to / record_name, address + "\n");
}

class Line {
 public:
  void draw(const std::string& what, uint64_t done, uint64_t all) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now, drawn_ = true;
    put_err(fmt::format("\r\x1b[K{}  {} of {}", for_terminal(what), size_text(done), size_text(all)));
    std::fflush(stderr);
  }
  ~Line() {
    if (drawn_) put_err("\r\x1b[K");
  }

 private:
  const bool terminal_ = look_of(STDERR_FILENO).terminal;
  std::chrono::steady_clock::time_point last_{};
  bool drawn_ = false;
};

// The checkpoint that was brought: that step, or the newest one that is undamaged.
std::string bring(ObjectStore& store, const fs::path& to, std::optional<int64_t> step) {
  const std::vector<std::string> all = stored_checkpoints(store);
  for (const std::string& name : all) {
    if (step && checkpoint_step(name) != step) continue;
    std::string problem;
    Line line;
    fetch_checkpoint(store, name, to / checkpoints_folder, problem,
                     [&](uint64_t done, uint64_t of) { line.draw(name, done, of); });
    if (problem.empty()) return name;
    if (step || name == all.back()) throw Error(Exit::checkpoint, fmt::format("{}: {}", name, problem));
    print_err("note: {} is passed over: {}\n", name, for_terminal(problem));
  }
  std::string have;
  for (const std::string& name : all) have += (have.empty() ? "" : ", ") + name;
  throw Error(
      Exit::checkpoint,
      fmt::format("{} has no complete checkpoint{}", store.address(), step ? fmt::format(" of step {}", *step) : ""),
      have.empty() ? runs_below(store) : "it has " + have);
}

void get(const std::string& address, std::string to, std::optional<int64_t> step) {
  const Signals signals;
  if (!is_object_address(address))
    throw Error(Exit::usage, address + " is no address of a store", "write s3://bucket/prefix/RUN");
  const auto store = store::open_store(address);
  if (to.empty()) to = fs::path(store->address()).filename();
  if (to.empty() || to == "." || to == "..")
    throw Error(Exit::usage, address + " names no run", "write s3://bucket/prefix/RUN, or give --to");
  if (stored_checkpoints(*store).empty()) bring(*store, to, step);  // throws
  begin_folder(to, store->address());
  std::string name;
  try {
    for (const Object& object : store->list(""))
      for (const char* file : run_files)
        if (object.key == file) {
          fs::remove(fs::path(to) / file);  // it may have changed since
          store->get(object, fs::path(to) / file, {});
        }
    name = bring(*store, to, step);
  } catch (const Error&) {
    if (!Signals::pending()) throw;
    throw Error(static_cast<Exit>(128 + Signals::pending()), "stopped: what came is kept",
                "the same command goes on from there");
  }
  const auto place = object_copies(store::open_store(address));
  adopt_copies(to, *place, checkpoint_step(name).value_or(0));
  fs::remove(fs::path(to) / record_name);
  print_out("{}\n", to);
  print_err("{} is there; go on with:  engine run {}\n", name, shell_word(to));
}

void print_list(const std::string& address) {
  const auto store = store::open_store(address);
  const std::vector<std::string> all = stored_checkpoints(*store);
  if (all.empty()) throw Error(Exit::checkpoint, address + " has no complete checkpoint", runs_below(*store));
  for (auto name = all.rbegin(); name != all.rend(); ++name) {
    uint64_t bytes = 0;
    for (const Object& object : store->list(fmt::format("{}/{}/", checkpoints_folder, *name))) bytes += object.bytes;
    print_out("{}  {:>10.1f} MiB  not checked\n", *name, static_cast<double>(bytes) / (1 << 20));
  }
}

}  // namespace

void list_store(const std::string& address) {
  const Signals signals;  // a reader that is gone is an error of writing
  try {
    print_list(address);
  } catch (const Error&) {
    if (!Signals::pending()) throw;
    throw Error(static_cast<Exit>(128 + Signals::pending()), "stopped");
  }
}

void add_ckpt_get(CLI::App& group) {
  auto* command = group.add_subcommand("get", "bring a run and its newest checkpoint from a store of objects");
  auto address = std::make_shared<std::string>(), to = std::make_shared<std::string>();
  auto step = std::make_shared<int64_t>(-1);
  command->add_option("address", *address, "s3://bucket/prefix/RUN")->required();
  command->add_option("--to", *to, "the folder for it, new or empty; RUN by default");
  command->add_option("--step", *step, "of another checkpoint than the newest")->check(CLI::NonNegativeNumber);
  command->footer(
      "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL say which store it "
      "is, and who asks. Interrupted, the same command goes on.");
  command->callback([=] { get(*address, *to, *step < 0 ? std::nullopt : std::optional(*step)); });
}

}  // namespace eng
