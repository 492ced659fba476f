// SPDX-License-Identifier: Apache-2.0
// Several ranks train through cuda.eng.so and nccl.eng.so as they ship, on a CUDA runtime and an NCCL in software
// (CPU): strategies, buckets, tiers, recompute and formats change no bit where they promise that; a killed run goes on
// with the same bits; checkpoints go from device to device.
#include <cmath>
#include <numeric>

#include "runs.hpp"
#include "tests/cuda/nccl/port.hpp"

using namespace cli;
using namespace shipped;

namespace {

Limits software(const std::string& seed = "1") {
  Limits limits;
  limits.seconds = 300 * patience;
  limits.more = {"LD_LIBRARY_PATH=" SOFTWARE ":" NCCL, "SOFTCUDA_TWINS=" TWINS, "SOFTCUDA_DEVICES=4",
                 "SOFTCUDA_SEED=" + seed};
  return limits;
}

const Args small = {"train.eval_every=0", "train.micro_batch=1", "train.sequence_length=16"};

// On `ranks` ranks, where that is above 1. cuDNN would want a GPU.
Args words_of(const std::string& out, int ranks, const Args& more) {
  Args all = with(
      {"run", "config.toml", "--unset", "device.threads", "device.plugin=cuda", "device.attention=own", "--out", out},
      small);
  if (ranks > 1) all = with(all, {"--ranks", std::to_string(ranks), "comm.plugin=nccl"});
  return with(all, more);
}

void train(const Scratch& scratch, const std::string& out, int ranks, const Args& more, const std::string& seed = "1") {
  const Result result = engine(scratch, words_of(out, ranks, more), software(seed));
  INFO(result.err);
  REQUIRE(result.exit == 0);
}

void train_on_cpu(const Scratch& scratch, const Args& more) {
  const Result result = engine(scratch, with(with({"run", "config.toml", "--out", "cpu"}, small), more));
  INFO(result.err);
  REQUIRE(result.exit == 0);
}

void check_equal(const Scratch& scratch, const std::string& a, const std::string& b) {
  const std::vector<Json> one = metrics(scratch / a), other = metrics(scratch / b);
  REQUIRE(one.size() == other.size());
  for (size_t k = 0; k < one.size(); ++k)
    for (const char* key : {"loss", "grad_norm", "lr"}) CHECK(one[k].at(key) == other[k].at(key));  // null: not finite
  CHECK(engine(scratch, {"ckpt", "diff", a, b}).exit == 0);
}

// Each of these must have the bits of the first.
void all_equal(const Scratch& scratch, int ranks, const Args& common, const std::vector<Args>& others) {
  const std::string name = std::to_string(ranks) + "-";
  train(scratch, name + "first", ranks, common);
  for (size_t k = 0; k < others.size(); ++k) {
    std::string said;
    for (const std::string& word : others[k]) said += word + " ";
    INFO(ranks << " ranks: " << said);
    const std::string out = name + std::to_string(k);
    train(scratch, out, ranks, with(common, others[k]), std::to_string(k + 2));
    check_equal(scratch, out, name + "first");
    fs::remove_all(scratch / out);
  }
  fs::remove_all(scratch / (name + "first"));
}

const Args short_run = {"train.steps=2", "train.accumulate=2", "checkpoint.every=2"};

Args on_nvme(const Scratch& scratch, const Args& more) {
  return with({"offload.nvme_paths=[\"" + scratch.path().string() + "\"]", "offload.nvme_block=4KiB",
               "offload.nvme_direct=false"},
              more);
}

}  // namespace

TEST_CASE("software CUDA runtime and NCCL (CPU): two ranks have the losses of the cpu, and stages the same bits") {
  Scratch scratch;
  scratch.config();
  train_on_cpu(scratch, with(short_run, {"--ranks", "2"}));
  train(scratch, "none", 2, short_run);
  for (const char* key : {"loss", "grad_norm"}) check_close(scratch / "none", scratch / "cpu", key);
  train(scratch, "zero3", 2, with(short_run, {"zero.plugin=zero3"}), "2");
  check_equal(scratch, "zero3", "none");
}

TEST_CASE("software CUDA runtime and NCCL (CPU): ranks that divide a model and its vocabulary have the losses of one") {
  const Args model = GENERATE(Args{}, with(opt, {"loss.z_loss=1e-2", "parallel.sequence=true", "zero.plugin=none"}));
  Scratch scratch;
  scratch.config();
  Args whole = with(short_run, model);
  whole.erase(std::remove(whole.begin(), whole.end(), "parallel.sequence=true"), whole.end());
  train(scratch, "one", 1, whole);
  train(scratch, "divided", 2, with(with(short_run, {"parallel.tensor=2"}), model));
  for (const char* key : {"loss", "grad_norm"}) check_close(scratch / "divided", scratch / "one", key);
  const std::string on_cpu =
      engine(scratch, with(with({"plan", "config.toml", "parallel.tensor=2"}, small), model)).out;
  const size_t at = on_cpu.find("  parallel  ");
  REQUIRE(at != std::string::npos);  // as many tensors are divided
  CHECK(has(read(scratch / "divided" / "plan.txt"), on_cpu.substr(at, on_cpu.find('\n', at) - at)));
  train(scratch, "again", 2, with(with(short_run, {"parallel.tensor=2"}), model), "2");
  check_equal(scratch, "again", "divided");
}

// As launchers do that give each rank one GPU: `gpus[r]` is what rank r sees.
Result started_apart(const Scratch& scratch, const std::string& out, const std::vector<std::string>& gpus) {
  Limits limits = software();
  limits.program = "/bin/sh";
  const std::string port = comm::Port().text();
  std::string run = std::string("exec ") + ENGINE_COMMAND, line;
  for (const std::string& word : words_of(out, 1, with(short_run, {"comm.plugin=nccl"}))) run += " " + word;
  for (size_t r = 0; r < gpus.size(); ++r) {
    const std::string number = std::to_string(r);
    line += "(export RANK=" + number + " LOCAL_RANK=" + number + " WORLD_SIZE=" + std::to_string(gpus.size()) +
            " MASTER_PORT=" + port + " CUDA_VISIBLE_DEVICES=" + gpus[r] + "; " + run + ") & p=\"$p $!\"; ";
  }
  return engine(scratch, {"-c", line + "m=0; for i in $p; do wait $i; c=$?; [ $c -le $m ] || m=$c; done; exit $m"},
                limits);
}

TEST_CASE("software CUDA runtime and NCCL (CPU): ranks that each see one GPU have the bits of those that see all",
          "[.slow]") {
  Scratch scratch;
  scratch.config();
  train(scratch, "both", 2, short_run);
  const Result apart = started_apart(scratch, "apart", {"3", "1"});
  INFO(apart.err);
  REQUIRE(apart.exit == 0);
  check_equal(scratch, "apart", "both");
  const Result shared = started_apart(scratch, "shared", {"1", "1"});
  INFO(shared.err);
  CHECK(shared.exit == 3);
  CHECK(has(shared.err, "ranks 0, 1 on "));
  CHECK(has(shared.err, "have the same GPU (software CUDA runtime (CPU), as H200, GPU-736f6674-"));
}

TEST_CASE("software CUDA runtime and NCCL (CPU): stages, buckets, recompute and tiers change no bit", "[.slow]") {
  Scratch scratch;
  scratch.config();
  all_equal(scratch, 2, short_run,
            {{"zero.plugin=zero1"},
             {"zero.plugin=zero2", "zero.bucket=4KiB"},
             {"zero.plugin=zero3", "zero.prefetch=0"},
             {"zero.plugin=zero3", "zero.prefetch=2", "recompute.policy=full"},
             {"zero.plugin=zero2", "offload.optimizer=host"},
             {"zero.plugin=zero3", "offload.optimizer=host", "offload.parameters=host", "offload.activations=host"},
             on_nvme(scratch, {"zero.plugin=zero1", "offload.optimizer=nvme", "offload.update=device"}),
             on_nvme(scratch, {"zero.plugin=zero3", "offload.optimizer=nvme", "offload.gradients=nvme",
                               "offload.parameters=nvme", "offload.activations=nvme"})});
  all_equal(scratch, 3, with(short_run, opt),
            {{"zero.plugin=zero2"},
             {"zero.plugin=zero3", "zero.bucket=4KiB", "offload.optimizer=host", "offload.ratio=0.5"}});
  all_equal(scratch, 4, with(short_run, mamba),
            {{"zero.plugin=zero1", "zero.overlap=false"},
             on_nvme(scratch, {"zero.plugin=zero3", "offload.parameters=nvme", "recompute.policy=full"})});
}

TEST_CASE("software CUDA runtime and NCCL (CPU): formats and optimizers change no bit with stages and tiers",
          "[.slow]") {
  Scratch scratch;
  scratch.config();
  const Args bucket = {"zero.plugin=zero2", "zero.bucket=4KiB"},
             host = {"zero.plugin=zero3", "offload.optimizer=host", "offload.parameters=host"};
  for (const Args& one : {Args{"precision.plugin=bf16"}, Args{"precision.plugin=bf16_sr"},
                          Args{"optimizer.plugin=adamw8bit", "optimizer.min_8bit_size=0"}, qlora}) {
    INFO(one[0]);
    all_equal(scratch, 2, with(short_run, one), {bucket, host});
  }
  // Products of the host have other bits: its updates stay on the device.
  all_equal(scratch, 2, with(short_run, {"optimizer.plugin=muon"}), {bucket, with(host, {"offload.update=device"})});
  // The first scales overflow: those updates are skipped.
  const Args fp16 = {"precision.plugin=fp16", "precision.initial_scale_power=20", "train.steps=4",
                     "checkpoint.every=4"};
  all_equal(scratch, 2, fp16, {bucket, host});
  train(scratch, "fp16", 2, fp16);
  const std::vector<double> scales = column(scratch / "fp16", "loss_scale");
  CHECK(scales.back() < scales.front());
}

TEST_CASE("software CUDA runtime and NCCL (CPU): rank 0 measures algorithms for all ranks", "[.slow]") {
  Scratch scratch;
  scratch.config();
  const Args tuned = with(short_run, {"device.tune=true", "zero.plugin=zero2"});
  train(scratch, "first", 2, tuned);
  const std::string choices = read(scratch / "first/device_choices.txt");
  CHECK(has(choices, " = "));
  CHECK(has(read(checkpoint(scratch / "first", 2) / "manifest.json"), "device_choices"));
  const Result more = engine(scratch, {"run", "first", "--ranks", "2", "train.steps=3"}, software());
  INFO(more.err);
  CHECK(more.exit == 0);
  CHECK(read(scratch / "first/device_choices.txt") == choices);
}

TEST_CASE("software CUDA runtime and NCCL (CPU): where rank 0 has no cuDNN that serves, no rank asks its own",
          "[.slow]") {
  Scratch scratch;
  scratch.config();
  const Args bf16 = with(short_run, {"precision.plugin=bf16"});
  train(scratch, "own", 2, bf16);
  const Result result = engine(scratch, words_of("auto", 2, with(bf16, {"device.attention=auto"})), software());
  INFO(result.err);
  REQUIRE(result.exit == 0);
  check_equal(scratch, "auto", "own");
  const std::string note = "own kernels compute attention where cuDNN does not";
  CHECK(has(result.err, note));
  CHECK_FALSE(has(read(scratch / "auto/logs/rank-00001.log"), note));  // it was told before it asked
  CHECK(has(read(scratch / "auto/device_choices.txt"), " = own"));
}

TEST_CASE("software CUDA runtime (CPU): fifty steps stay beside those of the cpu", "[.slow]") {
  const Args model = GENERATE(Args{}, opt, mamba);
  Scratch scratch;
  scratch.config();
  const Args fifty = with({"train.steps=50", "checkpoint.every=0"}, model);
  train_on_cpu(scratch, fifty);
  train(scratch, "cuda", 1, fifty);
  check_close(scratch / "cuda", scratch / "cpu", "loss");
  train(scratch, "bf16", 1, with(fifty, {"precision.plugin=bf16"}));
  const auto end = [&](const std::string& run) {
    const std::vector<double> losses = column(scratch / run, "loss");
    return std::accumulate(losses.end() - 15, losses.end(), 0.0) / 15;
  };
  CHECK(std::abs(end("bf16") - end("cuda")) < 0.01);
}

TEST_CASE("software CUDA runtime and NCCL (CPU): a killed run goes on with the same bits", "[.slow]") {
  const int ranks = GENERATE(1, 2);
  Scratch scratch;
  scratch.config();
  const Args six = {"train.steps=6", "checkpoint.every=2", "zero.plugin=zero2"};
  train(scratch, "whole", ranks, six);
  {
    Child child(scratch, words_of("killed", ranks, six), software());
    REQUIRE(child.wait_for_path(checkpoint(scratch / "killed", 2) / "manifest.json"));
    child.signal(9);
    CHECK(child.wait().exit == 128 + 9);
  }
  Args go_on = {"run", "killed"};
  if (ranks > 1) go_on = with(go_on, {"--ranks", std::to_string(ranks)});
  const Result result = engine(scratch, go_on, software("5"));
  INFO(result.err);
  REQUIRE(result.exit == 0);
  check_equal(scratch, "killed", "whole");
}

TEST_CASE("software CUDA runtime (CPU): a run goes on on the other device", "[.slow]") {
  Scratch scratch;
  scratch.config();
  const Args four = {"train.steps=4", "checkpoint.every=4"};
  train(scratch, "cuda", 1, four);
  train_on_cpu(scratch, four);
  const Args to_cpu = {"run", "cuda", "train.steps=8", "device.plugin=cpu", "--unset", "device.attention"},
             to_cuda = {"run", "cpu", "train.steps=8", "device.plugin=cuda", "--unset", "device.threads"};
  for (const Args& words : {to_cpu, to_cuda}) {
    const Result result = engine(scratch, words, software());
    INFO(result.err);
    REQUIRE(result.exit == 0);
  }
  check_close(scratch / "cuda", scratch / "cpu", "loss");
}
