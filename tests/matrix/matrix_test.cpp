// SPDX-License-Identifier: Apache-2.0
// The bitwise matrix on real ranks: few cells in the fast suite, the list of CI in the slow one, and a planted fault.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/sanitized.hpp"

namespace {

struct Job {
  int status = -1;
  std::string output;
};

Job run(const std::string& command) {
  Job job;
  FILE* pipe = popen(("timeout -k 5 " + std::to_string(900 * patience) + " " + command + " 2>&1").c_str(), "r");
  REQUIRE(pipe);
  char part[4096];
  while (size_t n = fread(part, 1, sizeof(part), pipe)) job.output.append(part, n);
  const int status = pclose(pipe);
  job.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return job;
}

const std::string tool = std::string("python3 ") + ENGINE_SOURCE_DIR + "/tools/matrix";
const std::string listed = std::string(ENGINE_SOURCE_DIR) + "/tests/matrix/cells.txt";

// A file with a name of its own, gone afterwards.
struct Scratch {
  std::string path;
  Scratch() {
    char name[] = "/tmp/engine-matrix-XXXXXX";
    const int file = mkstemp(name);
    REQUIRE(file >= 0);
    close(file);
    path = name;
  }
  ~Scratch() { std::filesystem::remove(path); }
};

Job matrix(const std::string& cells, const std::string& more = "") {
  const Scratch results;
  const std::string build = std::filesystem::path(ENGINE_PLUGIN_DIR).parent_path();
  return run(tool + " run --cells " + cells + " --results " + results.path + " " + more + " " + build);
}

Job few(const std::string& cells, const std::string& more = "") {
  const Scratch list;
  std::ofstream(list.path) << cells;
  return matrix(list.path, more);
}

const std::string some =
    "world=2 model=llama_tied reduce=micro_batch zero=none bucket=unlimited prefetch=0 overlap=off\n"
    "world=2 model=llama_tied reduce=micro_batch zero=zero2 bucket=1MiB prefetch=0 overlap=on\n"
    "world=2 model=llama_tied reduce=micro_batch zero=zero3 bucket=1MiB prefetch=1 overlap=on\n";

}  // namespace

TEST_CASE("the list of cells is the one that the tool makes") {
  std::stringstream file;
  file << std::ifstream(listed).rdbuf();
  const Job job = run(tool + " list");
  CHECK(job.status == 0);
  CHECK(job.output == file.str());
}

TEST_CASE("stages give the same bits on two ranks") {
  const Job job = few(some);
  INFO(job.output);
  CHECK(job.status == 0);
  CHECK_THAT(job.output, Catch::Contains("3 passed, 0 failed, 0 skipped"));
}

TEST_CASE("a piece that is reduced twice is seen") {
  const Job job = few(some, "--fault");
  INFO(job.output);
  CHECK(job.status == 1);
  CHECK_THAT(
      job.output,
      Catch::Contains(
          "zero=zero2 bucket=1MiB prefetch=0 overlap=on recompute=none offload=none\n    losses differ from world=2"));
  CHECK_THAT(job.output, Catch::Contains("2 passed, 1 failed, 0 skipped"));
}

TEST_CASE("the comparison tells apart what must be equal") {
  const auto compared = [](const std::string& model, const std::string& last) {
    const Scratch results;
    const std::string end = " losses=1 norms=2 state=3 gathered=1.0000 reduced=2.0000 curve=4.5,4.25,4,4,4,4,4,4,4\n",
                      on2 = "world=2 model=" + model, on3 = "world=3 model=" + model;
    const std::string bucket = " bucket=1MiB prefetch=0 overlap=on";
    std::ofstream(results.path) << on2 + " reduce=micro_batch zero=none" + bucket + end
                                << on2 + " reduce=micro_batch zero=zero2" + bucket + end
                                << on3 + " reduce=micro_batch zero=zero1" + bucket + end;
    if (!last.empty())
      std::ofstream(results.path, std::ios::app) << on3 + " reduce=micro_batch zero=zero2" + bucket + last + "\n";
    return run(tool + " compare " + results.path).output;
  };
  using Catch::Contains;
  const std::string right = " losses=1 norms=2 state=3 gathered=1.0000 reduced=2.0000 curve=";
  CHECK_THAT(compared("llama", right + "4.5,4.25"), Contains("4 passed, 0 failed"));
  CHECK_THAT(compared("llama", right + "4.500004,4.25"), Contains("4 passed, 0 failed"));
  CHECK_THAT(compared("llama", right + "4.5,4.25001"), Contains("step 2: loss 4.25001 is not within 1e-6 of 4.25"));
  CHECK_THAT(compared("llama", right + "4.5,nan"), Contains("step 2: loss nan is not within"));
  CHECK_THAT(compared("opt", right + "4.50004,4.25,4,4,4,4,4,4,4.0003"), Contains("4 passed, 0 failed"));
  CHECK_THAT(compared("opt", right + "4.5,4.2501"), Contains("step 2: loss 4.2501 is not within 1e-5 of 4.25"));
  CHECK_THAT(compared("opt", right + "4.5,4.25,4,4,4,4,4,4,4.0005"),
             Contains("step 9: loss 4.0005 is not within 1e-4"));
  CHECK_THAT(compared("llama", " losses=1 norms=2 state=4 gathered=1.0000 reduced=2.0000 curve=4.5,4.25"),
             Contains("state differ from world=3") && Contains("3 passed, 1 failed"));
  CHECK_THAT(compared("llama", " losses=1 norms=2 state=3 gathered=1.0000 reduced=2.5000 curve=4.5,4.25"),
             Contains("reduces 2.5000 of all elements, not 1 and 2"));
  CHECK_THAT(compared("llama", ""), Contains("has no other cell to be compared with"));
}

TEST_CASE("hashes that moved are seen beside the record") {
  const auto line = [](const std::string& isa, int world, const std::string& state) {
    return "world=" + std::to_string(world) +
           " model=llama reduce=micro_batch zero=none bucket=1MiB prefetch=0 overlap=on isa=" + isa +
           " losses=1 norms=2 state=" + state + " gathered=0 reduced=0 curve=4.5\n";
  };
  const Scratch old, now, record;
  std::ofstream(old.path) << line("avx2", 1, "3");
  CHECK(run(tool + " keep " + old.path + " " + record.path).status == 0);
  using Catch::Contains;
  std::ofstream(now.path) << line("avx2", 1, "3");
  CHECK_THAT(run(tool + " compare --record " + record.path + " " + now.path).output,
             Contains("1 of 1 groups with isa avx2 compared") && Contains("1 passed, 0 failed"));
  std::ofstream(now.path) << line("avx512", 1, "4");
  CHECK_THAT(run(tool + " compare --record " + record.path + " " + now.path).output,
             Contains("0 of 1 groups with isa avx512 compared") && Contains("1 passed, 0 failed"));
  std::ofstream(now.path) << line("avx2", 1, "4");
  CHECK_THAT(run(tool + " compare --record " + record.path + " " + now.path).output,
             Contains("state moved since commit ") && Contains("0 passed, 1 failed"));
  // Other groups of the record stay when some are kept anew.
  std::ofstream(now.path) << line("avx512", 1, "4");
  CHECK(run(tool + " keep " + now.path + " " + record.path).status == 0);
  std::stringstream file;
  file << std::ifstream(record.path).rdbuf();
  CHECK_THAT(file.str(), Contains("isa=avx2 world=1") && Contains("isa=avx512 world=1"));
}

TEST_CASE("the matrix of CI: settings, worlds and models", "[.slow]") {
  // On a processor of the record, the numbers are those that were recorded.
  const Job job = matrix(listed, std::string("--record ") + ENGINE_SOURCE_DIR + "/benchmarks/results/matrix.txt");
  INFO(job.output);
  CHECK(job.status == 0);
}
