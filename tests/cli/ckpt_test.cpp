// SPDX-License-Identifier: Apache-2.0
// engine ckpt, and checkpoints that are written while steps go on.
#include <csignal>
#include <fstream>
#include <regex>

#include "harness.hpp"

using namespace cli;

namespace {

// A run of 8 steps with checkpoints at 4 and 8.
fs::path finished(const Scratch& scratch, const char* name = "run", const Args& more = {}) {
  scratch.config();
  Args args = {"run", "config.toml", "--out", name};
  args.insert(args.end(), more.begin(), more.end());
  const Result result = engine(scratch, args);
  INFO(result.err);
  REQUIRE(result.exit == 0);
  return scratch / name;
}

}  // namespace

TEST_CASE("checkpoints written beside the steps are those of a run that waits", "[cli]") {
  Scratch scratch;
  const fs::path waits = finished(scratch, "waits", {"checkpoint.every=1", "checkpoint.keep=0"});
  const fs::path beside =
      finished(scratch, "beside", {"checkpoint.every=1", "checkpoint.keep=0", "checkpoint.asynchronous=true"});
  CHECK(numbers(beside) == numbers(waits));
  for (const int64_t step : {1, 2, 5, 8}) CHECK((tensors(beside, step) == tensors(waits, step)));
  CHECK(names(beside / "checkpoints") == names(waits / "checkpoints"));
  CHECK(state(beside).at("last_checkpoint") == "step-00000008");
  CHECK(engine(scratch, {"ckpt", "verify", "beside"}).exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "beside", "waits"}).exit == 0);
  // Going on from any of them gives the same end.
  CHECK(engine(scratch, {"run", "beside", "--resume", "3"}).exit == 0);
  CHECK((tensors(beside, 8) == tensors(waits, 8)));

  // The plan lists the memory of the copy: all that a checkpoint holds.
  const Json with = Json::parse(engine(scratch, {"plan", "config.toml", "--json", "checkpoint.asynchronous=true"}).out);
  const Json without = Json::parse(engine(scratch, {"plan", "config.toml", "--json"}).out);
  uint64_t held = 0;
  const Json manifest = Json::parse(read(checkpoint(waits, 8) / "manifest.json"));
  for (const Json& t : manifest.at("tensors"))
    for (const Json& slice : t.at("slices")) held += slice.at("count").get<uint64_t>() * sizeof(float);
  const auto peak = [](const Json& plan) { return plan.at("ranks").at(0).at("host_peak_bytes").get<uint64_t>(); };
  CHECK(peak(with) - peak(without) == held);
  CHECK(has(read(beside / "plan.txt"), "  snapshot "));
  CHECK_FALSE(has(read(waits / "plan.txt"), "  snapshot "));
}

TEST_CASE("stopped or killed while a checkpoint is written beside the steps", "[cli][.slow]") {
  Scratch scratch;
  const Args more = {"checkpoint.every=1", "checkpoint.asynchronous=true", "train.steps=30"};
  const fs::path whole = finished(scratch, "whole", more);
  for (const int number : {SIGTERM, SIGKILL}) {
    INFO("signal " << number);
    const std::string name = number == SIGTERM ? "stopped" : "killed";
    Args args = {"run", "config.toml", "--out", name};
    args.insert(args.end(), more.begin(), more.end());
    {
      Child child(scratch, args);
      REQUIRE(child.wait_for("saved step-00000003"));
      child.signal(number);
      const Result result = child.wait();
      CHECK(result.exit == (number == SIGTERM ? 75 : 128 + SIGKILL));
    }
    if (number == SIGTERM) {  // it waited for the one under way
      CHECK(engine(scratch, {"ckpt", "verify", name}).exit == 0);
      const Json left = state(scratch / name);
      CHECK(left.at("last_checkpoint") == (checkpoint("", left.at("step")).filename().string()));
    }
    const Result on = engine(scratch, {"run", name});
    INFO(on.err);
    CHECK(on.exit == 0);
    CHECK(numbers(scratch / name) == numbers(whole));
    CHECK((tensors(scratch / name, 30) == tensors(whole, 30)));
    for (const std::string& entry : names(scratch / name / "checkpoints")) CHECK(entry[0] != '.');
  }
}

TEST_CASE("a run that saves nothing asks for no disk, and says so", "[cli]") {
  Scratch scratch;
  const Args none = {"checkpoint.every=0", "checkpoint.last=false"};
  const auto with = [&](Args words, const Args& more = {}) {
    for (const Args& list : {none, more}) words.insert(words.end(), list.begin(), list.end());
    return words;
  };
  scratch.config();
  const Result check = engine(scratch, with({"check", "config.toml"}));
  INFO(check.err);
  CHECK(check.exit == 0);
  CHECK(has(check.out, "no checkpoint is saved"));
  CHECK_FALSE(has(check.out, "free"));
  const Result plan = engine(scratch, with({"plan", "config.toml"}));
  CHECK(has(plan.out, "checkpoint          none: the run saves nothing"));
  CHECK(Json::parse(engine(scratch, with({"plan", "config.toml", "--json"})).out).at("checkpoint_bytes") == 0);
  const Result run = engine(scratch, with({"run", "config.toml", "--out", "run"}));
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(has(run.err, "saves nothing: checkpoint.every = 0 and checkpoint.last = false"));
  CHECK(has(run.err, "saved:  nothing"));
  CHECK_FALSE(has(run.err, "longer:"));
  CHECK_FALSE(has(run.err, "engine eval"));
  CHECK(names(scratch / "run" / "checkpoints").empty());
  CHECK(state(scratch / "run").at("last_checkpoint").is_null());
  // Stopped, it saves nothing either.
  const Args long_one = {"train.steps=100000"};
  Child child(scratch, with({"run", "config.toml", "--out", "stopped"}, long_one));
  REQUIRE(child.wait_for("step 2/"));
  child.signal(SIGTERM);
  const Result stopped = child.wait();
  INFO(stopped.err);
  CHECK(stopped.exit == 75);
  CHECK(has(stopped.err, "stopped by SIGTERM; nothing was saved, so it cannot be resumed"));
  CHECK(names(scratch / "stopped" / "checkpoints").empty());
  // Without the last one only: what is due is saved, and a stop saves.
  const Result due =
      engine(scratch, {"run", "config.toml", "--out", "due", "checkpoint.every=3", "checkpoint.last=false"});
  CHECK(names(scratch / "due" / "checkpoints") == std::vector<std::string>{"step-00000003", "step-00000006"});
  CHECK(has(due.err, "longer:"));
}

TEST_CASE("a full disk while a checkpoint is written beside the steps", "[cli]") {
  Scratch scratch;
  const fs::path run = finished(scratch, "run", {"train.steps=4"});
  const uint64_t half = fs::file_size(checkpoint(run, 4) / "model-00000.safetensors") / 2;
  const Result full = engine(scratch, {"run", "run", "train.steps=8", "checkpoint.asynchronous=true"}, {120, half});
  INFO(full.err);
  CHECK(full.exit == 10);
  CHECK(has(full.err, "model-00000.safetensors"));
  CHECK(names(run / "checkpoints") == std::vector<std::string>{"step-00000004"});
}

TEST_CASE("a step that is not finite leaves the checkpoint that was under way", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result run = engine(scratch, {"run", "config.toml", "--out", "run", "optimizer.learning_rate=1e30",
                                      "checkpoint.every=1", "checkpoint.asynchronous=true", "train.grad_clip=0"});
  INFO(run.err);
  CHECK(run.exit == 7);
  const Json left = state(scratch / "run");
  CHECK(has(run.err, "the last checkpoint is " + left.at("last_checkpoint").get<std::string>()));
  CHECK(left.at("last_checkpoint") == (checkpoint("", left.at("step")).filename().string()));
  CHECK(engine(scratch, {"ckpt", "verify", "run"}).exit == 0);
}

TEST_CASE("ckpt diff", "[cli]") {
  Scratch scratch;
  const fs::path run = finished(scratch);
  const std::string four = checkpoint(run, 4).string(), eight = checkpoint(run, 8).string();
  const Result same = engine(scratch, {"ckpt", "diff", "run", eight});
  INFO(same.err);
  CHECK(same.exit == 0);
  CHECK(has(same.out, "lm_head.weight  equal\n"));
  CHECK(std::regex_search(same.out, std::regex(R"(\n(\d+) tensors: \1 equal, 0 not\n)")));
  const Result other = engine(scratch, {"ckpt", "diff", four, eight});
  CHECK(other.exit == 9);
  CHECK(std::regex_search(
      other.out,
      std::regex(R"(lm_head\.weight  \d+ of 8192 elements differ, max \|a-b\| [0-9.e-]+, max relative \S+)")));
  CHECK(has(other.out, "lm_head.weight exp_avg  "));
  fs::copy(run, scratch / "copy", fs::copy_options::recursive);
  finished(scratch, "wide", {"model.intermediate_size=96"});
  const Result wide = engine(scratch, {"ckpt", "diff", "run", "wide"});
  CHECK(wide.exit == 9);
  CHECK(has(wide.out, "model.layers.0.mlp.up_proj.weight  F32 [64, 32] and F32 [96, 32]\n"));
  finished(scratch, "deep", {"model.num_hidden_layers=3"});
  const Result deep = engine(scratch, {"ckpt", "diff", "run", "deep"});
  CHECK(deep.exit == 9);
  CHECK(has(deep.out, "model.layers.2.mlp.up_proj.weight  only in deep\n"));
  CHECK(has(engine(scratch, {"ckpt", "diff", "deep", "run"}).out, "model.layers.2.mlp.up_proj.weight  only in deep\n"));
  // A damaged checkpoint is not compared.
  fs::resize_file(checkpoint(scratch / "copy", 8) / "model-00000.safetensors", 100);
  const Result damaged = engine(scratch, {"ckpt", "diff", eight, checkpoint(scratch / "copy", 8).string()});
  CHECK(damaged.exit == 9);
  CHECK(has(damaged.err, "model-00000.safetensors"));
  CHECK(damaged.out.empty());
  CHECK(has(engine(scratch, {"ckpt", "diff", "run", "copy"}).err, "step-00000008 is not used"));
  CHECK(engine(scratch, {"ckpt", "diff", "run", "none"}).exit == 9);
}

TEST_CASE("a checkpoint that is not there is not taken for a damaged one", "[cli]") {
  Scratch scratch;
  const std::string absent = (finished(scratch) / "checkpoints/step-00000099").string();
  for (const Args& args : {Args{"ckpt", "ls", absent}, {"ckpt", "verify", absent}, {"ckpt", "diff", absent, "run"}}) {
    const Result result = engine(scratch, args);
    INFO(result.err);
    CHECK(result.exit == 9);
    CHECK(std::regex_search(result.err, std::regex("step-00000099: there is no (undamaged )?checkpoint here\n")));
  }
}

TEST_CASE("ckpt gc", "[cli]") {
  Scratch scratch;
  const fs::path run = finished(scratch, "run", {"checkpoint.every=2"});
  const fs::path at = run / "checkpoints";
  fs::create_directories(at / ".tmp-step-00000009");
  fs::copy(checkpoint(run, 8), at / "aside-step-00000012", fs::copy_options::recursive);
  const auto all = names(at);
  const Result dry = engine(scratch, {"ckpt", "gc", "run", "--keep", "1", "--dry-run"});
  INFO(dry.err);
  CHECK(dry.exit == 0);
  CHECK(names(at) == all);
  for (const char* name : {".tmp-step-00000009", "aside-step-00000012", "step-00000004", "step-00000006"})
    CHECK(has(dry.out, std::string("would remove ") + name + "  "));
  CHECK_FALSE(has(dry.out, "remove step-00000008"));
  const Result plain = engine(scratch, {"ckpt", "gc", "run"});
  CHECK(plain.exit == 0);
  CHECK(names(at) == std::vector<std::string>{"step-00000004", "step-00000006", "step-00000008"});
  // The newest is damaged: the newest good one stays, whatever is to be kept, and so does the damaged one.
  std::fstream(checkpoint(run, 8) / "model-00000.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(5000)
      .put('x');
  const Result keep = engine(scratch, {"ckpt", "gc", "run", "--keep", "1"});
  CHECK(keep.exit == 0);
  CHECK(has(keep.out, "the newest undamaged checkpoint is step-00000006"));
  CHECK(names(at) == std::vector<std::string>{"step-00000006", "step-00000008"});
  fs::remove(checkpoint(run, 6) / "manifest.json");
  const Result none = engine(scratch, {"ckpt", "gc", "run", "--keep", "1"});
  CHECK(none.exit == 9);
  CHECK(has(none.err, "nothing is removed"));
  CHECK(names(at).size() == 2);
  CHECK(engine(scratch, {"ckpt", "gc", "text.txt"}).exit == 2);
  CHECK(engine(scratch, {"ckpt", "gc", "run", "--keep", "0"}).exit == 2);
  // Not while it trains.
  Child child(scratch, {"run", "config.toml", "--out", "busy", "train.steps=100000"});
  REQUIRE(child.wait_for("step 2/"));
  const Result busy = engine(scratch, {"ckpt", "gc", "busy"});
  CHECK(busy.exit == 2);
  CHECK(has(busy.err, "is in use by process"));
}
