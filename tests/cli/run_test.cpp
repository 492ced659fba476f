// SPDX-License-Identifier: Apache-2.0
// A run from its configuration to its directory.
#include <cmath>
#include <csignal>
#include <regex>

#include "harness.hpp"

using namespace cli;

namespace {

std::vector<std::string> matches(const std::string& text, const char* pattern) {
  std::vector<std::string> out;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) out.push_back((*it)[1]);
  return out;
}

}  // namespace

TEST_CASE("running a configuration makes runs/NAME/TIME-ID with everything in it", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result run = engine(scratch, {"run", "config.toml"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  CHECK(run.out.empty());
  const auto made = names(scratch / "runs" / "small");
  REQUIRE(made.size() == 1);
  CHECK(std::regex_match(made[0], std::regex(R"(\d{8}-\d{6}-[0-9a-f]{4})")));
  const fs::path dir = scratch / "runs" / "small" / made[0];
  CHECK(names(dir) == std::vector<std::string>{"LOCK", "checkpoints", "config.resolved.toml", "config.toml", "logs",
                                               "metrics.jsonl", "plan.txt", "run.json", "state.json"});
  CHECK(names(dir / "logs") == std::vector<std::string>{"rank-00000.log"});
  CHECK(names(dir / "checkpoints") == std::vector<std::string>{"step-00000004", "step-00000008"});
  CHECK(names(checkpoint(dir, 8)) ==
        std::vector<std::string>{"manifest.json", "model-00000.safetensors", "optim-00000.safetensors"});
  CHECK(read(dir / "config.toml") == read(scratch / "config.toml"));
  CHECK(has(read(dir / "config.resolved.toml"), "beta2 = 0.95"));
  CHECK(has(read(dir / "plan.txt"), "process peak"));

  // The lines people's scripts look for.
  CHECK(matches(run.err, R"(step (\d+)/8)") == std::vector<std::string>{"1", "2", "3", "4", "5", "6", "7", "8"});
  const auto losses = matches(run.err, R"(\nstep .* loss: (\d+\.\d+))");
  REQUIRE(losses.size() == 8);
  const auto recorded = column(dir, "loss");
  REQUIRE(recorded.size() == 8);
  for (size_t k = 0; k < 8; ++k) CHECK(std::abs(std::stod(losses[k]) - recorded[k]) < 1e-4);
  CHECK(recorded[0] == Approx(std::log(256)).epsilon(0.1));
  CHECK(recorded[7] < recorded[0]);
  CHECK(has(run.err, "run   "));
  CHECK(has(run.err, "saved step-00000008"));
  CHECK(has(run.err, "eval step 4"));
  const std::string where = fs::relative(dir, scratch.path()).string();
  CHECK(has(run.err, "\n  next:   engine eval " + where + "\n  longer: engine run " + where + " train.steps=N\n"));
  // A script that circulates takes both numbers for granted wherever it finds the word.
  scratch.write("training.log", run.err);
  scratch.write("parse_logs.py", R"python(import re

with open("training.log") as f:
    for line in f:
        if "loss" in line:
            step = re.search(r"step (\d+)", line).group(1)
            loss = re.search(r"loss: (\d+\.\d+)", line).group(1)
            print(f"Step {step}: Loss={loss}")
)python");
  Limits python;
  python.program = "/usr/bin/python3";
  const Result parsed = engine(scratch, {"parse_logs.py"}, python);
  INFO(parsed.err);
  CHECK(parsed.exit == 0);
  CHECK(matches(parsed.out, R"(Step (\d+): Loss=\d)") ==
        std::vector<std::string>{"1", "2", "3", "4", "4", "5", "6", "7", "8", "8"});

  const Json metrics = Json::parse(read(dir / "metrics.jsonl").substr(0, read(dir / "metrics.jsonl").find('\n')));
  for (const char* key : {"v", "step", "tokens", "loss", "grad_norm", "lr", "loss_scale", "tokens_per_second", "mfu",
                          "step_seconds", "wait_seconds", "device_peak_bytes", "host_peak_bytes"})
    CHECK(metrics.contains(key));
  const Json plan = Json::parse(engine(scratch, {"plan", "config.toml", "--json"}).out);
  CHECK(metrics.at("device_peak_bytes") == plan.at("ranks").at(0).at("device_peak_bytes"));

  const Json last = state(dir);
  CHECK(last.at("status") == "done");
  CHECK(last.at("step") == 8);
  CHECK(last.at("last_checkpoint") == "step-00000008");
  CHECK(last.at("exit_code") == 0);
  const Json identity = Json::parse(read(dir / "run.json"));
  for (const char* key : {"version", "plugins", "data_hash", "config_hash", "seeds", "ranks", "hosts", "started"})
    CHECK(identity.contains(key));
  CHECK_FALSE(identity.at("commit").get<std::string>().empty());
  CHECK(has(identity.at("command").get<std::string>(), "run config.toml"));
  CHECK(identity.at("model_hash").get<std::string>().size() == 32);
  CHECK(identity.at("device").at("plugin") == "cpu");
  CHECK_FALSE(identity.at("device").at("name").get<std::string>().empty());
  const Json manifest = Json::parse(read(checkpoint(dir, 8) / "manifest.json"));
  CHECK(manifest.at("config_hash") == identity.at("config_hash"));
  for (const Json& plugin : identity.at("plugins")) CHECK(plugin.at("sha256").get<std::string>().size() == 64);

  SECTION("eval of the run, twice the same, and its checkpoints are whole") {
    const Result eval = engine(scratch, {"eval", dir.string()});
    INFO(eval.err);
    CHECK(eval.exit == 0);
    CHECK(std::regex_search(eval.out, std::regex(R"(eval step 8  loss: \d+\.\d+  ppl \d+\.\d+)")));
    const Json a = Json::parse(engine(scratch, {"eval", dir.string(), "--json"}).out);
    const Json b = Json::parse(engine(scratch, {"eval", dir.string(), "--json"}).out);
    CHECK(a.at("step") == 8);
    CHECK(a.at("loss") == b.at("loss"));
    CHECK(a.at("perplexity") == Approx(std::exp(a.at("loss").get<double>())));
    // The batches that the run's own evaluation took.
    const Json two = Json::parse(engine(scratch, {"eval", dir.string(), "--json", "--batches", "2"}).out);
    const std::string all = read(dir / "metrics.jsonl");
    const Json end = Json::parse(all.substr(all.rfind("{\"v\"")));
    CHECK(two.at("loss") == end.at("eval_loss"));
    const Result list = engine(scratch, {"ckpt", "ls", dir.string()});
    CHECK(matches(list.out, R"(step-0000000(\d) .* complete)") == std::vector<std::string>{"4", "8"});
    CHECK(engine(scratch, {"ckpt", "verify", dir.string()}).exit == 0);
  }
  SECTION("a longer run resumes from the last step, and keeps the user's text") {
    const Result more = engine(scratch, {"run", dir.string(), "train.steps=10"});
    INFO(more.err);
    CHECK(more.exit == 0);
    CHECK(has(more.err, "resumes from step-00000008"));
    CHECK(column(dir, "step") == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    CHECK(state(dir).at("step") == 10);
    CHECK(state(dir).at("attempt") == 2);
    CHECK(fs::exists(checkpoint(dir, 10)));
    CHECK(read(dir / "config.toml") == read(scratch / "config.toml"));
    CHECK(has(read(dir / "config.resolved.toml"), "steps = 10"));
  }
  SECTION("a run that is done says so again") {
    const Result again = engine(scratch, {"run", dir.string()});
    CHECK(again.exit == 0);
    CHECK(state(dir).at("status") == "done");
    CHECK(column(dir, "step").size() == 8);
  }
}

TEST_CASE("--out is the run directory itself", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result run = engine(scratch, {"run", "config.toml", "--out", "here/it", "train.steps=3"});
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(fs::exists(scratch / "here" / "it" / "state.json"));
  CHECK_FALSE(fs::exists(scratch / "runs"));
  CHECK(fs::exists(checkpoint(scratch / "here" / "it", 3)));  // every = 4, but the last step is always saved
  // Another run with the same words goes on, --resume never refuses, and a folder of other things is left alone.
  CHECK(engine(scratch, {"run", "config.toml", "--out", "here/it", "train.steps=4"}).exit == 0);
  CHECK(column(scratch / "here" / "it", "step") == std::vector<double>{1, 2, 3, 4});
  CHECK(engine(scratch, {"run", "config.toml", "--out", "here/it", "--resume", "never"}).exit == 2);
  CHECK(engine(scratch, {"run", "config.toml", "--out", "."}).exit == 2);
  CHECK_FALSE(fs::exists(scratch / "state.json"));
  fs::create_directory(scratch / "empty");
  CHECK(engine(scratch, {"run", "config.toml", "--out", "empty", "train.steps=1"}).exit == 0);
  CHECK(fs::exists(scratch / "empty" / "state.json"));
}

TEST_CASE("--resume chooses the checkpoint", "[cli]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run"}).exit == 0);
  const auto first = numbers(scratch / "run");
  const Result back = engine(scratch, {"run", "run", "--resume", "4"});
  INFO(back.err);
  CHECK(back.exit == 0);
  CHECK(has(back.err, "resumes from step-00000004"));
  CHECK(numbers(scratch / "run") == first);
  const Result absent = engine(scratch, {"run", "run", "--resume", "5"});
  CHECK(absent.exit == 9);
  CHECK(
      std::regex_search(absent.err, std::regex("no checkpoint of step 5 in run\nhelp: available:\n  step-0000000. ")));
  CHECK_FALSE(has(absent.err, "\n\n"));
  CHECK(engine(scratch, {"run", "run", "--resume", "soon"}).exit == 2);
  CHECK(engine(scratch, {"run", "config.toml", "--out", "other", "--resume", "must"}).exit == 9);
  CHECK_FALSE(fs::exists(scratch / "other"));
  CHECK(engine(scratch, {"run", "config.toml", "--max-time", "soon"}).exit == 2);
  CHECK_FALSE(fs::exists(scratch / "runs"));
}

TEST_CASE("a resumed run says what it changes, keeps what it must, and records every attempt", "[cli]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=4"}).exit == 0);
  const fs::path run = scratch / "run";
  const std::string before = read(run / "run.json") + read(run / "metrics.jsonl") + read(run / "config.resolved.toml");

  const Result refused = engine(scratch, {"run", "run", "train.steps=6", "train.seed=2", "data.validation=0.4"});
  CHECK(refused.exit == 2);
  CHECK_THAT(refused.err, Catch::Contains("a resumed run keeps its model, its data and its random numbers") &&
                              Catch::Contains("data.validation = 0.4 (") && Catch::Contains("train.seed = 2 (") &&
                              Catch::Contains("--allow-change data.validation --allow-change train.seed"));
  CHECK(read(run / "run.json") + read(run / "metrics.jsonl") + read(run / "config.resolved.toml") == before);
  CHECK(engine(scratch, {"run", "run", "train.steps=6", "--allow-change", "train.sed"}).exit == 2);

  const Result allowed = engine(
      scratch, {"run", "run", "train.steps=6", "train.seed=2", "--allow-change", "train.seed", "train.grad_clip=3.0"});
  INFO(allowed.err);
  CHECK(allowed.exit == 0);
  CHECK_THAT(allowed.err, Catch::Contains("note: from now on, ") && Catch::Contains("train.grad_clip = 3.0 (") &&
                              Catch::Contains("train.seed = 2 (") && !Catch::Contains("train.steps = "));
  // A third attempt dies.
  Child killed(scratch, {"run", "run", "train.steps=100000", "checkpoint.every=1"});
  killed.wait_for("saved step-00000008");
  killed.signal(SIGKILL);
  killed.wait();
  REQUIRE(engine(scratch, {"run", "run", "train.steps=" + std::to_string(state(run).at("step").get<int>() + 1)}).exit ==
          0);

  const Json last = Json::parse(read(run / "run.json"));
  CHECK(last.at("attempt") == 4);
  REQUIRE(last.at("earlier").size() == 3);
  for (int k = 0; k < 3; ++k) {
    const Json& one = last.at("earlier").at(static_cast<size_t>(k));
    CHECK(one.at("attempt") == k + 1);
    for (const char* key : {"command", "version", "plugins", "config_hash", "hosts", "ranks"}) CHECK(one.contains(key));
    CHECK(one.at("ended").at("status") == (k < 2 ? "done" : "killed"));
  }
  CHECK(last.at("earlier").at(0).at("resumed_from").is_null());
  CHECK(last.at("earlier").at(1).at("resumed_from") == "step-00000004");
  const Json changed = last.at("earlier").at(1).at("changes");
  CHECK(std::any_of(changed.begin(), changed.end(), [](const Json& c) {
    return c.at("key") == "train.seed" && c.at("before") == "1" && c.at("now") == "2";
  }));
  CHECK(last.at("ended").at("status") == "done");
  CHECK(column(run, "attempt").at(3) == 1);
  CHECK(column(run, "attempt").at(5) == 2);
  CHECK(column(run, "attempt").back() == 4);
}

TEST_CASE("an impossible evaluation is reported, and not proposed", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result run = engine(scratch, {"run", "config.toml", "--out", "run", "data.validation=0", "train.steps=1"});
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(has(run.err, "note: train.eval_every has no effect"));
  CHECK_FALSE(has(run.err, "engine eval"));
  CHECK(has(engine(scratch, {"check", "config.toml", "data.validation=0"}).err, "note: train.eval_every"));
  CHECK_FALSE(has(engine(scratch, {"check", "config.toml"}).err, "note: train.eval_every"));
}

TEST_CASE("a run that is done says so when it is started again", "[cli]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run"}).exit == 0);
  const Result again = engine(scratch, {"run", "run", "train.steps=5"});
  CHECK(again.exit == 0);
  CHECK(has(again.err, "nothing is left to do: step 8 is done, train.steps is 5\n"));
  CHECK_FALSE(has(engine(scratch, {"run", "run", "train.steps=9"}).err, "nothing is left"));
}

TEST_CASE("a run of a file with any name, in a folder with any name, goes on and is evaluated", "[cli]") {
  Scratch scratch;
  const std::string file = "\u043a\u043e\u0434 1.toml", out = "r\u00fcn 1";
  fs::rename(scratch.config(), scratch / file);
  scratch.write(file, std::regex_replace(read(scratch / file), std::regex("\\[run\\]\nname = .*\n"), ""));
  const Result run = engine(scratch, {"run", file, "--out", out, "train.steps=4"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  CHECK(has(run.err, "\n  next:   engine eval '" + out + "'\n"));
  const Result more = engine(scratch, {"run", out, "train.steps=8"});
  INFO(more.err);
  CHECK(more.exit == 0);
  CHECK(engine(scratch, {"eval", out}).exit == 0);
  CHECK(engine(scratch, {"generate", out, "x", "--tokens", "2"}).exit == 0);
}

TEST_CASE("a run in use is not run twice", "[cli]") {
  Scratch scratch;
  scratch.config();
  Child first(scratch, {"run", "config.toml", "--out", "run", "train.steps=100000", "train.eval_every=0"});
  REQUIRE(first.wait_for("step 1/"));
  const Result second = engine(scratch, {"run", "config.toml", "--out", "run"});
  CHECK(second.exit == 2);
  CHECK(has(second.err, "is in use by process"));
  CHECK(first.running());
}

TEST_CASE("a closed terminal pipe does not stop a run", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string line = "cd '" + scratch.path().string() + "' && { " + ENGINE_COMMAND +
                           " run config.toml --out run 2>&1 >/dev/null; echo $? > code; } | true";
  REQUIRE(std::system(line.c_str()) == 0);
  CHECK(read(scratch / "code") == "0\n");
  CHECK(state(scratch / "run").at("status") == "done");
}

TEST_CASE("a run directory that is moved or removed while the run goes on is not made again", "[cli]") {
  Scratch scratch;
  scratch.config();
  const auto started = [&] {
    auto child = std::make_unique<Child>(
        scratch, Args{"run", "config.toml", "--out", "run", "train.steps=1000000", "checkpoint.every=50"});
    REQUIRE(child->wait_for("saved step-00000050"));
    return child;
  };
  SECTION("moved: it saves there, and says where") {
    const auto child = started();
    fs::rename(scratch / "run", scratch / "elsewhere");
    const Result result = child->wait();
    INFO(result.err);
    CHECK(result.exit == 10);
    CHECK_THAT(result.err, Catch::Contains("run was moved to ") &&
                               Catch::Contains("elsewhere while the run was going on") &&
                               Catch::Contains("help: resume it there:  engine run "));
    CHECK_FALSE(fs::exists(scratch / "run"));
    const Json end = state(scratch / "elsewhere");
    CHECK(end.at("status") == "failed");
    CHECK(has(result.err, end.at("last_checkpoint").get<std::string>() + " was saved there"));
    const int64_t step = end.at("step").get<int64_t>();
    CHECK(engine(scratch, {"run", "elsewhere", "train.steps=" + std::to_string(step + 1)}).exit == 0);
  }
  SECTION("removed") {
    const auto child = started();
    fs::rename(scratch / "run", scratch / "gone");  // at once, so that no save comes in between
    std::error_code error;  // the run may make a file there meanwhile: then the folder is not empty yet
    for (int k = 0; k < 1000 && fs::exists(scratch / "gone"); ++k) fs::remove_all(scratch / "gone", error);
    const Result result = child->wait();
    INFO(result.err);
    CHECK(result.exit == 10);
    CHECK_THAT(result.err, Catch::Contains("was removed while the run was going on") || Catch::Contains("gone"));
    CHECK_FALSE(fs::exists(scratch / "run"));
    CHECK_FALSE(fs::exists(scratch / "gone"));
  }
}

TEST_CASE("a file's name in any letters names the run; an early stop says why; the best checkpoint has a name",
          "[cli]") {
  Scratch scratch;
  scratch.config("\u4e2d\u6587.toml");
  const Result run =
      engine(scratch, {"run", "\u4e2d\u6587.toml", "--unset", "run.name", "train.steps=20", "train.eval_every=2",
                       "train.early_stop_patience=1", "train.early_stop_min_delta=100.0", "checkpoint.best=true"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  CHECK(names(scratch / "runs") == std::vector<std::string>{"\u4e2d\u6587"});
  const fs::path dir = scratch / "runs" / "\u4e2d\u6587" / names(scratch / "runs" / "\u4e2d\u6587").at(0);
  CHECK(std::regex_search(
      run.err,
      std::regex(R"(\nearly stop: the last evaluation was not below \d\.\d+ of step 2 by more than 100\ndone  )")));
  CHECK(state(dir).at("step") == 4);
  CHECK(std::regex_search(run.err, std::regex(R"(\nsaved step-00000002  .*  best\n)")));
  const Result list = engine(scratch, {"ckpt", "ls", dir.string()});
  const auto best = matches(list.out, R"(step-0000000(\d) .* complete  best\n)");
  REQUIRE(best.size() == 1);
  const std::string name = (dir / "checkpoints" / "best").string();
  good(scratch, {"ckpt", "export", name, "--to", "out"});
  CHECK(read(scratch / "out" / "model.safetensors").size() > 1000);
  const Result again =
      engine(scratch, {"run", "\u4e2d\u6587.toml", "model.from=" + name, "--unset", "model.preset", "train.steps=1"});
  INFO(again.err);
  CHECK(again.exit == 0);
}

TEST_CASE("epochs: check and run say how many steps they are", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result check = engine(scratch, {"check", "config.toml", "--unset", "train.steps", "train.epochs=0.1"});
  INFO(check.err << check.out);
  REQUIRE(check.exit == 0);
  const auto text = matches(check.out, R"(epochs +(0.1 epochs of \d+ samples, 2 in a step: \d+ steps) )");
  REQUIRE(text.size() == 1);
  const Result run =
      engine(scratch, {"run", "config.toml", "--unset", "train.steps", "train.epochs=0.1", "--out", "run"});
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(has(run.err, "\n" + text[0] + "\n"));
  CHECK(has(run.err, "longer: engine run run train.epochs=N\n"));
  CHECK(column(scratch / "run", "step").size() == std::stoul(matches(text[0], R"(: (\d+) steps)").at(0)));
}
