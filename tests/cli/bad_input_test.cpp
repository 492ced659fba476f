// SPDX-License-Identifier: Apache-2.0
// Bad input: what is wrong, where, what to change, the right exit code, and no files left.
#include <algorithm>
#include <cmath>
#include <regex>

#include "harness.hpp"

using namespace cli;

namespace {

// Runs and expects a refusal before anything was made.
Result refused(const Scratch& scratch, const Args& args, int exit, const std::vector<std::string>& parts) {
  std::string line;
  for (const std::string& arg : args) line += " " + arg;
  const auto before = names(scratch.path());
  const Result result = engine(scratch, args);
  INFO("engine" << line << "\n" << result.err);
  CHECK(result.exit == exit);
  for (const std::string& part : parts) {
    INFO("expected: " << part);
    CHECK(has(result.err, part));
  }
  CHECK(result.out.empty());
  for (const std::string& name : names(scratch.path())) {
    const bool known = std::find(before.begin(), before.end(), name) != before.end() || name.rfind("std", 0) == 0;
    INFO("left behind: " << name);
    CHECK(known);
  }
  return result;
}

}  // namespace

TEST_CASE("a configuration that cannot be read", "[cli]") {
  Scratch scratch;
  refused(scratch, {"run", "none.toml"}, 2, {"none.toml"});
  scratch.write("bad.toml", "[run]\nname = \"x\"\n[model\nplugin = \"llama\"\n");
  refused(scratch, {"run", "bad.toml"}, 2, {"bad.toml:3:"});
  refused(scratch, {"run", "."}, 2, {"is a directory, but neither a run nor a Hugging Face directory"});
  scratch.write("empty.toml", "");
  refused(scratch, {"run", "empty.toml"}, 2, {"[model]"});
}

TEST_CASE("all mistakes of a configuration at once, each with its place", "[cli]") {
  Scratch scratch;
  scratch.config();
  scratch.write("wrong.toml", R"([model]
plugin = "llama"
preset = "tiny"
hidden_sise = 32

[data]
paths = ["text.txt"]

[train]
steps = "many"
micro_batch = 0
)");
  refused(scratch, {"run", "wrong.toml"}, 2,
          {"hidden_sise", "hidden_size", "wrong.toml:4:1", "wrong.toml:10:9", "wrong.toml:11:15", "3 problems",
           "nothing was started"});
  refused(scratch, {"run", "config.toml", "train.stepps=3"}, 2, {"stepps", "steps", "command line"});
  refused(scratch, {"run", "config.toml", "steps=3"}, 2, {"steps"});
  refused(scratch, {"run", "config.toml", "train.steps=0"}, 2, {"steps", "1"});
  refused(scratch, {"run", "config.toml", "train.learning_rate=0.1"}, 2, {"optimizer"});
  refused(scratch, {"run", "config.toml", "run.name=../x"}, 2,
          {"is not a valid directory name", "command line: run.name=../x"});
}

TEST_CASE("unknown names", "[cli]") {
  Scratch scratch;
  scratch.config();
  refused(scratch, {"run", "config.toml", "optimizer.plugin=adamv"}, 2,
          {"did you mean `adamw`?", "available: `adamw`, `adamw8bit`, `muon`, `normuon`, `sgd`",
           "no plugin provides eng.optimizer/1 'adamv' in ", "`engine plugins ls --why`"});
  refused(scratch, {"run", "config.toml", "model.preset=8b"}, 2, {"8b", "tiny"});
  refused(scratch, {"run", "config.toml", "model.num_attention_heads=5"}, 2, {"hidden_size", "num_attention_heads"});
  refused(scratch, {"run", "config.toml", "device.threads=100000"}, 2, {"threads"});
}

TEST_CASE("a plugin file that must not be used is named with the reason", "[cli]") {
  Scratch scratch;
  scratch.config();
  fs::create_directory(scratch / "more");
  scratch.write("more/mine.eng.so",
                "\x7f"
                "ELF but not really");
  refused(scratch, {"--plugin-path", (scratch / "more").string(), "run", "config.toml", "model.plugin=mine"}, 2,
          {"no plugin provides eng.model/1 'mine'", (scratch / "more").string(), "mine.eng.so is refused: "});
  // [plugins] path starts at the configuration, not at the working directory.
  fs::create_directories(scratch / "sub" / "beside");
  scratch.write("sub/near.toml", "[model]\nplugin = \"mine\"\n[plugins]\npath = [\"beside\"]\n");
  refused(scratch, {"check", "sub/near.toml"}, 2, {"no plugin provides eng.model/1 'mine'", "sub/beside"});
  fs::copy_file(fs::path(ENGINE_PLUGIN_DIR) / "llama" / "llama.eng.so", scratch / "more" / "writable.eng.so");
  fs::permissions(scratch / "more" / "writable.eng.so", fs::perms::others_write, fs::perm_options::add);
  const Result why = engine(scratch, {"--plugin-path", (scratch / "more").string(), "plugins", "ls", "--why"});
  CHECK(has(why.out, "writable.eng.so: refused: the file has mode 07"));
  fs::permissions(scratch / "more", fs::perms(0777));
  const Result open = engine(scratch, {"--plugin-path", (scratch / "more").string(), "plugins", "ls", "--why"});
  CHECK(has(open.out, "mine.eng.so: refused: folder " + (scratch / "more").string() + " has mode 0777 and owner "));
  CHECK(has(open.out, "every user can exchange what is in it (chmod go-w " + (scratch / "more").string() + ")"));
}

TEST_CASE("data that is missing, empty or too short", "[cli]") {
  Scratch scratch;
  scratch.config();
  refused(scratch, {"run", "config.toml", "data.paths=['no/such.txt']"}, 4, {"no/such.txt"});
  refused(scratch, {"run", "config.toml", "data.paths=['*.none']"}, 4, {"*.none"});
  scratch.write("nothing.txt", "");
  refused(scratch, {"run", "config.toml", "data.paths=['nothing.txt']"}, 4, {"nothing.txt is empty"});
  scratch.write("short.txt", "too short");
  refused(scratch, {"run", "config.toml", "data.paths=['short.txt']"}, 4,
          {"holds 9 tokens", "one sample takes 33", "lower sequence_length"});
  refused(scratch, {"run", "config.toml", "data.paths=[]"}, 4, {"paths is empty"});
  scratch.write("no_data.toml", "[model]\nplugin = \"llama\"\npreset = \"tiny\"\n");
  refused(scratch, {"run", "no_data.toml"}, 2, {"[data]"});
}

TEST_CASE("a model that does not fit is refused before the first step, with edits that do", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
#ifndef SANITIZED  // minutes of search, which the tests of the session make with a sanitizer
  const Args large = {"model.preset=30b", "model.hidden_size=6656", "model.intermediate_size=17920",
                      "model.num_attention_heads=52", "model.num_hidden_layers=60"};
  Args deep = {"run", "config.toml"};
  deep.insert(deep.end(), large.begin(), large.end());
  refused(scratch, deep, 6, {"the plan needs", "too much"});
#endif

  // One that cannot even be counted.
  refused(scratch, {"run", "config.toml", "train.micro_batch=1000000000", "train.sequence_length=1000000000"}, 2,
          {"`micro_batch` x `sequence_length` is", "the maximum is 2147483647"});

  // One whose batch alone is too large.
  const Args wide = {"train.micro_batch=65536", "train.sequence_length=512", "data.validation=0"};
  Args run = {"run", "config.toml"};
  run.insert(run.end(), wide.begin(), wide.end());
  const Result result = refused(scratch, run, 6, {"the plan needs", "any one of these fits:", "train.micro_batch="});
  std::smatch edit;
  REQUIRE(std::regex_search(result.err, edit, std::regex(R"(\n  (train\.micro_batch=\d+) (train\.accumulate=\d+) )")));
  Args plan = {"plan", "config.toml", "--json"};
  plan.insert(plan.end(), wide.begin(), wide.end());
  const Result too_large = engine(scratch, plan);
  CHECK(too_large.exit == 6);  // as the run's
  CHECK(Json::parse(too_large.out).at("fits") == false);
  plan.insert(plan.end(), {edit[1], edit[2]});
  const Result fits = engine(scratch, plan);
  INFO(fits.err);
  CHECK(Json::parse(fits.out).at("fits") == true);
#ifndef SANITIZED
  // `plan` prints the same, and `check` refuses.
  Args text = {"plan", "config.toml"};
  text.insert(text.end(), wide.begin(), wide.end());
  CHECK(has(engine(scratch, text).out, "DOES NOT FIT"));
  CHECK(has(engine(scratch, text).out, "would fit: " + edit[1].str()));
  text[0] = "check";
  CHECK(engine(scratch, text).exit == 6);
  // A key that is derived from another one is not proposed.
  text[0] = "plan", text.push_back("train.global_batch=65536");
  CHECK(has(engine(scratch, text).out, "would fit: " + edit[1].str() + " (the same tokens per step, "));
#endif
}

TEST_CASE("a loss that is not a number stops the run and leaves the last checkpoint", "[cli]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=3"}).exit == 0);
  const auto before = tensors(scratch / "run", 3);
  const Result run = engine(scratch, {"run", "run", "train.steps=20", "optimizer.learning_rate=1e30",
                                      "train.grad_clip=0", "checkpoint.every=0"});
  INFO(run.err);
  CHECK(run.exit == 7);
  CHECK(std::regex_search(run.err, std::regex(R"(error: step \d+: the (loss|gradient norm) is not finite)")));
  CHECK(std::regex_search(
      run.err,
      std::regex(R"(first seen in (parameter \S+|eng\.\S+ in (layers\.\d+|embed\S*|head|\S*norm\S*) .*, output \d))")));
  CHECK(has(run.err, "the last checkpoint is step-00000003"));
  CHECK(has(run.err, "lower optimizer.learning_rate"));
  const Json last = state(scratch / "run");
  CHECK(last.at("status") == "failed");
  CHECK(last.at("exit_code") == 7);
  CHECK(last.at("last_checkpoint") == "step-00000003");
  CHECK((tensors(scratch / "run", 3) == before));
  CHECK(engine(scratch, {"ckpt", "verify", "run"}).exit == 0);
  for (const double loss : column(scratch / "run", "loss")) CHECK(std::isfinite(loss));
  // With a sane rate it can be resumed.
  CHECK(engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=5"}).exit == 0);
  CHECK(column(scratch / "run", "step") == std::vector<double>{1, 2, 3, 4, 5});
}

TEST_CASE("a name that no system call takes is an error of its user, with the name, and forges no message", "[cli]") {
  Scratch scratch;
  scratch.config();
  fs::create_symlink("loop", scratch / "loop");
  const std::string deep(300, 'a'), forged = "x\nerror: forged";
  for (const std::string& name : {std::string("loop"), std::string("loop/x"), deep, forged})
    for (const Args& words : std::vector<Args>{{"run"},
                                               {"check"},
                                               {"plan"},
                                               {"eval"},
                                               {"generate"},
                                               {"ckpt", "ls"},
                                               {"ckpt", "verify"},
                                               {"data", "inspect"},
                                               {"run", "config.toml", "--out"}}) {
      if (name == forged && words.back() == "--out") continue;  // a legal name
      Args all = words;
      all.push_back(name);
      if (words.back() == "generate") all.push_back("a prompt");
      const Result result = engine(scratch, all);
      INFO(result.err);
      CHECK((result.exit == 2 || result.exit == 9 || result.exit == 10));
      CHECK_FALSE(has(result.err, "this is a bug"));
      CHECK_FALSE(has(result.err, "\nerror: forged"));
      CHECK(has(result.err, name.substr(0, 1)));
    }
}
