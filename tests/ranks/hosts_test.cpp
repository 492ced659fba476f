// SPDX-License-Identifier: Apache-2.0
// Runs on several hosts, each of which is a network namespace.
#include "hosts.hpp"

using namespace cli;

namespace {

// Eight steps of a llama, by four ranks on two hosts.
struct TwoHosts {
  Scratch scratch;
  Hosts hosts{scratch, 2};
  TwoHosts() {
    scratch.config();
    if (!hosts.why().empty()) WARN("skipped, there are no hosts here: " << hosts.why());
  }
  bool there() const { return hosts.why().empty(); }
  static Args words(const std::string& out, const Args& more) {
    Args all = {"run", "config.toml", "--out", out, "train.eval_every=0", "comm.timeout=10s"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Result run(const std::vector<int>& nodes, const Args& words) const {
    return engine(scratch, hosts.mpirun(nodes, words), Hosts::limits());
  }
  // All ranks of a host have ended.
  bool ended(int node, const std::string& out, double seconds) const {
    for (const auto begin = Clock::now(); !hosts.ranks_on(node, out).empty();) {
      if (seconds_since(begin) > seconds * patience) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  }
  std::string logs(const std::string& out, int rank) const {
    return read(scratch / out / "logs" / ("rank-0000" + std::to_string(rank) + ".log"));
  }
  // Trains until the cable of host 2 is taken out at step 4 or later. All ranks end.
  void cut(const std::string& out, const Args& more) {
    Args all = words(out, more);
    all.insert(all.end(), {"train.steps=100000", "checkpoint.every=100000", "checkpoint.memory_every=1"});
    Child child(scratch, hosts.mpirun({1, 2}, all), Hosts::limits());
    REQUIRE(child.wait_for("step 4/"));
    hosts.cable(2, false);
    const auto begin = Clock::now();
    for (const int node : {1, 2}) CHECK(ended(node, out, 25));
    CHECK(seconds_since(begin) > 5);  // it is the timeout that ended them
    for (int rank = 0; rank < 4; ++rank) {
      INFO("rank " << rank << ":\n" << logs(out, rank));
      CHECK(has(logs(out, rank), "error: "));
      CHECK((has(logs(out, rank), "has not answered") || has(logs(out, rank), "is gone") ||
             has(logs(out, rank), "no byte")));
    }
    hosts.end_processes();
    hosts.cable(2, true);
  }
};

int64_t resumed_from(const std::string& text) {
  const size_t at = text.find("resumes from step-");
  return at == text.npos ? -1 : std::stoll(text.substr(at + 18, 8));
}

}  // namespace

TEST_CASE("compositions on two hosts have the bits of one host", "[ranks][hosts][.slow]") {
  TwoHosts two;
  if (!two.there()) return;
  const std::vector<std::pair<std::string, Args>> all = {
      {"zero", {"zero.plugin=zero3"}},
      {"tensor", {"zero.plugin=zero2", "parallel.tensor=2"}},
      {"context", {"zero.plugin=zero1", "parallel.context=2"}},
      {"both", {"parallel.tensor=2", "parallel.context=2", "model.num_attention_heads=4"}},
      {"groups", {"zero.plugin=hpz", "zero.group=2"}}};
  for (const auto& [name, more] : all) {
    const Result there = two.run({1, 2}, two.words(name, more));
    INFO(name << "\n" << there.err);
    REQUIRE(there.exit == 0);
    CHECK(Json::parse(read(two.scratch / name / "run.json")).at("hosts") == Json({"node1", "node2"}));
    Args words = two.words(name + "-here", more);
    words.insert(words.end(), {"--ranks", "4"});
    good(two.scratch, words);
    CHECK(numbers(two.scratch / name) == numbers(two.scratch / (name + "-here")));
    good(two.scratch, {"ckpt", "diff", (two.scratch / name).string(), (two.scratch / (name + "-here")).string()});
  }
}

TEST_CASE("a cable that is taken out ends all ranks, and the run goes on from memory", "[ranks][hosts][.slow]") {
  TwoHosts two;
  if (!two.there()) return;
  const Args zero = {"zero.plugin=zero3", "parallel.tensor=2"};
  two.cut("run", zero);
  for (const int node : {1, 2}) CHECK(has(two.hosts.memory_of(node), "engine-copies-"));
  const Result on = two.run({1, 2}, {"run", "run", "train.steps=30"});
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(resumed_from(on.err) >= 3);
  CHECK(has(on.err, "was only in memory"));
  for (const int node : {1, 2}) CHECK_FALSE(has(two.hosts.memory_of(node), "engine-copies-"));
  Args words = two.words("whole", zero);
  words.insert(words.end(), {"train.steps=30", "--ranks", "4"});
  good(two.scratch, words);
  CHECK(column(two.scratch / "run", "loss") == column(two.scratch / "whole", "loss"));
  CHECK(column(two.scratch / "run", "grad_norm") == column(two.scratch / "whole", "grad_norm"));
  good(two.scratch, {"ckpt", "diff", (two.scratch / "run").string(), (two.scratch / "whole").string()});
}

TEST_CASE("a host that is lost with its memory has its parts on the other one", "[ranks][hosts][.slow]") {
  TwoHosts two;
  if (!two.there()) return;
  two.cut("run", {"zero.plugin=zero3", "train.accumulate=1"});
  two.hosts.forget(1);  // that of rank 0
  const Args fewer = {"train.global_batch=8", "--unset", "train.accumulate"};
  Args again = {"run", "run", "train.steps=30"};
  again.insert(again.end(), fewer.begin(), fewer.end());
  const Result on = two.run({2}, again);
  INFO(on.err);
  REQUIRE(on.exit == 0);
  const int64_t step = resumed_from(on.err);
  REQUIRE(step >= 3);
  // As from a checkpoint of that step.
  Args words = two.words("whole", {"zero.plugin=zero3", "train.accumulate=1", "train.steps=" + std::to_string(step)});
  words.insert(words.end(), {"--ranks", "4"});
  good(two.scratch, words);
  words = {"run", "whole", "train.steps=30", "--ranks", "2"};
  words.insert(words.end(), fewer.begin(), fewer.end());
  good(two.scratch, words);
  CHECK(column(two.scratch / "run", "loss") == column(two.scratch / "whole", "loss"));
  good(two.scratch, {"ckpt", "diff", (two.scratch / "run").string(), (two.scratch / "whole").string()});
}
