// SPDX-License-Identifier: Apache-2.0
// Whole runs of `engine` with the plugins as they ship, compiled by nvcc, on the software CUDA runtime (CPU): streams,
// events, graphs and copies are the runtime's, kernels are run by the emulator.
#include "runs.hpp"
#include "tests/cuda/train/analysis.hpp"
#include "tests/cuda/train/answers.hpp"

using namespace cli;
using namespace shipped;

namespace {

void run(const Scratch& scratch, const std::string& device, const std::string& out, const Args& more,
         const std::string& seed = "1") {
  Limits limits;
  limits.more = {std::string("LD_LIBRARY_PATH=") + SOFTWARE, std::string("SOFTCUDA_TWINS=") + TWINS,
                 "SOFTCUDA_SEED=" + seed, "SOFTCUDA_CARD=h200"};
  const Result result = engine(
      scratch, with({"run", "config.toml", "--unset", "device.threads", "device.plugin=" + device, "--out", out}, more),
      limits);
  INFO(result.err);
  REQUIRE(result.exit == 0);
}

// `plugin` has the kernels that the run needs besides those of the device.
void compare(const std::string& plugin, const Args& more) {
  Scratch scratch;
  scratch.config();
  write_answers(scratch);
  run(scratch, "cpu", "cpu", more), run(scratch, "cuda", "cuda", more);
  for (const char* key : {"loss", "grad_norm"}) check_close(scratch / "cuda", scratch / "cpu", key);
  const std::string record = read(scratch / "cuda/run.json");
  for (const std::string& part : {std::string("\"eng.cuda\""), plugin}) CHECK(has(record, part));
  CHECK_FALSE(has(read(scratch / "cpu/run.json"), plugin));
}

}  // namespace

TEST_CASE("software CUDA runtime (CPU): kernels of Mamba, as they ship, have the losses of the cpu device") {
  compare("\"eng.mamba-cuda\"", with(mamba, {"train.steps=2", "train.eval_every=0", "train.sequence_length=70"}));
}

TEST_CASE("software CUDA runtime (CPU): so do those of Mamba-2 and of routers with sigmoids, in a hybrid") {
  compare("\"eng.mamba-cuda\"", with(hybrid, {"train.steps=2", "train.eval_every=0", "train.sequence_length=70"}));
}

TEST_CASE("software CUDA runtime (CPU): so do those of mixtures of experts") {
  compare("\"eng.moe-cuda\"", with(moe, {"train.steps=2", "train.eval_every=0"}));
}

TEST_CASE(
    "software CUDA runtime (CPU): so do those of products in fp8, with scales of the tensor and of earlier steps") {
  for (const std::string recipe : {"current", "delayed"})
    compare("\"eng.fp8-cuda\"", {"transforms=[{plugin=\"fp8\",recipe=\"" + recipe + "\"}]", "train.steps=3",
                                 "train.eval_every=0", "train.accumulate=2"});
}

TEST_CASE("software CUDA runtime (CPU): so do those of muon, normuon and adamw8bit", "[.slow]") {
  const Args optimizer = GENERATE(Args{"optimizer.plugin=muon"}, Args{"optimizer.plugin=normuon"},
                                  Args{"optimizer.plugin=adamw8bit", "optimizer.min_8bit_size=0"});
  compare("\"eng.optim-cuda\"", with(optimizer, {"train.steps=2", "train.eval_every=0"}));
}

TEST_CASE("software CUDA runtime (CPU): so do those of preferences", "[.slow]") {
  compare("\"eng.loss-cuda\"", with(qlora, with(preferences, {"train.steps=2", "train.eval_every=0"})));
}

TEST_CASE("software CUDA runtime (CPU): so does an analysis of curvature, whatever is late or on the host", "[.slow]") {
  Scratch scratch;
  scratch.config();
  write_opt(scratch);
  const auto analysed = [&](const std::string& device, const std::string& seed, const Args& more = {}) {
    Limits limits;
    limits.more = {std::string("LD_LIBRARY_PATH=") + SOFTWARE, std::string("SOFTCUDA_TWINS=") + TWINS,
                   "SOFTCUDA_SEED=" + seed};
    const std::string out = device + seed;
    const Result result = engine(scratch, analysis(device, out, more), limits);
    INFO(result.err);
    REQUIRE(result.exit == 0);
    CHECK(has(read(scratch / out / "run.json"), "\"eng.curvature-cuda\"") == (device == "cuda"));
    return measured_by(scratch / out);
  };
  const Json first = analysed("cuda", "1");
  check_near(first, analysed("cpu", "1"));
  CHECK(analysed("cuda", "77") == first);
  CHECK(analysed("cuda", "3", {"offload.optimizer=host"}) == first);
  CHECK(analysed("cuda", "4", {"offload.optimizer=host", "offload.gradients=host", "offload.parameters=host"}) ==
        first);
}

// cuDNN does not start here, or is not installed: a configuration that says nothing of it trains nevertheless.
TEST_CASE("software CUDA runtime (CPU): where cuDNN does not serve, own kernels do, and the run keeps that") {
  Scratch scratch;
  scratch.config();
  Limits limits;
  limits.more = {std::string("LD_LIBRARY_PATH=") + SOFTWARE, std::string("SOFTCUDA_TWINS=") + TWINS,
                 "SOFTCUDA_CARD=h200"};
  const Args more = {"precision.plugin=bf16", "train.steps=2", "train.eval_every=0", "checkpoint.every=2"};
  run(scratch, "cuda", "own", with(more, {"device.attention=own"}));
  const Result first = engine(
      scratch, with({"run", "config.toml", "--unset", "device.threads", "device.plugin=cuda", "--out", "auto"}, more),
      limits);
  INFO(first.err);
  REQUIRE(first.exit == 0);
  const std::string note = "own kernels compute attention where cuDNN does not";
  const size_t at = first.err.find(note);
  REQUIRE(at != std::string::npos);
  CHECK(first.err.find(note, at + 1) == std::string::npos);  // once, for two layers
  CHECK(has(first.err, "pip install nvidia-cudnn-cu13==9.19.0.*"));
  CHECK(engine(scratch, {"ckpt", "diff", "own", "auto"}).exit == 0);
  const std::string choices = read(scratch / "auto/device_choices.txt");
  for (const char* pass : {"attention forward ", "attention backward "}) {
    CHECK(has(choices, pass));
    for (const char* file : {"run.json", "checkpoints/step-00000002/manifest.json"})
      CHECK(has(read(scratch / "auto" / file), pass));
  }
  CHECK_FALSE(has(choices, "= cuDNN"));
  CHECK_FALSE(fs::exists(scratch / "own/device_choices.txt"));
  const Result more_steps = engine(scratch, {"run", "auto", "train.steps=3"}, limits);
  INFO(more_steps.err);
  CHECK(more_steps.exit == 0);
  CHECK_FALSE(has(more_steps.err, note));
  CHECK(read(scratch / "auto/device_choices.txt") == choices);
  const Result strict = engine(scratch, {"run", "auto", "train.steps=4", "device.attention=cudnn"}, limits);
  INFO(strict.err);
  CHECK(strict.exit == 3);
  CHECK(has(strict.err, "install cuDNN 9.19.0"));
}

// The software cuBLASLt is made slow at what the first run must then avoid; a resumed run measures nothing.
TEST_CASE("software CUDA runtime (CPU): measured algorithms stay with a run and its checkpoints", "[.slow]") {
  const Args more = {"train.steps=2", "train.eval_every=0", "checkpoint.every=2"};
  Scratch scratch;
  scratch.config();
  run(scratch, "cuda", "plain", more);
  CHECK_FALSE(fs::exists(scratch / "plain/device_choices.txt"));
  const auto with_runtime = [&](const std::string& variable, const Args& words) {
    Limits limits;
    limits.more = {std::string("LD_LIBRARY_PATH=") + SOFTWARE, std::string("SOFTCUDA_TWINS=") + TWINS, variable};
    return engine(scratch, words, limits);
  };
  const Args first = with(
      {"run", "config.toml", "--unset", "device.threads", "device.plugin=cuda", "device.tune=true", "--out", "tuned"},
      more);
  REQUIRE(with_runtime("SOFTCUBLAS_SLOW=parts", first).exit == 0);
  const std::string choices = read(scratch / "tuned/device_choices.txt");
  CHECK(has(choices, " = "));
  CHECK(has(read(scratch / "tuned/checkpoints/step-00000002/manifest.json"), "device_choices"));
  REQUIRE(with_runtime("SOFTCUBLAS_SLOW=whole", {"run", "tuned", "train.steps=3"}).exit == 0);
  CHECK(read(scratch / "tuned/device_choices.txt") == choices);
  CHECK(with_runtime("SOFTCUBLAS_SLOW=whole", {"eval", "tuned"}).exit == 0);
  // Another card: refused with the edit, which works.
  const Result refused = with_runtime("SOFTCUDA_CARD=a100-80g", {"run", "tuned", "train.steps=4"});
  INFO(refused.err);
  CHECK(refused.exit == 3);
  CHECK(has(refused.err, "set device.tune = false"));
  CHECK(with_runtime("SOFTCUDA_CARD=a100-80g", {"run", "tuned", "train.steps=4", "device.tune=false"}).exit == 0);
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
