// SPDX-License-Identifier: Apache-2.0
// Runs on several hosts, each of which is a network namespace.
#include "hosts.hpp"

using namespace cli;

namespace {

// Eight steps of a llama, by two ranks on each of some hosts.
struct SomeHosts {
  Scratch scratch;
  Hosts hosts;
  std::vector<int> all;
  explicit SomeHosts(int count) : hosts(scratch, count) {
    scratch.config();
    for (int k = 1; k <= count; ++k) all.push_back(k);
    if (!hosts.why().empty()) WARN("skipped, there are no hosts here: " << hosts.why());
  }
  bool there() const { return hosts.why().empty(); }
  static Args words(const std::string& out, const Args& more, const std::string& timeout = "10s") {
    Args all = {"run", "config.toml", "--out", out, "train.eval_every=0", "comm.timeout=" + timeout};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Result run(const std::vector<int>& nodes, const Args& words) const {
    return engine(scratch, hosts.mpirun(nodes, words), Hosts::limits());
  }
  // A run on all hosts has the bits of one on a single host.
  void same_as_here(const std::string& name, const Args& more) const {
    const Result there = run(all, words(name, more, "300s"));
    INFO(name << "\n" << there.err);
    REQUIRE(there.exit == 0);
    std::vector<std::string> known;
    for (const int k : all) known.push_back("node" + std::to_string(k));
    CHECK(Json::parse(read(scratch / name / "run.json")).at("hosts") == Json(known));
    Args here = words(name + "-here", more, "300s");
    here.insert(here.end(), {"--ranks", std::to_string(2 * all.size())});
    good(scratch, here);
    CHECK(numbers(scratch / name) == numbers(scratch / (name + "-here")));
    good(scratch, {"ckpt", "diff", (scratch / name).string(), (scratch / (name + "-here")).string()});
  }
  // All ranks of a host have ended.
  bool ended(int node, const std::string& out, double seconds) const {
    for (const auto begin = Clock::now(); !hosts.ranks_on(node, out).empty();) {
      if (seconds_since(begin) > seconds * patience) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  }
  std::string logs(const std::string& out, size_t rank) const {
    return read(scratch / out / "logs" / ("rank-0000" + std::to_string(rank) + ".log"));
  }
  // Trains until the cables of these hosts are taken out at step 4 or later. All ranks end.
  void cut(const std::string& out, const Args& more, const std::vector<int>& lost = {2}) {
    Args long_run = words(out, more);
    long_run.insert(long_run.end(), {"train.steps=100000", "checkpoint.every=100000", "checkpoint.memory_every=1"});
    Child child(scratch, hosts.mpirun(all, long_run), Hosts::limits());
    REQUIRE(child.wait_for("step 4/"));
    for (const int node : lost) hosts.cable(node, false);
    const auto begin = Clock::now();
    for (const int node : all) CHECK(ended(node, out, 25));
    CHECK(seconds_since(begin) > 5);  // it is the timeout that ended them
    for (size_t rank = 0; rank < 2 * all.size(); ++rank) {
      INFO("rank " << rank << ":\n" << logs(out, rank));
      CHECK(has(logs(out, rank), "error: "));
      CHECK((has(logs(out, rank), "has not answered") || has(logs(out, rank), "is gone") ||
             has(logs(out, rank), "no byte")));
    }
    hosts.end_processes();
    for (const int node : lost) hosts.cable(node, true);
  }
};

int64_t resumed_from(const std::string& text) {
  const size_t at = text.find("resumes from step-");
  return at == text.npos ? -1 : std::stoll(text.substr(at + 18, 8));
}

}  // namespace

TEST_CASE("compositions on two hosts have the bits of one host", "[ranks][hosts][.slow]") {
  SomeHosts two(2);
  if (!two.there()) return;
  const std::vector<std::pair<std::string, Args>> all = {
      {"zero", {"zero.plugin=zero3"}},
      {"tensor", {"zero.plugin=zero2", "parallel.tensor=2"}},
      {"context", {"zero.plugin=zero1", "parallel.context=2"}},
      {"both", {"parallel.tensor=2", "parallel.context=2", "model.num_attention_heads=4"}},
      {"groups", {"zero.plugin=hpz", "zero.group=2"}}};
  for (const auto& [name, more] : all) two.same_as_here(name, more);
}

TEST_CASE("compositions on three and four hosts have the bits of one host", "[ranks][hosts][.slow]") {
  for (const int count : {3, 4}) {
    const SomeHosts hosts(count);
    if (!hosts.there()) return;
    const std::string stages = "parallel.pipeline=" + std::to_string(count);
    const std::vector<std::pair<std::string, Args>> all = {
        {"zero", {"zero.plugin=zero3"}},
        {"groups", {"zero.plugin=hpz", "zero.group=2"}},
        {"stages", {stages, "zero.plugin=zero2", "train.accumulate=4"}},
        {"tensor", {stages, "parallel.tensor=2", "train.accumulate=2", "offload.activations=host"}}};
    for (const auto& [name, more] : all) hosts.same_as_here(name, more);
  }
}

TEST_CASE("a cable that is taken out ends all ranks, and the run goes on from memory", "[ranks][hosts][.slow]") {
  SomeHosts two(2);
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
  SomeHosts two(2);
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

TEST_CASE("of four hosts two that are no neighbours are lost with their memory", "[ranks][hosts][.slow]") {
  SomeHosts four(4);
  if (!four.there()) return;
  const Args fewer = {"train.global_batch=16", "--unset", "train.accumulate"},
             zero = {"zero.plugin=zero3", "train.accumulate=1"};
  const auto again = [&](const std::string& run, const Args& more) {
    Args out = {"run", run, "train.steps=20"};
    out.insert(out.end(), fewer.begin(), fewer.end());
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  four.cut("run", zero, {1, 3});
  for (const int node : {1, 3}) four.hosts.forget(node);
  const Result on = four.run({2, 4}, again("run", {}));
  INFO(on.err);
  REQUIRE(on.exit == 0);
  const int64_t step = resumed_from(on.err);
  REQUIRE(step >= 3);
  Args words = four.words("whole", zero);
  words.insert(words.end(), {"train.steps=" + std::to_string(step), "--ranks", "8"});
  good(four.scratch, words);
  good(four.scratch, again("whole", {"--ranks", "4"}));
  CHECK(column(four.scratch / "run", "loss") == column(four.scratch / "whole", "loss"));
  good(four.scratch, {"ckpt", "diff", (four.scratch / "run").string(), (four.scratch / "whole").string()});

  // If neighbours are lost, so are some parts: there is nothing to go on from.
  four.cut("lost", zero, {2, 3});
  for (const int node : {2, 3}) four.hosts.forget(node);
  const Result anew = four.run({1, 4}, again("lost", {}));
  INFO(anew.err);
  REQUIRE(anew.exit == 0);
  CHECK_FALSE(has(anew.err, "was only in memory"));
  CHECK(resumed_from(anew.err) == -1);
}

TEST_CASE("an mpirun that asks its hosts for a sign of life ends when a cable is out", "[ranks][hosts][.slow]") {
  SomeHosts three(3);
  if (!three.there()) return;
  Args words = three.words("run", {"zero.plugin=zero3", "train.steps=100000"}, "600s");
  // As in docs/elastic.md.
  const Args signs = {"--mca", "oob_tcp_keepalive_time",   "5", "--mca", "oob_tcp_keepalive_intvl", "5",
                      "--mca", "oob_tcp_keepalive_probes", "3"};
  Child child(three.scratch, three.hosts.mpirun(three.all, words, signs), Hosts::limits());
  REQUIRE(child.wait_for("step 4/"));
  three.hosts.cable(3, false);
  const auto begin = Clock::now();
  const Result result = child.wait();
  INFO(result.err);
  CHECK(seconds_since(begin) < 40 * patience);
  CHECK(result.exit != 0);
  for (const int node : {1, 2, 3}) CHECK(three.ended(node, "run", 20));
}
