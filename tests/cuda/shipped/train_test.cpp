// SPDX-License-Identifier: Apache-2.0
// Whole runs of `engine` with cuda.eng.so as it ships, on the software CUDA runtime: streams, events, graphs and copies
// are those of the plugin, kernels are their host twins. Nothing here runs on a GPU.
#include "runs.hpp"

using namespace cli;
using namespace shipped;

namespace {

struct Machine {
  std::string seed = "1";
  Args more = {};
};

Result cuda(const Scratch& scratch, const std::string& out, Args words, const Machine& machine = {}) {
  Limits limits;
  limits.more = {"LD_LIBRARY_PATH=" SOFTWARE, "SOFTCUDA_TWINS=" TWINS, "SOFTCUDA_SEED=" + machine.seed};
  limits.more.insert(limits.more.end(), machine.more.begin(), machine.more.end());
  Args all = {"run", "config.toml", "train.eval_every=0", "--unset", "device.threads", "device.plugin=cuda", "--out",
              out};
  all.insert(all.end(), words.begin(), words.end());
  return engine(scratch, all, limits);
}
void cpu(const Scratch& scratch, const std::string& out, const Args& words) {
  Args all = {"run", "config.toml", "train.eval_every=0", "--unset", "device.threads", "device.plugin=cpu", "--out",
              out};
  all.insert(all.end(), words.begin(), words.end());
  const Result result = engine(scratch, all);
  INFO(result.err);
  REQUIRE(result.exit == 0);
}
void succeeds(const Result& result) {
  INFO(result.err);
  REQUIRE(result.exit == 0);
}

void check_close(const fs::path& got, const fs::path& want) {
  for (const char* key : {"loss", "grad_norm"}) shipped::check_close(got, want, key);
}
// Losses, norms and all that a step computes.
void check_equal(const fs::path& a, const fs::path& b) {
  for (const char* key : {"loss", "grad_norm", "lr"}) CHECK(column(a, key) == column(b, key));
}

}  // namespace

TEST_CASE("software CUDA runtime: the plugin that ships trains as the cpu does") {
  Scratch scratch;
  scratch.config();
  cpu(scratch, "cpu", {"train.steps=2"});
  succeeds(cuda(scratch, "cuda", {"train.steps=2"}));
  check_close(scratch / "cuda", scratch / "cpu");
}

TEST_CASE("software CUDA runtime: many steps, twice, have the losses of the cpu and equal bits", "[.slow]") {
  const Args model = GENERATE(Args{}, opt);
  Scratch scratch;
  scratch.config();
  const Args words = with({"train.steps=12"}, model);
  cpu(scratch, "cpu", words);
  succeeds(cuda(scratch, "cuda", words)), succeeds(cuda(scratch, "again", words, {"2"}));
  check_close(scratch / "cuda", scratch / "cpu");
  check_equal(scratch / "cuda", scratch / "again");
  CHECK(engine(scratch, {"ckpt", "diff", "cuda", "again"}).exit == 0);
}

TEST_CASE("software CUDA runtime: order of queues and of threads, graphs, recompute and offload change no bit",
          "[.slow]") {
  Scratch scratch;
  scratch.config();
  const Args words = {"train.steps=3", "train.accumulate=2"};
  succeeds(cuda(scratch, "first", words));
  int n = 0;
  const auto same = [&](const Args& more, const Machine& machine) {
    const std::string out = "run" + std::to_string(++n);
    INFO(out << " " << machine.seed << " " << (more.empty() ? "" : more[0]));
    succeeds(cuda(scratch, out, with(words, more), machine));
    check_equal(scratch / out, scratch / "first");
  };
  for (const char* seed : {"2", "3", "4", "5", "6", "7", "8"}) same({}, {seed});
  for (const char* last : {"0", "1", "2", "3"}) same({}, {"9", {std::string("SOFTCUDA_LAST=") + last}});
  for (const char* order : {"backward", "random:5"}) same({}, {"1", {std::string("ENG_EMULATED_ORDER=") + order}});
  same({"device.synchronous=true"}, {"1"});
  same({"recompute.policy=full"}, {"2"});
  same({"offload.optimizer=host"}, {"3"});
  same({"offload.optimizer=host", "offload.parameters=host"}, {"4"});
}

TEST_CASE("software CUDA runtime: every strategy on two ranks has the same losses", "[.slow]") {
  Scratch scratch;
  scratch.config();
  const Args words = {"train.steps=2", "--ranks", "2"};
  const Machine two = {"1", {"SOFTCUDA_DEVICES=2"}};
  cpu(scratch, "cpu", words);
  succeeds(cuda(scratch, "none", words, two));
  check_close(scratch / "none", scratch / "cpu");
  for (const std::string strategy : {"zero1", "zero2", "zero3"}) {
    INFO(strategy);
    succeeds(cuda(scratch, strategy, with(words, {"zero.plugin=" + strategy}), two));
    check_equal(scratch / strategy, scratch / "none");
  }
}

TEST_CASE("software CUDA runtime: what is wrong with the machine has its message and exit code") {
  Scratch scratch;
  scratch.config();
  const auto fails = [&](const Machine& machine, int code, const std::string& text) {
    const Result result = cuda(scratch, "failed", {"train.steps=2"}, machine);
    INFO(result.err);
    CHECK(result.exit == code);
    CHECK(has(result.err, text));
    fs::remove_all(scratch / "failed");
  };
  fails({"1", {"SOFTCUDA_DRIVER=none"}}, 3, "driver");
  fails({"1", {"SOFTCUDA_DRIVER=old"}}, 3, "driver");
  fails({"1", {"SOFTCUDA_DEVICES=0"}}, 3, "GPU");
  fails({"1", {"SOFTCUDA_BYTES=100000"}}, 5, "device cuda has 97.7 KiB");
  fails({"1", {"SOFTCUDA_FAIL=40"}}, 3, "cudaErrorIllegalAddress");
}
