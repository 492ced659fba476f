// SPDX-License-Identifier: Apache-2.0
// Ranks under mpirun. Each scenario checks itself (rank_*.cpp); here is how the whole job ends.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct Job {
  int status = -1;
  std::string output;
  double seconds = 0;
};

Job run(int ranks, const std::string& scenario) {
  Job job;
  const std::string line = "timeout -k 5 60 " MPIRUN " --allow-run-as-root --oversubscribe --bind-to none -n " +
                           std::to_string(ranks) + " " + std::getenv("COMM_RANK") + " " + ENGINE_PLUGIN_DIR + " " +
                           scenario + " 2>&1";
  const auto start = std::chrono::steady_clock::now();
  FILE* pipe = popen(line.c_str(), "r");
  REQUIRE(pipe);
  char part[4096];
  while (size_t n = fread(part, 1, sizeof(part), pipe)) job.output.append(part, n);
  const int status = pclose(pipe);
  job.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  job.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return job;
}

void ends_well(int ranks, const std::string& scenario) {
  const Job job = run(ranks, scenario);
  INFO(ranks << " ranks, " << scenario << ", " << job.seconds << " s:\n" << job.output);
  CHECK(job.status == 0);
}

}  // namespace

TEST_CASE("every collective gives what it must, for 1 to 4 ranks") {
  for (int ranks = 1; ranks <= 4; ++ranks) ends_well(ranks, "right");
}

TEST_CASE("long transfers go in pieces") {
  ends_well(3, "pieces");
}

TEST_CASE("a wait ends at its deadline, and says who did not come") {
  ends_well(3, "late");
  ends_well(2, "elsewhere");
  ends_well(2, "executor_late");
}

TEST_CASE("a rank that gives up tells the others why") {
  ends_well(3, "aborts");
}

TEST_CASE("a rank that is killed ends the job") {
  const Job job = run(3, "killed");
  INFO(job.output);
  CHECK(job.status != 0);
  CHECK(job.seconds < 10);
  CHECK_THAT(job.output, Catch::Contains("signal 9"));
}

TEST_CASE("a rank that never starts is not waited for without end") {
  const Job job = run(2, "missing");
  INFO(job.output);
  CHECK(job.status == 8);
  CHECK(job.seconds < 10);
  CHECK_THAT(job.output, Catch::Contains("waited 1 s for all ranks to start"));
}
