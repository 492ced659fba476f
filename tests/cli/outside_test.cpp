// SPDX-License-Identifier: Apache-2.0
// Input from outside, in the hands of the command: links in a run, texts with control characters, a full standard
// output, little memory, programs that do not end. Each ends with a documented code, and forges and follows nothing.
#include <sys/stat.h>

#include <fstream>

#include "harness.hpp"

using namespace cli;

namespace {

Result shell(const Scratch& scratch, const std::string& line) {
  Limits limits;
  limits.program = "/bin/bash";
  return engine(scratch, {"-c", line}, limits);
}

const std::string command = ENGINE_COMMAND;

double processor_seconds(const Result& result) {
  return static_cast<double>(result.usage.ru_utime.tv_sec + result.usage.ru_stime.tv_sec);
}

void check_clean(const Result& result) {
  INFO(result.out << result.err);
  for (const std::string* text : {&result.out, &result.err}) {
    CHECK(text->find('\x1b') == std::string::npos);
    CHECK_FALSE(has(*text, "\nerror: forged"));
    CHECK_FALSE(has(*text, "\nforged"));
  }
  CHECK_FALSE(has(result.err, "this is a bug"));
}

}  // namespace

TEST_CASE("a linked folder in a run is not followed", "[cli]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch,
                 {"run", "config.toml", "--out", "run", "train.steps=2", "checkpoint.every=1", "log.tensorboard=true"})
              .exit == 0);
  const fs::path run = scratch / "run", elsewhere = scratch / "elsewhere";
  for (const std::string name : {"logs", "checkpoints", "tensorboard"}) {
    INFO(name);
    fs::rename(run / name, elsewhere);
    fs::create_directories(elsewhere / ".tmp-step-00000009");
    fs::create_directory_symlink(elsewhere, run / name);
    const auto before = names(elsewhere);
    const Result on = engine(scratch, {"run", "run", "train.steps=3"});
    INFO(on.err);
    CHECK(on.exit == 10);
    CHECK(has(on.err, name + " is a symbolic link, and a run follows none"));
    if (name == "checkpoints")
      for (const Args& words : std::vector<Args>{{"eval", "run"},
                                                 {"generate", "run", "a"},
                                                 {"ckpt", "ls", "run"},
                                                 {"ckpt", "gc", "run"},
                                                 {"ckpt", "export", "run", "--to", "hf"}}) {
        INFO(words[1]);
        const Result read = engine(scratch, words);
        CHECK(read.exit == 10);
        CHECK(has(read.err, "is a symbolic link"));
      }
    CHECK(names(elsewhere) == before);
    fs::remove(run / name);
    fs::rename(elsewhere, run / name);
  }
  // One checkpoint: it is passed over.
  fs::rename(checkpoint(run, 2), elsewhere);
  fs::create_directory_symlink(elsewhere, checkpoint(run, 2));
  const auto before = names(elsewhere);
  const Result on = engine(scratch, {"run", "run", "train.steps=3"});
  INFO(on.err);
  CHECK(on.exit == 0);
  CHECK(has(on.err, "step-00000002 is not used: it is a symbolic link"));
  CHECK(has(on.err, "resumes from step-00000001"));
  CHECK(names(elsewhere) == before);
}

TEST_CASE("a text from outside forges no line and sends no sequence", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string text = R"("/x\nerror: forged\u001b[2J")";
  for (const std::string key :
       {"model.from", "comm.plugin", "job.plugin", "optimizer.plugin", "model.preset", "run.name", "data.tokenizer"}) {
    INFO(key);
    for (const char* verb : {"check", "plan"}) {
      const Result result = engine(scratch, {verb, "config.toml", key + "=" + text});
      check_clean(result);
      if (key != "comm.plugin" && key != "job.plugin" && key != "data.tokenizer") CHECK(result.exit == 2);
    }
  }
  const std::string many = "[" + text + "]";
  for (const Args& more : std::vector<Args>{{"data.paths=" + many},
                                            {"plugins.path=" + many},
                                            {"offload.optimizer=nvme", "offload.nvme_paths=" + many}}) {
    Args words = {"check", "config.toml"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = engine(scratch, words);
    check_clean(result);
  }
  // Names that are legal.
  const std::string odd = "a\x1b[2J\nforged";
  const Result run = engine(scratch, {"run", "config.toml", "train.steps=1", "--out", odd});
  check_clean(run);
  CHECK(run.exit == 0);
  CHECK(has(run.err, R"(next:   engine eval $'a\x1b[2J\x0aforged')"));
  for (const Args& words : std::vector<Args>{{"eval", odd}, {"ckpt", "ls", odd}, {"ckpt", "verify", odd}, {odd}})
    check_clean(engine(scratch, words));
  CHECK(shell(scratch, command + R"( ckpt verify $'a\x1b[2J\x0aforged')").exit == 0);
}

TEST_CASE("a full standard output is an error of the disk", "[cli]") {
  Scratch scratch;
  scratch.config();
  for (const char* words : {"plan config.toml", "plan config.toml --json", "config show config.toml", "config schema",
                            "check config.toml", "plugins ls", "--version", "--help"}) {
    INFO(words);
    const Result result = shell(scratch, command + " " + words + " > /dev/full");
    INFO(result.err);
    CHECK(result.exit == 10);
    CHECK(has(result.err, "cannot write to the standard output: No space left on device"));
  }
  CHECK(shell(scratch, command + " plan config.toml 2> /dev/full").exit == 0);
}

#ifndef SANITIZED  // which need addresses
TEST_CASE("without memory or threads a run ends with a sentence and its code", "[cli]") {
  Scratch scratch;
  scratch.config();
  for (const char* limit : {"-v 28000", "-v 34000", "-v 40000", "-v 50000", "-d 12000", "-d 30000"}) {
    INFO(limit);
    const Result result =
        shell(scratch, std::string("ulimit ") + limit + "; exec " + command +
                           " run config.toml train.steps=1 device.threads=1 --out 'run " + limit + "'");
    INFO(result.err);
    if (has(result.err, "cannot allocate memory in static TLS block") || result.exit == 127) continue;  // of the loader
    CHECK((result.exit == 0 || result.exit == 3 || result.exit == 5 || result.exit == 6));
    CHECK_FALSE(has(result.err, "this is a bug"));
  }
}

TEST_CASE("the limit of processor time stops a run with a checkpoint", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  const Result result = shell(
      scratch, "ulimit -S -t 1; exec " + command + " run config.toml --out run train.steps=1000000 train.eval_every=0");
  INFO(result.err);
  CHECK(result.exit == 75);
  CHECK(has(result.err, "stopped by SIGXCPU"));
}
#endif

TEST_CASE("a value of which no machine has enough is refused with its key", "[cli]") {
  Scratch scratch;
  scratch.config();
  for (const std::string word : {"model.hidden_size=1048576", "train.micro_batch=1000000000"}) {
    const Result result = engine(scratch, {"check", "config.toml", word});
    INFO(result.err);
    CHECK((result.exit == 2 || result.exit == 5 || result.exit == 6));
    CHECK(has(result.err, word.substr(word.find('.') + 1, word.find('=') - word.find('.') - 1)));
  }
}

TEST_CASE("weights of other layers than config.json are refused before anything is planned", "[cli]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=1"}).exit == 0);
  REQUIRE(engine(scratch, {"ckpt", "export", "run", "--to", "hf"}).exit == 0);
  Json config = Json::parse(read(scratch / "hf" / "config.json"));
  config["num_hidden_layers"] = 4096;
  scratch.write("hf/config.json", config.dump());
  for (const Args& words : std::vector<Args>{{"generate", "hf", "a", "--tokens", "1"},
                                             {"eval", "hf", "data.paths=[\"text.txt\"]", "train.sequence_length=16"}}) {
    const Result result = engine(scratch, words);
    INFO(words[0] << result.err);
    CHECK(result.exit == 9);
    CHECK(processor_seconds(result) <= 3 * patience);
  }
}

TEST_CASE("a hash of the configuration is of its values", "[cli]") {
  Scratch scratch;
  const std::string text = read(scratch.config());
  fs::create_directories(scratch / "a");
  fs::create_directories(scratch / "b");
  scratch.write("a/config.toml", text);
  scratch.write("b/config.toml", "# the same\n" + text + "\n# again\n");
  const std::string data = "data.paths=[\"" + (scratch / "text.txt").string() + "\"]";
  const auto hash = [&](const std::string& folder, const Args& more = {}) {
    Args words = {"run", folder + "/config.toml", "--out", folder + "/run", "train.steps=1", data};
    words.insert(words.end(), more.begin(), more.end());
    good(scratch, words);
    return Json::parse(read(scratch / folder / "run" / "run.json")).at("config_hash").get<std::string>();
  };
  const std::string first = hash("a");
  CHECK(hash("b") == first);
  CHECK(hash("b", {"device.threads=2"}) == first);  // it decides no number
  CHECK(hash("b", {"log.every=7"}) != first);
  good(scratch, {"run", "a/run"});
  CHECK(Json::parse(read(scratch / "a" / "run" / "run.json")).at("config_hash") == first);
}

TEST_CASE("a report's cost follows its lines, and what it cannot read is reported", "[cli]") {
  Scratch scratch;
  fs::create_directories(scratch / "run");
  scratch.write("run/state.json", "{}");
  std::string all;
  for (int step = 1; step <= 3; ++step) {
    all += "{\"v\":1,\"step\":" + std::to_string(step == 3 ? 2 : step) + ",\"loss\":2.5,\"observed\":{";
    for (int k = 0; k < 60000; ++k) all += (k ? ",\"n" : "\"n") + std::to_string(k) + "\":" + std::to_string(k * step);
    all += "}}\n";
  }
  scratch.write("run/metrics.jsonl", all);
  const Result many = engine(scratch, {"report", "run"});
  INFO(many.err);
  CHECK(many.exit == 0);
  CHECK(processor_seconds(many) <= 5 * patience);
  CHECK(has(read(scratch / "report.html"), "Only the first 240 charts"));
  // A line that does not end.
  scratch.write("run/metrics.jsonl", "{\"v\":1,\"step\":1,\"loss\":2.5}\n");
  fs::resize_file(scratch / "run" / "metrics.jsonl", 4ull << 30);
  const Result endless = engine(scratch, {"report", "run"});
  INFO(endless.err);
  CHECK(endless.exit == 0);
  CHECK(has(endless.err, "has a line of more than 16 MiB; it and what follows it is left out"));
  CHECK(endless.peak_bytes() < (200u << 20) * uint64_t(patience));
  REQUIRE(mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  const Result pipe = engine(scratch, {"report", "run", "--out", "pipe"});
  CHECK(pipe.exit == 2);
  CHECK(has(pipe.err, "pipe is not a regular file"));
}

TEST_CASE("files that are written go where their name says, and nothing is read without end", "[cli]") {
  Scratch scratch;
  scratch.config();
  fs::create_symlink(scratch / "target", scratch / "link");
  const Result init = engine(scratch, {"init", "llama", "tiny", "-o", "link"});
  CHECK(init.exit == 2);
  CHECK(has(init.err, "link already exists"));
  CHECK_FALSE(fs::exists(scratch / "target"));
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=1"}).exit == 0);
  const Result yes = shell(scratch, "yes | " + command + " generate run -");
  CHECK(yes.exit == 2);
  CHECK(has(yes.err, "the prompt has more than 16 MiB"));
  // The command's own words come after the text's last newline.
  const Result both = shell(scratch, command + " generate run abc --tokens 3 --temperature 0 2>&1");
  CHECK(has(both.out, "\nprompt 3 tokens"));
}

#ifndef SANITIZED  // the launcher's own limit is 10 s
TEST_CASE("an mpirun that prints or waits without end is passed over", "[cli]") {
  Scratch scratch;
  scratch.config();
  fs::create_directories(scratch / "bin");
  const auto tried = [&](const std::string& script) {
    const fs::path file = scratch.write("bin/mpirun", "#!/bin/sh\n" + script + "\n");
    fs::permissions(file, fs::perms(0755));
    Limits limits;
    limits.path = (scratch / "bin").string();
    return engine(scratch, {"run", "config.toml", "--ranks", "2", "--oversubscribe"}, limits);
  };
  const Result endless = tried("exec /usr/bin/yes \"$(/usr/bin/printf '\\033[2Jy')\"");
  INFO(endless.err);
  CHECK(endless.exit == 3);
  CHECK(has(endless.err, "is not from Open MPI: it says ?[2Jy"));
}

TEST_CASE("an mpirun that waits without end", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  fs::create_directories(scratch / "bin");
  fs::permissions(scratch.write("bin/mpirun", "#!/bin/sh\nexec /bin/sleep 1000\n"), fs::perms(0755));
  Limits limits;
  limits.path = (scratch / "bin").string();
  const Result waits = engine(scratch, {"run", "config.toml", "--ranks", "2", "--oversubscribe"}, limits);
  CHECK(waits.exit == 3);
  CHECK(has(waits.err, "mpirun --version does not end"));
}
#endif
