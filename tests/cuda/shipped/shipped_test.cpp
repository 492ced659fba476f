// SPDX-License-Identifier: Apache-2.0
// Whole runs of `engine` with the plugins as they ship, compiled by nvcc, on the software CUDA runtime (CPU): streams,
// events, graphs and copies are the runtime's, kernels are run by the emulator.
#include "tests/cli/harness.hpp"

using namespace cli;

namespace {

Args with(Args words, const Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Args mamba = {"model.plugin=mamba",       "model.state_size=5", "--unset", "model.intermediate_size", "--unset",
                    "model.num_attention_heads"};

void run(const Scratch& scratch, const std::string& device, const std::string& out, const Args& more,
         const std::string& seed = "1") {
  Limits limits;
  limits.more = {std::string("LD_LIBRARY_PATH=") + SOFTWARE, std::string("SOFTCUDA_TWINS=") + TWINS,
                 "SOFTCUDA_SEED=" + seed};
  const Result result = engine(
      scratch, with({"run", "config.toml", "--unset", "device.threads", "device.plugin=" + device, "--out", out}, more),
      limits);
  INFO(result.err);
  REQUIRE(result.exit == 0);
}

// Of `plugin` are the kernels that the run needs besides those of the device.
void compare(const std::string& plugin, const Args& more) {
  Scratch scratch;
  scratch.config();
  run(scratch, "cpu", "cpu", more), run(scratch, "cuda", "cuda", more);
  for (const char* key : {"loss", "grad_norm"}) {
    const std::vector<double> want = column(scratch / "cpu", key), got = column(scratch / "cuda", key);
    REQUIRE(want.size() == got.size());
    for (size_t k = 0; k < want.size(); ++k) CHECK(got[k] == Approx(want[k]).epsilon(1e-4));
  }
  const std::string record = read(scratch / "cuda/run.json");
  for (const std::string& part : {std::string("\"eng.cuda\""), plugin}) CHECK(has(record, part));
  CHECK_FALSE(has(read(scratch / "cpu/run.json"), plugin));
}

}  // namespace

TEST_CASE("software CUDA runtime (CPU): kernels of Mamba, as they ship, have the losses of the cpu device") {
  compare("\"eng.mamba-cuda\"", with(mamba, {"train.steps=2", "train.eval_every=0", "train.sequence_length=70"}));
}

TEST_CASE("software CUDA runtime (CPU): so do those of muon and adamw8bit", "[.slow]") {
  const Args optimizer =
      GENERATE(Args{"optimizer.plugin=muon"}, Args{"optimizer.plugin=adamw8bit", "optimizer.min_8bit_size=0"});
  compare("\"eng.optim-cuda\"", with(optimizer, {"train.steps=2", "train.eval_every=0"}));
}

TEST_CASE("software CUDA runtime (CPU): the order of work on streams changes no bit of a run of Mamba", "[.slow]") {
  const Args more = with(mamba, {"train.steps=3", "train.eval_every=0", "optimizer.plugin=muon"});
  Scratch scratch;
  scratch.config();
  run(scratch, "cuda", "one", more, "1");
  for (const std::string seed : {"2", "77"}) {
    run(scratch, "cuda", seed, more, seed);
    for (const char* key : {"loss", "grad_norm"}) CHECK(column(scratch / seed, key) == column(scratch / "one", key));
    CHECK(engine(scratch, {"ckpt", "diff", "one", seed}).exit == 0);
  }
}
