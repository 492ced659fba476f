// SPDX-License-Identifier: Apache-2.0
// 16-bit formats as users meet them: skipped steps, the end at the smallest loss scale, checkpoints in other formats.
#include <cmath>
#include <sstream>

#include "harness.hpp"

using namespace cli;

namespace {

// The first scale is so large that some steps overflow.
const Args overflows = {
    "train.eval_every=0", "precision.plugin=fp16",  "precision.initial_scale_power=30", "precision.loss_scale_window=3",
    "train.steps=16",     "schedule.kind=constant", "schedule.warmup_steps=12"};

Args with(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace

TEST_CASE("fp16: steps that overflow are skipped, told, and do not advance the schedule", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result run = good(scratch, with({"run", "config.toml", "--out", "run", "log.every=1"}, overflows));
  const std::vector<Json> steps = metrics(scratch / "run");
  REQUIRE(steps.size() == 16);
  size_t skipped = 0;
  std::vector<double> rates;  // of the updates that count
  for (const Json& step : steps) {
    const bool skip = step.value("skipped", false);
    CHECK(step.at("grad_norm").is_null() == skip);
    if (skip) {
      ++skipped;
      CHECK(has(run.err + run.out, "skipped: overflow at loss scale"));
    } else {
      rates.push_back(step.at("lr"));
    }
  }
  CHECK(steps[0].at("loss_scale") == 0x1p30);
  CHECK(steps[0].value("skipped", false));
  CHECK(skipped > 4);
  CHECK(skipped < 16);
  // The rates are those of a run that skips nothing.
  good(scratch, {"run", "config.toml", "--out", "plain", "train.steps=16", "schedule.kind=constant",
                 "schedule.warmup_steps=12"});
  const std::vector<Json> plain = metrics(scratch / "plain");
  for (size_t k = 0; k < rates.size(); ++k) CHECK(rates[k] == plain[k].at("lr"));
}

TEST_CASE("fp16: a run interrupted among skipped steps goes on with the same bits", "[cli]") {
  Scratch scratch;
  scratch.config();
  good(scratch, with({"run", "config.toml", "--out", "whole"}, overflows));
  for (const char* at : {"2", "9"}) {
    const std::string parts = std::string("parts") + at;
    good(scratch, with(with({"run", "config.toml", "--out", parts}, overflows), {std::string("train.steps=") + at}));
    good(scratch, {"run", parts, "train.steps=16"});
    CHECK(numbers(scratch / "whole") == numbers(scratch / parts));
    CHECK((tensors(scratch / "whole", 16) == tensors(scratch / parts, 16)));
  }
}

TEST_CASE("fp16: an overflow at the smallest loss scale ends the run and names the tensor", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result run =
      engine(scratch, with({"run", "config.toml", "--out", "run"}, with(overflows, {"precision.min_loss_scale=1e9"})));
  CHECK(run.exit == 7);
  CHECK(has(run.err, "the gradient norm is not finite"));
  CHECK(has(run.err, "loss scale 1000000000"));
  CHECK(has(run.err, "first seen in eng."));
  CHECK(has(run.err, "f16"));
  // A scale of 2^30 is halved once to the minimum.
  CHECK(metrics(scratch / "run").size() >= 1);
}

TEST_CASE("bad values of a loss scale have their message", "[cli]") {
  Scratch scratch;
  scratch.config();
  for (const auto& [word, said] : {std::pair("precision.initial_scale_power=127", "initial_scale_power"),
                                   {"precision.loss_scale_window=0", "loss_scale_window"},
                                   {"precision.hysteresis=0", "hysteresis"},
                                   {"precision.min_loss_scale=0", "min_loss_scale"},
                                   {"precision.min_loss_scale=1e6", "min_loss_scale"},
                                   {"precision.loss_scale=-1", "loss_scale"}}) {
    const Result run = engine(scratch, {"check", "config.toml", "precision.plugin=fp16", word});
    INFO(word << "\n" << run.err);
    CHECK(run.exit == 2);
    CHECK(has(run.err, said));
  }
  const Result none = engine(scratch, {"check", "config.toml", "precision.plugin=bf16", "precision.loss_scale=128"});
  CHECK(none.exit == 2);
  CHECK(has(none.err, "loss_scale"));
}

TEST_CASE("bf16_sr: a run that was interrupted goes on with the same bits", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args format = {"precision.plugin=bf16_sr", "train.accumulate=2", "schedule.kind=constant",
                       "train.eval_every=0"};
  good(scratch, with({"run", "config.toml", "--out", "whole", "train.steps=6"}, format));
  good(scratch, with({"run", "config.toml", "--out", "parts", "train.steps=2"}, format));
  good(scratch, {"run", "parts", "train.steps=5"});
  good(scratch, {"run", "parts", "train.steps=6"});
  CHECK(numbers(scratch / "whole") == numbers(scratch / "parts"));
  CHECK((tensors(scratch / "whole", 6) == tensors(scratch / "parts", 6)));
  // Two bytes for each weight and moment. In bf16 there are four, and the bits are others.
  good(scratch, with({"run", "config.toml", "--out", "bf16", "train.steps=6"}, {"precision.plugin=bf16"}));
  size_t bytes = 0, wide = 0;
  for (const auto& [name, data] : tensors(scratch / "whole", 6)) bytes += data.size();
  for (const auto& [name, data] : tensors(scratch / "bf16", 6)) wide += data.size();
  CHECK(double(bytes) < 0.52 * double(wide));  // with the headers of the files
  CHECK(numbers(scratch / "whole") != numbers(scratch / "bf16"));
}

TEST_CASE("bf16_sr: optimizers that cannot round stochastically say what to change", "[cli]") {
  Scratch scratch;
  scratch.config();
  for (const std::string name : {"muon", "adamw8bit"}) {
    const Result run =
        engine(scratch, {"check", "config.toml", "precision.plugin=bf16_sr", "optimizer.plugin=" + name});
    INFO(run.err);
    CHECK(run.exit == 2);
    CHECK(has(run.err, name + " needs masters in f32"));
    CHECK(has(run.err, "optimizer.plugin = \"adamw\""));
  }
  const Result wrong = engine(scratch, {"check", "config.toml", "precision.plugin=bf16_sr", "precision.gradients=f16"});
  CHECK(wrong.exit == 2);
  CHECK(has(wrong.err, "gradients"));
}

TEST_CASE("a checkpoint of any format goes on, is evaluated and generates in any other", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args formats = {"fp32", "bf16", "bf16_sr", "fp16"};
  const auto alike = [](const std::string& a, const std::string& b) {  // without training they are the same
    return a == b || (a.starts_with("bf16") && b.starts_with("bf16"));
  };
  for (const std::string& format : formats) {
    good(scratch, {"run", "config.toml", "--out", format, "precision.plugin=" + format, "train.steps=4"});
    const Result own = good(scratch, {"eval", format, "--batches", "2", "--json"});
    const double loss = Json::parse(own.out).at("loss");
    for (const std::string& other : formats) {
      const std::string word = "precision.plugin=" + other;
      const Result seen = good(scratch, {"eval", format, "--batches", "2", "--json", word});
      const double theirs = Json::parse(seen.out).at("loss");
      CHECK(std::abs(theirs - loss) < 0.01);
      CHECK((theirs == loss) == alike(other, format));
      good(scratch, {"generate", format, "a", "--tokens", "3", word});
      const std::string copy = format + "-" + other;
      fs::copy(scratch / format, scratch / copy, fs::copy_options::recursive);
      good(scratch, {"run", copy, "train.steps=6", word});
      CHECK(metrics(scratch / copy).size() == 6);
    }
  }
}
