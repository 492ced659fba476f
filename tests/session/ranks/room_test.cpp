// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/room.hpp"

#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "tests/cli/harness.hpp"

using namespace eng;
using cli::has;

namespace {

// The text of the refusal; "" if there is room.
std::string refused(uint32_t ranks, const Room& room) {
  try {
    check_room(ranks, room);
    return "";
  } catch (const Error& e) {
    CHECK(e.exit() == Exit::usage);
    CHECK(has(e.help(), "--oversubscribe"));
    return std::string(e.what()) + "\n" + e.help();
  }
}

}  // namespace

TEST_CASE("room: each limit is named, with the largest number that it allows", "[ranks]") {
  const Room wide{100000, "kernel.pid_max = 100500", uint64_t{1} << 40, 64};
  CHECK(refused(1024, wide).empty());
  const std::string cores = refused(1025, wide);
  CHECK(has(cores, "--ranks 1025: more than 16 ranks on each of the 64 cores; nothing was started"));
  CHECK(has(cores, "at most --ranks 1024;"));
  Room room = wide;
  room.threads = 80, room.limit = "pids.max of the control group = 100";
  CHECK(refused(10, room).empty());
  const std::string threads = refused(11, room);
  CHECK(has(threads,
            "each rank has at least 8 threads, and this machine allows 80 more (pids.max of the control group "
            "= 100)"));
  CHECK(has(threads, "at most --ranks 10;"));
  room = wide;
  room.memory = uint64_t{1} << 30;
  CHECK(refused(64, room).empty());
  const std::string memory = refused(65, room);
  CHECK(has(memory, "each rank needs at least 16.0 MiB, whatever it trains, and there is memory of 1.0 GiB"));
  CHECK(has(memory, "at most --ranks 64;"));
  CHECK(refused(65536, Room{}).empty());  // nothing is known
}

TEST_CASE("room: this machine has some, but not for 65536 ranks", "[ranks]") {
  const Room here = room_here();
  CHECK(here.threads > 0);
  CHECK_FALSE(here.limit.empty());
  CHECK(here.memory > memory_per_rank);
  CHECK(here.cores >= 1);
  CHECK(refused(1, here).empty());
  if (here.cores < 4096) CHECK_FALSE(refused(65536, here).empty());
}
