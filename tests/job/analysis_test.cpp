// SPDX-License-Identifier: Apache-2.0
// A job from its plan to its results: what it computes, what is restored, and that nothing that happens on the way
// changes a bit.
#include <signal.h>

#include <cmath>

#include "analyses.hpp"

using namespace job_test;

namespace {

constexpr const char* one = "0000000000000001";

}  // namespace

TEST_CASE("a job computes, restores, saves and writes, twice with the same bits", "[job]") {
  Scratch scratch;
  scratch.config();
  const auto first = analysed(scratch, "first"), second = analysed(scratch, "second");
  CHECK(first == second);
  CHECK(first.at("windows") != "0000000000000000");
  CHECK(result(scratch / "first", "written.txt") ==
        std::map<std::string, std::string>{{"back", one}, {"moved", one}, {"restored", one}, {"written", one}});
  const auto sites = result(scratch / "first", "sites.txt");
  CHECK((sites.at("some") == one && sites.at("still") == one));
  CHECK(sites.at("numbers") != "0000000000000000");
  CHECK(names(scratch / "first" / "checkpoints") == std::vector<std::string>{"step-00000003"});
  // Each of these has its effect.
  CHECK(analysed(scratch, "other seed", {"train.seed=2"}).at("parameters") != first.at("parameters"));
  const auto other = analysed(scratch, "other rate", {"job.rate=0.02"});
  CHECK((other.at("losses") != first.at("losses") && other.at("sum") == first.at("sum")));
  CHECK(analysed(scratch, "fewer", {"job.turns=2"}).at("sum") != first.at("sum"));
  CHECK(analysed(scratch, "larger", {"job.windows=8"}).at("gradient") != first.at("gradient"));
}

TEST_CASE("a job sees the fields of windows and the losses of their positions", "[job]") {
  Scratch scratch;
  scratch.config();
  const Result done = engine(scratch, words({"config.toml", "--job", "positions", "--out", "out"}));
  INFO(done.err);
  REQUIRE(done.exit == 0);
  CHECK(read(scratch / "out" / "positions.txt") == "agree 1\ncounted 1\nfollow 1\nsilent 1\n");
}

TEST_CASE("a job with other formats, tiers and recomputation", "[job][.slow]") {
  Scratch scratch;
  scratch.config();
  const auto plain = analysed(scratch, "plain");
  for (const char* same : {"recompute.policy=full", "offload.optimizer=host", "offload.gradients=host",
                           "offload.parameters=host", "device.threads=2", "checkpoint.asynchronous=true"}) {
    INFO(same);
    CHECK(analysed(scratch, std::string("with ") + same, {same}) == plain);
  }
  CHECK(analysed(scratch, "device", {"offload.optimizer=host", "offload.update=device"}) == plain);
  const auto half = analysed(scratch, "bf16", {"precision.plugin=bf16"});
  CHECK(half.at("losses") != plain.at("losses"));
  CHECK(analysed(scratch, "bf16 again", {"precision.plugin=bf16", "offload.optimizer=host"}) == half);
  scratch.write("opt.toml",
                "[model]\nplugin = \"opt\"\npreset = \"tiny\"\n[data]\npaths = [\"text.txt\"]\nvalidation = 0.1\n"
                "[train]\nsequence_length = 32\n[device]\nthreads = 1\n");
  analysed(scratch, "opt", {}, "opt.toml");
}

TEST_CASE("an analysis that was killed or stopped ends with the bits of one that was not", "[job][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args turns = {"job.turns=6"};
  const auto whole = analysed(scratch, "whole", turns);
  for (const int number : {SIGKILL, SIGINT, SIGTERM}) {
    INFO(number);
    const std::string out = "part " + std::to_string(number);
    const std::string saves = number == SIGTERM ? "true" : "false";  // written while the job goes on, or at once
    Child child(scratch, words(with({"config.toml", "--job", "fixture", "--out", out, "job.pause=300",
                                     "checkpoint.asynchronous=" + saves},
                                    turns)));
    REQUIRE(child.wait_for_path(scratch / out / "checkpoints" / "step-00000002" / "manifest.json"));
    child.signal(number);
    const Result stopped = child.wait();
    INFO(stopped.err);
    CHECK_FALSE(fs::exists(scratch / out / "result.txt"));
    if (number == SIGKILL) {
      CHECK(stopped.killed);
      CHECK(state(scratch / out).at("status") == "running");
    } else {
      CHECK(stopped.exit == 75);
      CHECK(has(stopped.err, "resume with:  engine analyse "));
      CHECK(state(scratch / out).at("status") == "stopped");
      CHECK(state(scratch / out).at("exit_code") == 75);
    }
    const Result on = engine(scratch, words({out, "job.pause=300"}));
    INFO(on.err);
    REQUIRE(on.exit == 0);
    CHECK(has(on.err, "resumes from step-0000000"));
    CHECK(result(scratch / out) == whole);
    CHECK(Json::parse(read(scratch / out / "run.json")).at("attempt") == 2);
  }
}

TEST_CASE("a damaged save of an analysis is told; without another one it ends with 9", "[job][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args turns = {"job.turns=4"};
  const auto whole = analysed(scratch, "whole", turns);
  const fs::path saves = scratch / "part" / "checkpoints";
  const auto saved = [&] {
    std::string newest;
    for (const std::string& name : names(saves))
      if (name.starts_with("step-")) newest = name;
    return newest;
  };
  const auto damage = [&](const std::string& name) {
    for (const auto& file : fs::directory_iterator(saves / name))
      if (file.path().extension() == ".safetensors") fs::resize_file(file.path(), fs::file_size(file.path()) - 1);
  };
  {
    Child child(scratch, words(with({"config.toml", "--job", "fixture", "--out", "part", "job.pause=300"}, turns)));
    REQUIRE(child.wait_for_path(saves / "step-00000001" / "manifest.json"));
    child.signal(SIGKILL);
    child.wait();
  }
  const std::string older = saved();
  fs::copy(saves / older, scratch / "kept", fs::copy_options::recursive);
  REQUIRE(engine(scratch, words({"part"})).exit == 0);
  // Nothing else is there.
  const std::string newest = saved();
  REQUIRE(newest > older);
  damage(newest);
  fs::remove(scratch / "part" / "result.txt");
  for (int k = 0; k < 2; ++k) {
    const Result none = engine(scratch, words({"part"}));
    INFO(none.err);
    CHECK(none.exit == 9);
    CHECK(has(none.err, newest + " is not used: "));
    CHECK(has(none.err, "no checkpoint of part is usable"));
    CHECK(has(none.err, "start a new analysis, or remove the damaged checkpoints"));
    CHECK(saved() == newest);
    CHECK_FALSE(fs::exists(scratch / "part" / "result.txt"));
  }
  // An older one is.
  fs::rename(scratch / "kept", saves / older);
  const Result on = engine(scratch, words({"part"}));
  INFO(on.err);
  CHECK(on.exit == 0);
  CHECK(has(on.err, newest + " is not used: "));
  CHECK(has(on.err, "resumes from " + older));
  CHECK(result(scratch / "part") == whole);
  CHECK(names(saves) == std::vector<std::string>{"aside-" + newest, newest});
  // A linked folder is not followed.
  fs::rename(saves, scratch / "elsewhere");
  fs::create_directory_symlink(scratch / "elsewhere", saves);
  const Result linked = engine(scratch, words({"part"}));
  CHECK(linked.exit == 10);
  CHECK(has(linked.err, "checkpoints is a symbolic link"));
}

TEST_CASE("an analysis reads the weights of a run, and goes on with them", "[job]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "run"});
  const auto fresh = analysed(scratch, "fresh");
  const auto trained = analysed(scratch, "trained", {}, "run");
  CHECK(trained.at("parameters") != fresh.at("parameters"));
  const std::string config = read(scratch / "config.toml");
  scratch.write("from.toml", "[model]\nfrom = \"run\"\n" + config.substr(config.find("[data]")));
  CHECK(trained == analysed(scratch, "by name", {}, "from.toml"));
  const std::string last = state(scratch / "run").at("last_checkpoint");
  const Json facts = Json::parse(read(scratch / "trained" / "facts.json"));
  CHECK(has(facts.at("model").at("from").get<std::string>(), last));
  // The run has gone on meanwhile: nothing of the analysis changes.
  good(scratch, {"run", "run", "train.steps=10"});
  Child child(scratch, words({"trained", "job.turns=4"}));
  const Result refused = child.wait();
  CHECK(refused.exit == 2);
  CHECK(has(refused.err, "job.turns = 3 before, now 4"));
  CHECK(engine(scratch, words({"trained"})).exit == 0);
  CHECK(result(scratch / "trained") == trained);
}

TEST_CASE("the facts of an analysis follow their causes", "[job]") {
  Scratch scratch;
  scratch.config();
  const auto facts = [&](const std::string& out, const Args& more = {}) {
    analysed(scratch, out, more);
    return Json::parse(read(scratch / out / "facts.json"));
  };
  const Json plain = facts("plain"), seeded = facts("seeded", {"train.seed=2"}),
             longer = facts("longer", {"train.sequence_length=16", "job.rate=0.5"});
  CHECK(plain.at("model").at("hash") != seeded.at("model").at("hash"));
  CHECK(plain.at("seed") == 1);
  CHECK(seeded.at("seed") == 2);
  CHECK(plain.at("data").at("tokens_per_window") == 32);
  CHECK(longer.at("data").at("tokens_per_window") == 16);
  CHECK(plain.at("config_hash") != longer.at("config_hash"));
  CHECK(plain.at("job").at("options").at("rate") == 0.01);
  CHECK(longer.at("job").at("options").at("rate") == 0.5);
  CHECK(plain.at("job").at("plugin") == "fixture");
  CHECK(plain.at("windows_per_gradient") == 4);
  CHECK(plain.at("model").at("plugin") == "llama");
  CHECK(plain.at("model").at("parameters") > 0);
  CHECK(plain.at("model").at("trained_parameters") == plain.at("model").at("parameters"));
  CHECK(plain.at("model").at("from").is_null());
  CHECK(plain.at("device").at("plugin") == "cpu");
  CHECK(plain.at("ranks") == 1);
  CHECK(plain.at("precision") == "fp32");
  for (const char* key : {"version", "commit", "began", "now", "config_hash"})
    CHECK_FALSE(plain.at(key).get<std::string>().empty());
  CHECK(plain.at("data").at("hash") == seeded.at("data").at("hash"));
#ifndef SANITIZED
  const Json& memory = plain.at("memory");
  const double planned = memory.at("planned").at("host_peak_bytes"),
               measured = memory.at("measured").at("host_peak_bytes");
  CHECK(std::abs(measured - planned) < std::max(planned / 100, 1048576.0));
#endif
}

#ifndef SANITIZED
TEST_CASE("a job takes the planned memory", "[job][.slow]") {
  Scratch scratch;
  scratch.config();
  for (const Args& more : {Args{}, Args{"recompute.policy=full"}, Args{"precision.plugin=bf16"}}) {
    const Args size =
        with({"model.preset=bench", "model.vocab_size=8000", "model.hidden_size=512", "model.intermediate_size=1376",
              "model.num_attention_heads=8", "model.num_hidden_layers=4", "train.sequence_length=64", "job.turns=1"},
             more);
    const Json plan =
        Json::parse(engine(scratch, words(with({"config.toml", "--json", "--job", "fixture"}, size), "plan")).out);
    const std::string out = "run " + (more.empty() ? "" : more[0]);
    const Result done = engine(scratch, words(with({"config.toml", "--job", "fixture", "--out", out}, size)), {300, 0});
    INFO(done.err);
    REQUIRE(done.exit == 0);
    const double promise = plan.at("ranks").at(0).at("host_peak_bytes"),
                 measured = static_cast<double>(done.peak_bytes());
    WARN(out << ": planned " << promise << ", measured " << measured << " (" << (measured / promise - 1) * 100
             << " %)");
    CHECK(std::abs(measured - promise) < std::max(promise / 100, 1048576.0));
    const Json facts = Json::parse(read(scratch / out / "facts.json"));
    const double checked = facts.at("memory").at("planned").at("host_peak_bytes");  // with the text in memory
    CHECK((checked >= promise && checked < promise + 100000));
  }
}
#endif

TEST_CASE("engine plan says what a job keeps", "[job]") {
  Scratch scratch;
  scratch.config();
  const std::string text = good(scratch, words({"config.toml", "--job", "fixture"}, "plan")).out;
  for (const char* line : {"\n    gradients ", "\n    job ", "\n    sites ", "  the job itself ", " 1048576 bytes"})
    CHECK(has(text, line));
  CHECK_FALSE(has(text, "\n    optimizer "));
  CHECK_FALSE(has(text, "  snapshot "));
  CHECK(has(good(scratch, words({"config.toml", "--job", "fixture", "checkpoint.asynchronous=true"}, "plan")).out,
            "  snapshot "));
}
