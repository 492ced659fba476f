// SPDX-License-Identifier: Apache-2.0
// Starting ranks and how that can fail, as people see it.
#include "../cli/harness.hpp"

using namespace cli;

TEST_CASE("--ranks takes a number of processes", "[ranks]") {
  Scratch scratch;
  scratch.config();
  for (const char* bad : {"0", "-1", "many", "1e9"}) {
    const Result run = engine(scratch, {"run", "config.toml", "--ranks", bad});
    INFO(run.err);
    CHECK(run.exit == 2);
    CHECK(has(run.err, "--ranks"));
  }
  CHECK(names(scratch / "runs").empty());
}

TEST_CASE("more ranks than a machine has room for are refused before anything is started", "[ranks]") {
  Scratch scratch;
  scratch.config();
  Result run = engine(scratch, {"run", "config.toml", "--ranks", "65536"}, {.path = "/nowhere"});
  INFO(run.err);
  CHECK(run.exit == 2);
  CHECK(has(run.err, "error: --ranks 65536: "));
  CHECK(has(run.err, "nothing was started"));
  CHECK(has(run.err, "--oversubscribe"));
  // With --oversubscribe it gets as far as mpirun.
  run = engine(scratch, {"run", "config.toml", "--ranks", "65536", "--oversubscribe"}, {.path = "/nowhere"});
  CHECK(run.exit == 3);
  CHECK(has(run.err, "there is no mpirun on PATH"));
}

TEST_CASE("ranks take no configuration from a pipe", "[ranks]") {
  Scratch scratch;
  const Result run = engine(scratch, {"run", "/dev/stdin", "--ranks", "2"});
  INFO(run.err);
  CHECK(run.exit == 2);
  CHECK(has(run.err, "each rank reads it"));
}

TEST_CASE("one rank needs no mpirun", "[ranks]") {
  Scratch scratch;
  scratch.config();
  const Result run = engine(scratch, {"run", "config.toml", "--ranks", "1", "--out", "run"}, {.path = "/nowhere"});
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(Json::parse(read(scratch / "run" / "run.json")).at("ranks") == 1);
}

TEST_CASE("without Open MPI's mpirun: the package to install", "[ranks]") {
  Scratch scratch;
  scratch.config();
  Result run = engine(scratch, {"run", "config.toml", "--ranks", "2"}, {.path = "/nowhere"});
  CHECK(run.exit == 3);
  CHECK(has(run.err, "there is no mpirun on PATH"));
  CHECK(has(run.err, "openmpi-bin"));
  fs::create_directory(scratch / "bin");
  fs::permissions(scratch.write("bin/mpirun", "#!/bin/sh\necho HYDRA build details:\n"), fs::perms::owner_all);
  run = engine(scratch, {"run", "config.toml", "--ranks", "2"}, {.path = (scratch / "bin").string()});
  CHECK(run.exit == 3);
  CHECK(has(run.err, "bin/mpirun is not from Open MPI: it says HYDRA build details:"));
}

TEST_CASE("a mistake in the configuration is reported once, before anything is started", "[ranks]") {
  Scratch scratch;
  scratch.config();
  const Result run = engine(scratch, {"run", "config.toml", "--ranks", "3", "train.stepz=1"}, {.path = "/nowhere"});
  CHECK(run.exit == 2);
  CHECK(has(run.err, "did you mean `steps`?"));
  CHECK(run.err.find("nothing was started") == run.err.rfind("nothing was started"));
}

// With an mpirun that says so much, and then does `last`.
static Result with_mpirun(const Scratch& scratch, const std::string& last, Args more = {}) {
  scratch.config();
  fs::create_directory(scratch / "bin");
  fs::permissions(scratch.write("bin/mpirun",
                                "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'mpirun (Open MPI) 4.1.4'; exit 0; }\n"
                                "echo 'the machine room is closed' >&2; " +
                                    last + "\n"),
                  fs::perms::owner_all);
  more.insert(more.begin(), {"run", "config.toml", "--ranks", "2"});
  return engine(scratch, more, {.path = (scratch / "bin").string() + ":/bin"});
}

TEST_CASE("an mpirun that cannot start anything is quoted", "[ranks]") {
  Scratch scratch;
  const Result run = with_mpirun(scratch, "exit 5");
  INFO(run.err);
  CHECK(run.exit == 3);
  CHECK(has(run.err, "mpirun started no rank (it ended with 5)"));
  CHECK(has(run.err, "the machine room is closed"));
}

TEST_CASE("an mpirun that starts nothing, and does not end, is not waited for without end", "[ranks]") {
  Scratch scratch;
  const Result run = with_mpirun(scratch, "exec sleep 600", {"comm.timeout=1s"});
  INFO(run.err);
  CHECK(run.exit == 3);
  CHECK(has(run.err, "mpirun started no rank within 1 s, and was ended"));
  CHECK(has(run.err, "the machine room is closed"));
}

TEST_CASE("other launchers' ranks are refused with the line to type", "[ranks]") {
  Scratch scratch;
  scratch.config();
  Result run = engine(scratch, {"run", "config.toml", "train.steps=3"}, {.more = {"RANK=0", "WORLD_SIZE=4"}});
  INFO(run.err);
  CHECK(run.exit == 3);
  CHECK(has(run.err, "RANK and WORLD_SIZE announced 4 ranks, but the communicator sees 1"));
  CHECK(has(run.err, "mpirun -n 4 engine run config.toml train.steps=3"));
  run = engine(scratch, {"run", "config.toml"}, {.more = {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"}});
  CHECK(run.exit == 3);
  CHECK(has(run.err, "srun --mpi=pmix -n 2 engine run config.toml"));
  run = engine(scratch, {"run", "config.toml"}, {.more = {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2"}});
  CHECK(run.exit == 3);
  CHECK(run.err.empty());  // rank 0 has told it
  run = engine(scratch, {"run", "config.toml"}, {.more = {"SLURM_NTASKS=2"}});
  CHECK(run.exit == 3);
  CHECK(has(run.err, "Slurm gave this job 2 tasks"));
  run = engine(scratch, {"run", "config.toml", "--ranks", "2"},
               {.more = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"}});
  CHECK(run.exit == 2);
  CHECK(has(run.err, "--ranks starts ranks, but this process is already a rank (rank 1 of 2, started by mpirun)"));
  run = engine(scratch, {"run", "config.toml"}, {.more = {"ENGINE_LAUNCHED={\"mpirun\":1}"}});
  CHECK(run.exit == 3);
  CHECK(has(run.err, "unset ENGINE_LAUNCHED"));
  CHECK(names(scratch / "runs").empty());
}
