// SPDX-License-Identifier: Apache-2.0
// The variables that launchers set in the environment, and the errors if they are inconsistent.
#include <catch2/catch.hpp>
#include <map>

#include "core/base/error.hpp"
#include "session/ranks/common_error.hpp"
#include "session/ranks/ranks.hpp"
#include "tests/cli/harness.hpp"
#include "tests/session/report/planned.hpp"

using namespace eng;
using cli::has;

namespace {

Variable table(const std::map<std::string, std::string>& values) {
  return [values](const char* name) -> const char* {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : it->second.c_str();
  };
}

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error");
  throw std::logic_error("unreachable");
}

}  // namespace

TEST_CASE("ranks as launchers announce them", "[ranks]") {
  struct Case {
    std::map<std::string, std::string> values;
    uint32_t rank, size;
    std::string by;
    bool joined;
  };
  const std::vector<Case> cases = {
      {{}, 0, 1, "", false},
      {{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "2"}}, 2, 4, "mpirun", true},
      {{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMIX_RANK", "1"}}, 1, 2, "srun", true},
      {{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}, 1, 2, "srun", false},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}, 1, 3, "an MPI that is not Open MPI", false},
      {{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "3"}}, 3, 4, "RANK and WORLD_SIZE", false},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 0, 1, "RANK and WORLD_SIZE", false},
      // Half of a pair, or a value that is not a number, announces nothing.
      {{{"WORLD_SIZE", "4"}}, 0, 1, "", false},
      {{{"RANK", "x"}, {"WORLD_SIZE", "4"}}, 0, 1, "", false},
      {{{"RANK", "4"}, {"WORLD_SIZE", "4"}}, 0, 1, "", false},
      // A batch script without srun, and an mpirun that is itself a step of one task.
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, 0, 1, "", false},
      {{{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"SLURM_PROCID", "0"},
        {"SLURM_STEP_NUM_TASKS", "2"}},
       1,
       4,
       "mpirun",
       true},
      // Two that agree; many processes that are each an mpirun of their own.
      {{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}},
       1,
       2,
       "mpirun",
       true},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}},
       1,
       2,
       "RANK and WORLD_SIZE",
       false},
  };
  for (const Case& c : cases) {
    const Announced a = Announced::read(table(c.values));
    INFO(c.by << " " << c.rank << " of " << c.size);
    CHECK(a.rank == c.rank);
    CHECK(a.size == c.size);
    CHECK(a.by == c.by);
    CHECK(a.joined == c.joined);
  }
}

TEST_CASE("the number of a rank on its machine, where the launcher announces it", "[ranks]") {
  const auto local = [](const std::map<std::string, std::string>& values) {
    return Announced::read(table(values)).local_rank;
  };
  CHECK(local({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}}) == 1u);
  CHECK(local({{"RANK", "3"}, {"WORLD_SIZE", "4"}}) == std::nullopt);
  CHECK(local({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}}) == 0u);
  // The answer is that of the launcher that is believed, not of another one.
  CHECK(local({{"OMPI_COMM_WORLD_RANK", "1"},
               {"OMPI_COMM_WORLD_SIZE", "2"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
               {"LOCAL_RANK", "7"}}) == 1u);
}

TEST_CASE("two launchers that contradict each other are both named", "[ranks]") {
  const Error e = error_of([] {
    Announced::read(
        table({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "8"}}));
  });
  CHECK(e.exit() == Exit::environment);
  CHECK(has(e.what(), "mpirun says that this is rank 1 of 2"));
  CHECK(has(e.what(), "WORLD_SIZE (= 8)"));
}

TEST_CASE("more ranks announced than there are: the line to type", "[ranks]") {
  const Announced torchrun{3, 4, "RANK and WORLD_SIZE", false};
  const Error e = error_of([&] { check_announced(torchrun, 1, "run 'my config.toml' train.steps=3"); });
  CHECK(e.exit() == Exit::environment);
  CHECK(has(e.what(), "RANK and WORLD_SIZE announced 4 ranks, but the communicator sees 1"));
  CHECK(has(e.help(), "mpirun -n 4 engine run 'my config.toml' train.steps=3"));
  check_announced({1, 2, "mpirun", true}, 2, "run x");

  // Slurm starts all of them, so that one can speak for all; of other launchers that is not known.
  const Error srun = error_of([&] { check_announced({1, 2, "srun", false}, 1, "run x"); });
  CHECK(has(srun.help(), "srun --mpi=pmix -n 2 engine run x"));
  CHECK_FALSE(has(srun.help(), "mpirun"));
  CHECK_THROWS_AS(check_announced({1, 2, "srun", false}, 1, "run x"), CommonError);
  const auto other = [&] { check_announced(torchrun, 1, "run x"); };
  CHECK_THROWS_AS(other(), Error);
  try {
    other();
  } catch (const CommonError&) {
    FAIL("one of many that is alone must speak");
  } catch (const Error&) {
  }
}

TEST_CASE("a Slurm job of many tasks that nobody started", "[ranks]") {
  const Error e = error_of([] { check_alone(table({{"SLURM_NTASKS", "8"}}), "run x.toml"); });
  CHECK(e.exit() == Exit::environment);
  CHECK(has(e.help(), "srun --mpi=pmix -n 8 engine run x.toml"));
  check_alone(table({}), "run x.toml");
  check_alone(table({{"SLURM_NTASKS", "1"}}), "run x.toml");
  check_alone(table({{"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "1"}}), "run x.toml");
}

TEST_CASE("ranks share the processors they have in common", "[ranks]") {
  const std::string a = "host 0:0 0:1 0:2 0:3", b = "host 0:4 0:5", other = "host2 0:0 0:1 0:2 0:3";
  CHECK(threads_of(a, {a, a, other}) == 2);
  CHECK(threads_of(other, {a, a, other}) == 4);
  CHECK(threads_of(b, {a, a, b}) == 2);  // bound to its own
  CHECK(threads_of(b, {b, b, b, b}) == 1);
  CHECK(processors().find(' ') != std::string::npos);
  Config config = planned::config_of("tiny", "none", {"device.threads=3"});
  share_threads(config, a, {a, a});
  CHECK(config.section("device").integer("threads") == 3);  // given
  CHECK(config.section("host").integer("threads") == 2);
}

TEST_CASE("words as a shell reads them", "[ranks]") {
  CHECK(shell_word("train.steps=3") == "train.steps=3");
  CHECK(shell_word("a b") == "'a b'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("") == "''");
  CHECK(command_words({"run", "a b", "x=1"}) == "run 'a b' x=1");
}
