// SPDX-License-Identifier: Apache-2.0
// nccl.eng.so as it ships, on a CUDA runtime and an NCCL in software (emulated): what tests/comm asks of a
// communicator, under mpirun and without it; and how ranks that go wrong end.
#include <future>
#include <vector>

#include "tests/cli/harness.hpp"
#include "tests/comm/job.hpp"
#include "tests/cuda/nccl/port.hpp"

using namespace comm;
using Catch::Contains;

namespace {

const std::string program() {
  return std::string(std::getenv("COMM_RANK")) + " " + ENGINE_PLUGIN_DIR + " ";
}

// One process for each rank, by hand; `words[r]` are its variables beside the address of rank 0. Ends with the largest
// code.
Job by_hand(const std::vector<std::string>& words, const std::string& what, const std::string& port = Port().text()) {
  std::string line = "exec 2>&1; export MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + "; ";
  const std::string limit = " timeout -k 5 " + std::to_string(120 * patience) + " ";
  for (const std::string& one : words) line += one + limit + what + " & p=\"$p $!\"; ";
  return run_line(line + "m=0; for i in $p; do wait $i; c=$?; [ $c -le $m ] || m=$c; done; exit $m");
}
std::vector<std::string> numbered(int ranks, const std::string& more = "") {
  std::vector<std::string> out;
  for (int r = 0; r < ranks; ++r)
    out.push_back("RANK=" + std::to_string(r) + " WORLD_SIZE=" + std::to_string(ranks) +
                  " LOCAL_RANK=" + std::to_string(r) + " " + more);
  return out;
}
Job mpirun(int ranks, const std::string& scenario, const std::string& more = "") {
  return run(ranks, scenario, 300, "-x MASTER_PORT=" + Port().text() + " " + more);
}

void says(const Job& job, int status, const std::string& text) {
  INFO(job.output);
  CHECK(job.status == status);
  CHECK_THAT(job.output, Contains(text));
}

}  // namespace

TEST_CASE("emulated nccl: every collective gives what it must, for 1 to 4 ranks of any launcher") {
  for (int ranks = 1; ranks <= 4; ++ranks) ends_well(ranks, mpirun(ranks, "right"));
  ends_well(3, by_hand(numbered(3), program() + "right"));
}

TEST_CASE("emulated nccl: collectives can be captured in graphs") {
  ends_well(2, by_hand(numbered(2, "RANK_CAPTURES=1"), program() + "right"));
}

TEST_CASE("emulated nccl: streams in other orders give the same") {
  for (const char* seed : {"2", "3"})
    ends_well(2, by_hand(numbered(2, "SOFTCUDA_SEED=" + std::string(seed)), program() + "right"));
}

TEST_CASE("emulated nccl: ranks that go wrong are named, in time", "[.slow]") {
  const auto start = [](int ranks, const char* scenario, const char* more = "") {
    return std::async(std::launch::async, [=] { return mpirun(ranks, scenario, more); });
  };
  auto late = start(3, "late"), killed = start(2, "killed"), missing = start(2, "missing");
  fails_well(3, late.get());
  const Job kill = killed.get();
  INFO(kill.output);
  CHECK(kill.status == 128 + 9);
  says(missing.get(), 8, "waited 5 s for all ranks to start: rank 1 has not come to rank 0 at 127.0.0.1:");
}

TEST_CASE("emulated nccl: one that gives up tells the others, and NCCL's waits end") {
  // Under mpirun the first that ends takes the others with it.
  auto aborts = std::async(std::launch::async, [] { return by_hand(numbered(3), program() + "aborts"); });
  auto leaves = std::async(std::launch::async, [] { return by_hand(numbered(2), program() + "leaves"); });
  auto vanishes = std::async(std::launch::async, [] { return by_hand(numbered(3), program() + "vanishes"); });
  auto elsewhere = std::async(std::launch::async, [] { return by_hand(numbered(2), program() + "elsewhere"); });
  fails_well(3, aborts.get());
  fails_well(2, leaves.get());
  fails_well(2, elsewhere.get());  // what NCCL itself would not notice
  const Job vanish = vanishes.get();
  INFO(vanish.output);
  for (const char* r : {"0", "1", "2"}) CHECK_THAT(vanish.output, Contains("rank " + std::string(r) + " is right"));
}

TEST_CASE("emulated nccl: an error that NCCL finds later names the collective, on every rank") {
  auto words = numbered(2);
  words[1] += "SOFTNCCL_FAIL=5";
  const Job job = by_hand(words, program() + "right");
  const std::string text =
      "of group 1 (ranks 0, 1): NCCL reports: remote process exited or there was a network error (an error that the "
      "test wanted)";
  says(job, 1, text);
  INFO(job.output);
  CHECK_THAT(job.output, Contains("rank 1: eng."));  // what rank 0 was told
}

TEST_CASE("emulated nccl: ranks that cannot meet say why") {
  struct Case {
    std::vector<std::string> words;
    std::string text, port = Port().text();
  };
  const Port taken(true);
  const std::vector<Case> cases = {
      {{"RANK=0 WORLD_SIZE=2"},
       "rank 0 cannot listen at 127.0.0.1:" + taken.text() + ": Address already in use; another run or program has",
       taken.text()},
      {{"RANK=0 WORLD_SIZE=3"}, "waited 5 s for all ranks to start: ranks 1, 2 have not come to rank 0 at 127.0.0.1:"},
      {{"RANK=2 WORLD_SIZE=3"}, "tried for 5 s to reach rank 0 at 127.0.0.1:"},
      {{"RANK=0 WORLD_SIZE=3", "RANK=2 WORLD_SIZE=3", "RANK=2 WORLD_SIZE=3"},
       "was started as rank 2, but that is process "},
      {{"RANK=0 WORLD_SIZE=2", "RANK=2 WORLD_SIZE=3"}, "was started as rank 2 of 3, but rank 0 as one of 2"},
      {{"MASTER_ADDR=192.0.2.1 RANK=0 WORLD_SIZE=2"}, "which does not have this address"},
      {{"MASTER_ADDR=no.such.host.invalid RANK=2 WORLD_SIZE=3"},
       "the address of rank 0 is no.such.host.invalid, which is not known here"},
  };
  std::vector<std::future<Job>> jobs;  // they mostly wait
  for (const Case& c : cases)
    jobs.push_back(std::async(std::launch::async, [&c] {
      return by_hand(c.words, program() + "missing", c.port);  // the scenario whose timeout is 5 s
    }));
  for (size_t k = 0; k < cases.size(); ++k) says(jobs[k].get(), 8, cases[k].text);
}

TEST_CASE("emulated nccl: a wrong local rank is named") {
  auto same = std::async(std::launch::async, [] {
    return by_hand({"RANK=0 WORLD_SIZE=2 LOCAL_RANK=1", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1"}, program() + "right");
  });
  auto much = std::async(std::launch::async, [] {
    return by_hand({"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1"}, program() + "right");
  });
  says(same.get(), 8, "rank 1 has the local rank 1 on ");
  says(much.get(), 8, "rank 0 has the local rank 2, but ");
}

TEST_CASE("emulated nccl: ranks that each see one GPU take that") {
  auto words = numbered(3);
  for (int r = 0; r < 3; ++r) words[r] += "CUDA_VISIBLE_DEVICES=" + std::to_string(7 - r);
  ends_well(3, by_hand(words, program() + "right"));
}

TEST_CASE("emulated nccl: too few GPUs, or one for two ranks, are refused by all ranks") {
  struct Case {
    std::vector<std::string> words;
    std::string text;
  };
  auto three = numbered(3, "CUDA_VISIBLE_DEVICES=");
  three[0] += "0,1,2", three[1] += "4", three[2] += "1,3,4";
  const std::string change = "): each rank needs one of its own. Start fewer ranks on this machine, or let each rank";
  const std::vector<Case> cases = {
      {numbered(2, "SOFTCUDA_DEVICES=1"), ": local rank 1 needs GPU number 1 (from 0), but 1 is visible"},
      {numbered(2, "SOFTCUDA_DEVICES=1 CUDA_VISIBLE_DEVICES=0"),
       "have the same GPU (software CUDA runtime (CPU), as H200, GPU-736f6674-7761-7265-2063-617264000000, "
       "PCI 0000:01:00.0" +
           change},
      {three, "ranks 1, 2 on "},
      {three, "GPU-736f6674-7761-7265-2063-617264000004, PCI 0000:05:00.0" + change},
      {numbered(3, "CUDA_VISIBLE_DEVICES=0,3"), ": local rank 2 needs GPU number 2 (from 0), but 2 are visible"},
  };
  std::vector<std::future<Job>> jobs;
  for (const Case& c : cases)
    jobs.push_back(std::async(std::launch::async, [&c] { return by_hand(c.words, program() + "right"); }));
  for (size_t k = 0; k < cases.size(); ++k) {
    const Job job = jobs[k].get();
    says(job, 3, cases[k].text);
    size_t ranks = 0;
    for (size_t at = 0; (at = job.output.find(cases[k].text, at)) != std::string::npos; ++at) ++ranks;
    CHECK(ranks == cases[k].words.size());
  }
}

TEST_CASE("emulated nccl: ranks may have the same GPU if they are told so, and NCCL is new enough and told, too") {
  const std::string one = "RANK_SHARES=1 CUDA_VISIBLE_DEVICES=3 ", now = one + "SOFTNCCL_VERSION=23007 ";
  auto shares = std::async(std::launch::async, [&] {
    return by_hand(numbered(2, now + "NCCL_MULTI_RANK_GPU_ENABLE=1"), program() + "right");
  });
  auto graphs = std::async(std::launch::async, [&] {
    return by_hand(numbered(2, now + "NCCL_MULTI_RANK_GPU_ENABLE=1 RANK_CAPTURES=1"), program() + "right");
  });
  auto old = std::async(std::launch::async, [&] { return by_hand(numbered(2, one), program() + "right"); });
  auto silent = std::async(std::launch::async, [&] { return by_hand(numbered(2, now), program() + "right"); });
  ends_well(2, shares.get());
  ends_well(2, graphs.get());
  says(old.get(), 3, "PCI 0000:04:00.0): [comm] share_gpus needs NCCL 2.30, and this is 2.28");
  says(silent.get(), 8,
       "invalid usage (Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE");
}

TEST_CASE("emulated nccl: the command takes ranks from RANK and WORLD_SIZE, and rank 0's address from MASTER_ADDR") {
  const cli::Scratch scratch;
  scratch.config();
  const std::string run = "sh -c 'cd " + scratch.path().string() + " && exec " + ENGINE_COMMAND +
                          " run config.toml comm.plugin=nccl comm.timeout=5s";
  const std::string port = Port().text();
  says(by_hand({"RANK=0 WORLD_SIZE=2"}, run + "'", port), 8,
       "waited 5 s for all ranks to start: rank 1 has not come to rank 0 at 127.0.0.1:" + port);
  says(by_hand({"RANK=0 WORLD_SIZE=2 MASTER_PORT=x"}, run + "'"), 2, "MASTER_PORT = x is not a port");
  // They meet, and agree; then it is seen that memory of the host is not for NCCL.
  says(by_hand(numbered(2), run + "'"), 3, "NCCL moves memory of GPUs: [comm] plugin = \"nccl\" needs [device]");
  says(by_hand(numbered(2), run + " train.micro_batch=$((2 + RANK))'"), 2,
       "the ranks do not have the same configuration: rank 1 has train.micro_batch = 3, rank 0 has");
}
