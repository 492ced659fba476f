// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/member.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/base/error.hpp"
#include "session/json.hpp"
#include "session/ranks/common_error.hpp"
#include "session/ranks/log.hpp"
#include "session/ranks/signals.hpp"
#include "session/stamp.hpp"
#include "session/version.hpp"

namespace eng {
namespace {

const char* variable(const char* name) {
  return std::getenv(name);
}

bool common(const std::exception_ptr& reason) try { std::rethrow_exception(reason); } catch (const CommonError&) {
  return true;
} catch (...) {
  return false;
}

}  // namespace

Member::Member(MemberStart start)
    : start_(std::move(start)),
      announced_(start_.alone ? Announced() : Announced::read(variable)),
      hosts_{host_name()} {
  if (!start_.alone) link_.open(announced_, variable);
  if (has_parent() && link_.parent().ranks != announced_.size)
    throw Error(Exit::environment, fmt::format("mpirun was asked to start {} ranks, but this is one of {}",
                                               link_.parent().ranks, announced_.size));
  if (!told()) return;
  log(fmt::format("rank {} of {} started by {} on {} as process {}; engine {} ({}), {}", rank(), size(), announced_.by,
                  host_name(), ::getpid(), version, commit, ENG_ABI_DRAFT_ID));
  // Messages of plugins are printed on rank 0 only.
  if (!first())
    set_plugin_log([this](const std::string& id, int32_t, const std::string& text) { log("[" + id + "] " + text); });
}

Member::~Member() {
  if (many() && !first()) set_plugin_log(nullptr);
}

std::string Member::again(const std::filesystem::path& run, const std::string& verb) const {
  const std::string line = "engine " + verb + " " + shell_word(run.string());
  if (has_parent()) return fmt::format("{} --ranks {}", line, size());
  if (!many()) return line;
  return fmt::format("{} -n {} {}", announced_.by == "srun" ? "srun --mpi=pmix" : "mpirun", size(), line);
}

// A plugin reads no environment (engine/comm.h).
static Section with_master(Section comm) {
  const char *address = variable("MASTER_ADDR"), *port = variable("MASTER_PORT");
  if (address && *address && comm.settings().count("address")) comm.set("address", std::string(address), "MASTER_ADDR");
  if (!port || !*port || !comm.settings().count("port")) return comm;
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port, port + std::strlen(port), number);
  if (error != std::errc() || *end || number == 0)
    throw Error(Exit::usage, fmt::format("MASTER_PORT = {} is not a port", port), "a number from 1 to 65535");
  comm.set("port", int64_t{number}, "MASTER_PORT");
  return comm;
}

void Member::planned(uint64_t process) noexcept {
  log(fmt::format("its plan has {} bytes of host memory for this process", process));
}

void Member::join(Registry& registry, Config& config) {
  if (!many()) return;
  const Section& comm = config.section("comm");
  // Looking at the table joins nobody.
  const bool any = registry.table<eng_comm>(ENG_COMM_KIND, comm.string("plugin")).flags & ENG_COMM_ANY_LAUNCHER;
  if (!announced_.joined && !any) check_announced(announced_, 1, command_words(start_.arguments));
  const uint32_t local = announced_.local_rank ? ENG_WORLD_LOCAL : 0u;
  communicator_ = std::make_unique<Communicator>(
      registry, with_master(comm), World{announced_.rank, announced_.size, announced_.local_rank.value_or(0), 1},
      ENG_WORLD_RANKS | local);
  const World& world = communicator_->world();
  check_announced(announced_, world.size, command_words(start_.arguments));
  announced_.rank = world.rank;
  exchange_ = [this](const std::string& mine) { return communicator_->exchange(mine); };
  const std::string mine = processors();
  const std::vector<std::string> all = exchange_(mine);
  hosts_.clear();
  for (const std::string& one : all)
    if (const std::string host = one.substr(0, one.find(' '));
        std::find(hosts_.begin(), hosts_.end(), host) == hosts_.end())
      hosts_.push_back(host);
  // Before this rank's share of threads is set, which may differ between ranks.
  agree(exchange_, {{"engine",
                     Exit::environment,
                     fmt::format("version = {}\ncommit = {}\nabi = {}\n", version, commit, ENG_ABI_DRAFT_ID),
                     {}},
                    config_item(config)});
  share_batch(config, world.size);
  share_threads(config, mine, all);
}

std::string Member::from_first(const std::string& text) const {
  return exchange_ ? exchange_(first() ? text : "")[0] : text;
}

void Member::works_in(const std::filesystem::path& run) {
  if (!told()) return;
  std::vector<std::string> waiting;
  {
    const std::lock_guard lock(waiting_mutex_);
    if (!run_.empty()) return;
    run_ = run;
    waiting.swap(waiting_);
  }
  for (const std::string& line : waiting) log_line(run_, rank(), line);
  if (first()) link_.tell(Json::object({{"run", run.string()}}));
}

void Member::log(const std::string& text) noexcept try {
  {
    const std::lock_guard lock(waiting_mutex_);
    if (run_.empty()) {
      if (waiting_.size() < 1000) waiting_.push_back(text);
      return;
    }
  }
  log_line(run_, rank(), text);
} catch (const std::bad_alloc&) {  // the line is lost
}

void Member::failed(std::exception_ptr reason) noexcept try {
  if (failed_ || !told()) return;
  failed_ = true;
  const Failure why = failure(reason);
  log("error: " + why.text);
  link_.tell(Json::ordered({{"error", why.exit}, {"text", why.text}, {"help", why.help}}));
  if (!has_parent() && (first() || !common(reason))) tell_by_hand(why);
  if (communicator_) communicator_->abort(why.text);
} catch (const std::exception&) {  // out of memory: the others notice the end of this process
}

// Nothing collects the messages of ranks that were started by hand, and the first rank that exits ends the others. So
// rank 0 reports an error of all ranks, without a wait if all are known to have it. An error that may be a consequence
// of another rank's failure is reported later than its cause: by then the launcher has ended this rank, which takes a
// second or two on a busy machine.
void Member::tell_by_hand(const Failure& why) const {
  const bool consequence = why.exit == static_cast<int>(Exit::communication);
  int wait = (first() ? 0 : 3000) + (consequence ? 500 : 0);  // milliseconds
  for (; wait > 0 && !Signals::pending(); wait -= 10) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (start_.tell && (wait <= 0 || first()))
    start_.tell({why.exit, fmt::format("rank {} on {}: {}", rank(), host_name(), why.text), why.help});
}

int Member::leave(Exit exit) {
  if (!told()) return static_cast<int>(exit);
  exchange_ = {};
  communicator_.reset();
  log(fmt::format("exited with {}", static_cast<int>(exit)));
  link_.tell(Json::object({{"end", static_cast<int>(exit)}}));
  // mpirun ends all ranks as soon as one exits with another code; the parent knows the real code.
  return has_parent() ? 0 : static_cast<int>(exit);
}

}  // namespace eng
