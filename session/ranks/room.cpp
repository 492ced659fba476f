// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/room.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/base/error.hpp"
#include "core/config/value.hpp"
#include "session/ranks/groups.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

// The number in a file of the kernel; nothing if it is absent, or "max".
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

// Takes the limit if it leaves less than the others. `used`: of the limit.
void narrow(Room& room, uint64_t limit, uint64_t used, const std::string& name) {
  const uint64_t left = std::max<uint64_t>(1, limit > used ? limit - used : 0);
  if (room.threads && room.threads <= left) return;
  room.threads = left;
  room.limit = fmt::format("{} = {}", name, limit);
}

// Applies the limits of this process's control group and the groups above it, in either version.
void narrow_by_groups(Room& room) {
  for_each_group([&room](const std::string& controllers, const std::filesystem::path& folder, const std::string& name) {
    if (const auto limit = number_in(folder / "pids.max"))
      narrow(room, *limit, number_in(folder / "pids.current").value_or(0), "pids.max of the control group");
    const char* memory = controllers.empty() ? "memory.max" : "memory.limit_in_bytes";
    if (const auto limit = number_in(folder / memory); limit && *limit < room.memory) {
      room.memory = *limit;
      room.group = fmt::format("{} of the control group {}", memory, name);
    }
  });
}

// Threads of all users: "0.20 0.18 0.12 1/804 11206".
uint64_t threads_now() {
  std::ifstream in("/proc/loadavg");
  std::string word;
  for (int k = 0; k < 4; ++k) in >> word;
  std::istringstream counts(word.substr(std::min(word.size(), word.find('/') + 1)));
  uint64_t all = 0;
  counts >> all;
  return all;
}

}  // namespace

Room room_here() {
  Room room;
  room.memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t all = threads_now();
  for (const char* name : {"pid_max", "threads-max"})
    if (const auto limit = number_in(std::string("/proc/sys/kernel/") + name))
      narrow(room, *limit, all, std::string("kernel.") + name);
  rlimit own{};  // root is not bound by it
  if (::geteuid() != 0 && ::getrlimit(RLIMIT_NPROC, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    narrow(room, own.rlim_cur, 0, "the limit of processes (ulimit -u)");
  narrow_by_groups(room);
  const std::string mine = processors();
  room.cores = static_cast<uint64_t>(threads_of(mine, {mine}));
  return room;
}

void check_room(uint32_t ranks, const Room& room) {
  const auto refuse = [ranks](const std::string& why, uint64_t most) {
    throw Error(
        Exit::usage, fmt::format("--ranks {}: {}; nothing was started", ranks, why),
        fmt::format("at most --ranks {}; --oversubscribe starts them all the same", std::max<uint64_t>(1, most)));
  };
  if (room.threads && ranks * threads_per_rank > room.threads)
    refuse(fmt::format("each rank has at least {} threads, and this machine allows {} more ({})", threads_per_rank,
                       room.threads, room.limit),
           room.threads / threads_per_rank);
  if (room.memory && ranks * memory_per_rank > room.memory)
    refuse(
        fmt::format("each rank needs at least {}, whatever it trains, and there is memory of {}",
                    format_bytes(static_cast<double>(memory_per_rank)), format_bytes(static_cast<double>(room.memory))),
        room.memory / memory_per_rank);
  if (room.cores && ranks > room.cores * ranks_per_core)
    refuse(fmt::format("more than {} ranks on each of the {} cores", ranks_per_core, room.cores),
           room.cores * ranks_per_core);
}

}  // namespace eng
