// SPDX-License-Identifier: Apache-2.0
// The process takes the planned memory within 1 %; planning itself takes little.
#include <cmath>

#include "../sanitized.hpp"
#include "harness.hpp"

#ifndef SANITIZED
using namespace cli;

namespace {

void check_peak(const char* what, const Args& model) {
  Scratch scratch;
  scratch.config();
  Args run = {"run", "config.toml", "--out", "run"}, plan = {"plan", "config.toml", "--json"};
  for (Args* args : {&run, &plan}) args->insert(args->end(), model.begin(), model.end());
  const Json planned = Json::parse(engine(scratch, plan).out);
  const Result result = engine(scratch, run, {900, 0});
  INFO(result.err);
  REQUIRE(result.exit == 0);
  const double promise = planned.at("ranks").at(0).at("host_peak_bytes").get<double>();
  const double arenas = planned.at("ranks").at(0).at("device_peak_bytes").get<double>();
  const double peak = static_cast<double>(result.peak_bytes());
  WARN(what << ": " << planned.at("parameters") << " parameters, planned " << promise << ", measured " << peak << " ("
            << (peak / promise - 1) * 100 << " %), beyond the arenas " << peak - arenas);
  CHECK(std::abs(peak / promise - 1) < 0.01);
}

}  // namespace

TEST_CASE("peak memory of a model of 33 million parameters", "[cli][.slow]") {
  check_peak("33M", {"model.preset=bench", "model.vocab_size=8000", "model.hidden_size=512",
                     "model.intermediate_size=1376", "model.num_attention_heads=8", "model.num_hidden_layers=8",
                     "train.steps=2", "train.eval_every=2", "train.sequence_length=64", "device.threads=0"});
}

TEST_CASE("peak memory of a model of 162 million parameters", "[cli][.slow]") {
  check_peak("162M", {"model.preset=160m", "model.hidden_size=768", "model.intermediate_size=3072",
                      "model.num_attention_heads=12", "model.num_hidden_layers=12", "train.steps=2",
                      "train.eval_every=2", "train.sequence_length=64", "device.threads=0"});
}

TEST_CASE("peak memory if layers keep only their input", "[cli][.slow]") {
  for (const char* how : {"recompute.policy=full", "recompute.blocks=3"})
    check_peak(how,
               {"model.preset=bench", "model.vocab_size=8000", "model.hidden_size=512", "model.intermediate_size=1376",
                "model.num_attention_heads=8", "model.num_hidden_layers=8", "train.steps=2", "train.eval_every=2",
                "train.micro_batch=8", "train.sequence_length=256", "device.threads=0", how});
}

TEST_CASE("peak memory of many narrow layers, with the plan itself", "[cli][.slow]") {
  for (const char* more : {"checkpoint.asynchronous=false", "checkpoint.asynchronous=true", "train.accumulate=4"})
    check_peak(more, {"model.num_hidden_layers=64", "model.hidden_size=128", "train.steps=2", more});
}

TEST_CASE("plan of a 7B model is quick and small", "[cli]") {
  Scratch scratch;
  scratch.write("7b.toml", "[model]\nplugin = \"llama\"\npreset = \"7b\"\n");
  const Result plan = engine(scratch, {"plan", "7b.toml", "--json"});
  REQUIRE(plan.exit == 0);
  CHECK(Json::parse(plan.out).at("parameters") == 6738415616);
  // Processor seconds: what a busy machine adds to the clock is not the plan's.
  const double seconds = static_cast<double>(plan.usage.ru_utime.tv_sec + plan.usage.ru_stime.tv_sec) +
                         static_cast<double>(plan.usage.ru_utime.tv_usec + plan.usage.ru_stime.tv_usec) * 1e-6;
  WARN("7B planned in " << seconds << " s of processor time, " << plan.seconds << " s by the clock, peak "
                        << plan.peak_bytes() / (1 << 20) << " MiB");
  CHECK(seconds < 2);
  CHECK(plan.peak_bytes() < 200'000'000);
}
#endif
