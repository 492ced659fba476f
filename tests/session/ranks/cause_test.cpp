// SPDX-License-Identifier: Apache-2.0
// Chooses the message that is reported, of all messages of ranks and mpirun at the end.
#include <catch2/catch.hpp>

#include "session/ranks/cause.hpp"
#include "tests/cli/harness.hpp"

using namespace eng;
using cli::has;

namespace {

RankStory well(int end) {
  RankStory story;
  story.pid = 100;
  story.connected = story.gone = true;
  story.end = end;
  return story;
}

RankStory failed(int exit, double when, const std::string& text) {
  RankStory story = well(0);
  story.end.reset();
  story.error = exit;
  story.when = when;
  story.text = text;
  return story;
}

RankStory gone(const std::string& last) {
  RankStory story = well(0);
  story.end.reset();
  story.last = last;
  return story;
}

// As Open MPI 4.1.4 says it.
const std::string killed =
    "--------------------------------------------------------------------------\n"
    "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n"
    "--------------------------------------------------------------------------\n";

}  // namespace

TEST_CASE("a rank's own failure takes precedence over what the others noticed", "[ranks]") {
  const Cause cause = cause_of(
      {{0, failed(8, 1.0, "rank 1 is gone")}, {1, failed(10, 2.0, "disk full")}, {2, gone("")}}, 3, "", 8, false);
  CHECK(cause.exit == 10);
  CHECK(cause.text == "rank 1: disk full");
}

TEST_CASE("the earliest of several", "[ranks]") {
  CHECK(cause_of({{0, failed(7, 2.0, "b")}, {1, failed(10, 1.0, "a")}}, 2, "", 8, false).text == "rank 1: a");
  CHECK(cause_of({{0, failed(8, 2.0, "b")}, {1, failed(8, 1.0, "a")}}, 2, "", 8, false).text == "rank 1: a");
}

TEST_CASE("an error of all ranks is reported once, without a rank", "[ranks]") {
  CHECK(cause_of({{0, failed(2, 1.0, "no such key")}, {1, failed(2, 1.1, "no such key")}}, 2, "", 2, false).text ==
        "no such key");
  CHECK(cause_of({{0, failed(2, 1.0, "x")}, {1, failed(2, 1.1, "x")}, {2, gone("")}}, 3, "", 2, false).text ==
        "ranks 0, 1: x");
}

TEST_CASE("a rank that was killed", "[ranks]") {
  const std::map<uint32_t, RankStory> ranks = {{0, failed(8, 1.0, "rank 1 is gone")}, {1, gone("terminate called")}};
  Cause cause = cause_of(ranks, 2, killed, 137, false);
  CHECK(cause.exit == 8);
  CHECK(cause.text == "rank 1 (process 100 on vm) was killed by signal 9 (SIGKILL)\n  its last line: terminate called");
  cause = cause_of(ranks, 2, killed, 137, true);
  CHECK(cause.exit == 6);
  CHECK(has(cause.help, "memory ran out"));
  // mpirun's own signal to a rank that had failed before is not the cause.
  CHECK(cause_of({{0, gone("")}, {1, failed(10, 1.0, "disk full")}}, 2, killed, 137, false).exit == 10);
}

TEST_CASE("ranks that say nothing, and an mpirun that starts none", "[ranks]") {
  Cause cause = cause_of({{0, well(0)}, {1, gone("")}}, 2, "mpirun detected", 1, false);
  CHECK(cause.exit == 8);
  CHECK(has(cause.text, "rank 1 ended without an error message (mpirun ended with 1)"));
  CHECK(cause.help == "mpirun detected");
  cause = cause_of({{0, gone("")}, {1, gone("")}}, 2, "", 137, false);
  CHECK(cause.exit == 8);
  CHECK(cause.text == "mpirun was killed by signal 9, and the ranks with it");
  cause = cause_of({}, 2, "There are not enough slots", 1, false);
  CHECK(cause.exit == 3);
  CHECK(has(cause.help, "not enough slots"));
}
