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

void compare(const Args& more) {
  Scratch scratch;
  scratch.config();
  run(scratch, "cpu", "cpu", more), run(scratch, "cuda", "cuda", more), run(scratch, "cuda", "again", more, "77");
  for (const char* key : {"loss", "grad_norm"}) {
    const std::vector<double> want = column(scratch / "cpu", key), got = column(scratch / "cuda", key);
    REQUIRE(want.size() == got.size());
    for (size_t k = 0; k < want.size(); ++k) CHECK(got[k] == Approx(want[k]).epsilon(1e-4));
    CHECK(got == column(scratch / "again", key));
  }
}

}  // namespace

TEST_CASE(
    "software CUDA runtime (CPU): shipped kernels of Mamba, muon and adamw8bit have the losses of the cpu device") {
  compare(with({"train.steps=2", "train.eval_every=0", "train.sequence_length=70"},
               with(mamba, {"optimizer.plugin=muon"})));
  compare(with({"train.steps=2", "train.eval_every=0"}, {"optimizer.plugin=adamw8bit", "optimizer.min_8bit_size=0"}));
}
