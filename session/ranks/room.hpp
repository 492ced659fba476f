// SPDX-License-Identifier: Apache-2.0
// The number of ranks that a machine has room for, before any is started.
#pragma once

#include <cstdint>
#include <string>

namespace eng {

// The resources that this process may still use. 0: no limit is known.
struct Room {
  uint64_t threads = 0;  // of all processes that it may start
  std::string limit;     // what allows no more threads: "pids.max of the control group"
  uint64_t memory = 0;   // bytes
  uint64_t cores = 0;    // physical cores
  // The limit behind `memory`, if that is less than the machine has: "memory.max of the control group".
  std::string group = {};
};

// The least needs of a rank, whatever it trains. The plan, which says what it needs in all, is checked by the ranks.
constexpr uint64_t threads_per_rank = 8, memory_per_rank = uint64_t{16} << 20;
// More ranks than that take turns and do nothing else.
constexpr uint64_t ranks_per_core = 16;

Room room_here();
// Throws Error(Exit::usage) that names the limit and the flag --oversubscribe, if there is no room for so many ranks.
void check_room(uint32_t ranks, const Room& room);

}  // namespace eng
