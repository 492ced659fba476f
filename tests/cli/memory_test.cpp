// SPDX-License-Identifier: Apache-2.0
// The process takes the planned memory within 1 %; planning itself takes little.
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "../sanitized.hpp"
#include "harness.hpp"

#ifndef SANITIZED
using namespace cli;

namespace {

// The peak that was measured.
double check_peak(const char* what, const Args& model) {
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
  return peak;
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

// The model and batch of benchmarks/step/llama_58m.toml.
TEST_CASE("peak memory of formats: bf16_sr takes at most 0.65 of fp32", "[cli][.slow]") {
  const auto peak = [](const std::string& format) {
    return check_peak(format.c_str(), {"model.preset=bench", "model.hidden_size=512", "model.intermediate_size=1376",
                                       "model.num_attention_heads=8", "model.num_hidden_layers=8", "train.steps=2",
                                       "train.eval_every=2", "train.micro_batch=8", "train.sequence_length=256",
                                       "device.threads=0", "precision.plugin=" + format});
  };
  const double fp32 = peak("fp32"), rounded = peak("bf16_sr");
  peak("bf16");
  CHECK(rounded <= 0.65 * fp32);
}

TEST_CASE("peak memory if layers keep only their input", "[cli][.slow]") {
  for (const char* how : {"recompute.policy=full", "recompute.blocks=3"})
    check_peak(how,
               {"model.preset=bench", "model.vocab_size=8000", "model.hidden_size=512", "model.intermediate_size=1376",
                "model.num_attention_heads=8", "model.num_hidden_layers=8", "train.steps=2", "train.eval_every=2",
                "train.micro_batch=4", "train.sequence_length=256", "device.threads=0", how});
}

TEST_CASE("peak memory of many narrow layers, with the plan itself", "[cli][.slow]") {
  for (const char* more : {"checkpoint.asynchronous=false", "checkpoint.asynchronous=true", "train.accumulate=4"})
    check_peak(more, {"model.num_hidden_layers=64", "model.hidden_size=128", "train.steps=2", more});
}

TEST_CASE("peak memory with states in host memory", "[cli][.slow]") {
  const Args early = {"offload.update_early=true", "offload.early_share=0.6"};
  for (const Args& how : {Args{"offload.update=host"}, {"offload.update=device"}, {"offload.ratio=0.3"}, early}) {
    Args words = {"model.preset=bench",
                  "model.vocab_size=8000",
                  "model.hidden_size=512",
                  "model.intermediate_size=1376",
                  "model.num_attention_heads=8",
                  "model.num_hidden_layers=8",
                  "train.steps=2",
                  "train.eval_every=2",
                  "train.sequence_length=64",
                  "device.threads=0",
                  "precision.plugin=bf16",
                  "zero.bucket=2MiB",
                  "offload.optimizer=host",
                  "offload.gradients=host",
                  "offload.parameters=host",
                  "offload.activations=host"};
    words.insert(words.end(), how.begin(), how.end());
    check_peak(how[0].c_str(), words);
  }
}

TEST_CASE("plan of a 7B model is quick and small", "[cli]") {
  Scratch scratch;
  scratch.write("7b.toml", "[model]\nplugin = \"llama\"\npreset = \"7b\"\n");
  const Result plan = engine(scratch, {"plan", "7b.toml", "--json"});
  REQUIRE((plan.exit == 0 || plan.exit == 6));  // as it fits this machine
  CHECK(Json::parse(plan.out).at("parameters") == 6738415616);
  // Processor seconds: what a busy machine adds to the clock is not the plan's.
  const double seconds = static_cast<double>(plan.usage.ru_utime.tv_sec + plan.usage.ru_stime.tv_sec) +
                         static_cast<double>(plan.usage.ru_utime.tv_usec + plan.usage.ru_stime.tv_usec) * 1e-6;
  WARN("7B planned in " << seconds << " s of processor time, " << plan.seconds << " s by the clock, peak "
                        << plan.peak_bytes() / (1 << 20) << " MiB");
  CHECK(seconds < 2);
  CHECK(plan.peak_bytes() < 200'000'000);
}

TEST_CASE("a plan that does not fit is printed before what would fit is looked for", "[cli]") {
  Scratch scratch;
  const std::string file =
      scratch.write("7b.toml", "[model]\nplugin = \"llama\"\npreset = \"7b\"\n[host]\nmemory = \"24GiB\"\n").string();
  FILE* const plan = popen((std::string(ENGINE_COMMAND) + " plan " + file).c_str(), "r");
  REQUIRE(plan);
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> peak, proposal;
  for (char line[4096]; std::fgets(line, sizeof line, plan);) {
    if (has(line, "DOES NOT FIT") && !peak) peak = Clock::now();
    if (has(line, "would fit") && !proposal) proposal = Clock::now();
  }
  CHECK(WEXITSTATUS(pclose(plan)) == 6);
  REQUIRE((peak && proposal));
  CHECK(*proposal - *peak > std::chrono::milliseconds(50));  // they did not come together
}

TEST_CASE("plan of a very long sequence holds its tables once", "[cli]") {
  Scratch scratch;
  scratch.write("long.toml", "[model]\nplugin = \"llama\"\npreset = \"tiny\"\nhead_dim = 8\n");
  const Result plan = engine(scratch, {"plan", "long.toml", "train.sequence_length=2000000", "--json"});
  REQUIRE((plan.exit == 0 || plan.exit == 6));
  constexpr uint64_t table = uint64_t{2'000'000} * 8 * 4;
  CHECK(Json::parse(plan.out).at("ranks").at(0).at("bookkeeping_bytes") > table);
  CHECK(plan.peak_bytes() < table * 3 / 2 + 20'000'000);
}

TEST_CASE("a run counts the text that it keeps, and does not grow with the text that it reads", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  std::string text;  // 24 MiB
  while (text.size() < (24u << 20))
    text += "line " + std::to_string(text.size()) + " of a text that is read from disk\n";
  scratch.write("large.txt", text);
  std::string lines;  // of 6 MiB of text
  for (std::string_view rest = std::string_view(text).substr(0, 6 << 20); !rest.empty(); rest.remove_prefix(1 << 16))
    lines += Json{{"text", std::string(rest.substr(0, 1 << 16))}}.dump() + "\n";
  scratch.write("kept.jsonl", lines);
  double before = 0;  // measured - planned, of the first run
  for (const std::string file : {"text.txt", "large.txt", "kept.jsonl"}) {
    Args args = {"run",
                 "config.toml",
                 "--out",
                 file + ".run",
                 "data.paths=[\"" + file + "\"]",
                 "data.tokenizer=bytes",
                 "model.hidden_size=128",
                 "model.intermediate_size=344",
                 "train.steps=20",
                 "train.micro_batch=32",
                 "train.eval_every=20"};
    REQUIRE(engine(scratch, args).exit == 0);
    const std::string plan = read(scratch / args[3] / "plan.txt");
    const double planned = std::atof(plan.substr(plan.find("process peak") + 12).c_str());
    const double more = column(scratch / args[3], "host_peak_bytes").back() - planned;
    INFO(file << ": planned " << planned << ", measured " << more << " more");
    if (file == "text.txt") before = more;
    CHECK(std::abs(more - before) < 1048576);
    CHECK(has(plan, "text in memory") == (file != "large.txt"));
    // A run that does not fit with the text is refused before it begins.
    args[3] = "refused";
    args.push_back("host.memory=" + std::to_string(static_cast<int64_t>(planned) - 1'000'000));
    const Result refused = engine(scratch, args);
    INFO(refused.err);
    CHECK(refused.exit == 6);
    CHECK(has(refused.err, "of text in memory") == (file == "kept.jsonl"));
    CHECK_FALSE(fs::exists(scratch / "refused"));
  }
}

TEST_CASE("metrics tell the run's own memory, not that of the process which started it", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string large(size_t{256} << 20, '.');
  const Result run = engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=1"});
  REQUIRE(run.exit == 0);
  CHECK(run.peak_bytes() > large.size());  // as getrusage tells it
  CHECK(column(scratch / "run", "host_peak_bytes").at(0) < static_cast<double>(large.size()));
}
#endif
