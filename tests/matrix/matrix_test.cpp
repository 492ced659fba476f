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

namespace {

struct Job {
  int status = -1;
  std::string output;
};

Job run(const std::string& command) {
  Job job;
  FILE* pipe = popen(("timeout -k 5 900 " + command + " 2>&1").c_str(), "r");
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
  const auto compared = [](const std::string& last) {
    const Scratch results;
    const std::string end = " losses=1 norms=2 state=3 gathered=1.0000 reduced=2.0000 curve=4.5,4.25\n";
    std::ofstream(results.path)
        << "world=2 model=opt reduce=micro_batch zero=none bucket=1MiB prefetch=0 overlap=on" + end
        << "world=2 model=opt reduce=micro_batch zero=zero2 bucket=1MiB prefetch=0 overlap=on" + end
        << "world=3 model=opt reduce=micro_batch zero=zero1 bucket=1MiB prefetch=0 overlap=on" + end << last;
    return run(tool + " compare " + results.path).output;
  };
  using Catch::Contains;
  const std::string on3 = "world=3 model=opt reduce=micro_batch zero=", bucket = " bucket=1MiB prefetch=0 overlap=on";
  const std::string right = on3 + "zero2" + bucket + " losses=1 norms=2 state=3 gathered=1.0000 reduced=2.0000";
  CHECK_THAT(compared(right + " curve=4.5,4.25\n"), Contains("4 passed, 0 failed"));
  CHECK_THAT(compared(right + " curve=4.50004,4.25\n"), Contains("4 passed, 0 failed"));
  CHECK_THAT(compared(right + " curve=4.5,4.2501\n"), Contains("step 2: loss 4.2501 is not within 1e-5 of 4.25"));
  CHECK_THAT(compared(right + " curve=4.5,nan\n"), Contains("step 2: loss nan is not within"));
  CHECK_THAT(
      compared(on3 + "zero2" + bucket + " losses=1 norms=2 state=4 gathered=1.0000 reduced=2.0000 curve=4.5,4.25\n"),
      Contains("state differ from world=3") && Contains("3 passed, 1 failed"));
  CHECK_THAT(
      compared(on3 + "zero2" + bucket + " losses=1 norms=2 state=3 gathered=1.0000 reduced=2.5000 curve=4.5,4.25\n"),
      Contains("reduces 2.5000 of all elements, not 1 and 2"));
  CHECK_THAT(compared(""), Contains("has no other cell to be compared with"));
}

TEST_CASE("the matrix of CI: settings, worlds and models", "[.slow]") {
  const Job job = matrix(listed);
  INFO(job.output);
  CHECK(job.status == 0);
}
