// SPDX-License-Identifier: Apache-2.0
// Starts a program of ranks, and keeps how it ended.
#pragma once

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/sanitized.hpp"

namespace comm {

struct Job {
  int status = -1;
  std::string output;
  double seconds = 0;  // for the one who reads
};

// A line for the shell.
inline Job run_line(const std::string& line) {
  Job job;
  const auto start = std::chrono::steady_clock::now();
  FILE* pipe = popen(line.c_str(), "r");
  if (!pipe) throw std::runtime_error("no pipe");
  char part[4096];
  while (size_t n = fread(part, 1, sizeof(part), pipe)) job.output.append(part, n);
  const int status = pclose(pipe);
  job.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  job.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return job;
}

inline Job run(int ranks, const std::string& scenario, int seconds = 300, const std::string& flags = "") {
  return run_line("timeout -k 5 " + std::to_string(seconds * patience) +
                  " " MPIRUN " --allow-run-as-root --oversubscribe --bind-to none " + flags + " -n " +
                  std::to_string(ranks) + " " + std::getenv("COMM_RANK") + " " + ENGINE_PLUGIN_DIR + " " + scenario +
                  " 2>&1");
}

inline void ends_well(int ranks, const Job& job) {
  INFO(ranks << " ranks, " << job.seconds << " s:\n" << job.output);
  CHECK(job.status == 0);
}

// Something goes wrong, and every rank finds what it should, in time: each checks that itself.
inline void fails_well(int ranks, const Job& job) {
  INFO(ranks << " ranks, " << job.seconds << " s:\n" << job.output);
  CHECK(job.status == 8);
  for (int r = 0; r < ranks; ++r) CHECK_THAT(job.output, Catch::Contains("rank " + std::to_string(r) + " is right"));
}

}  // namespace comm
