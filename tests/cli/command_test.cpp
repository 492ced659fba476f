// SPDX-License-Identifier: Apache-2.0
// What the command prints without training.
#include <algorithm>

#include "harness.hpp"

using namespace cli;

TEST_CASE("help and version", "[cli]") {
  Scratch scratch;
  const Result help = engine(scratch, {"--help"});
  CHECK(help.exit == 0);
  for (const char* word : {"run", "check", "plan", "eval", "generate", "plugins", "config", "init", "doctor", "ckpt"}) {
    CHECK(has(help.out, word));
  }
  const Result run = engine(scratch, {"run", "--help"});
  CHECK(run.exit == 0);
  for (const char* word : {"--out", "--resume", "--max-time"}) CHECK(has(run.out, word));
  const Result version = engine(scratch, {"--version"});
  CHECK(version.exit == 0);
  CHECK(std::regex_search(version.out, std::regex(R"(^engine \d+\.\d+\.\d+)")));
}

TEST_CASE("a wrong command line is a usage error", "[cli]") {
  Scratch scratch;
  CHECK(engine(scratch, {}).exit == 2);
  CHECK(engine(scratch, {"trian"}).exit == 2);
  CHECK(engine(scratch, {"run"}).exit == 2);
  CHECK(engine(scratch, {"plan", "--no-such-flag"}).exit == 2);
  const auto told = [&](const Args& args, const char* text) {
    const Result result = engine(scratch, args);
    INFO(result.err);
    CHECK(result.exit == 2);
    CHECK(has(result.err, text));
    CHECK(result.out.empty());
  };
  told({"chekc", "x.toml"}, "help: `chekc` is not a subcommand; did you mean `check`? available: run, check, plan");
  told({"ckpt", "list", "run"}, "`list` is not a subcommand; available: ls, export");
  told({"run", "x.toml", "--train.steps=3"}, "an override has no dashes: section.key=value");
  told({"run", "x.toml", "--num_gpus", "2"}, "help: ranks are started by `engine run CONFIG --ranks N`");
  told({"run", "x.toml", "--dry_run"}, "help: `engine check CONFIG` checks everything without training");
  told({"run", "--deepspeed_config=ds.json"}, "help: give the TOML file without a flag");
  told({"run", "x.toml", "--max_steps=5"}, "here it is `train.steps = 5`");
  told({"check", "x.toml", "--plugin-path", "y"}, "--plugin-path goes before the subcommand");
  const std::string weights = std::string(ENGINE_SOURCE_DIR) + "/tests/models/hf/single";
  told({"run", weights}, "is a Hugging Face directory; a configuration or a run is needed here\nhelp: write");
  told({"eval", weights}, "needs [data]\nhelp: give --data CONFIG");
  told({"config", "schema", "trian"}, "there is no section or plugin named `trian` that has keys");
  told({"ckpt", "gc", "run", "--keep", "0"}, "--keep: Value 0 not in range 1 to 1000000000");
  told({"run", "x.toml", "--max-time", "nan"}, "--max-time nan is not a duration");
}

TEST_CASE("the help of a key is broken into lines", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result wrong = engine(scratch, {"check", "config.toml", "data.paths=text.txt"});
  CHECK(wrong.exit == 2);
  CHECK(has(wrong.err, "help: Files or patterns"));
  CHECK_FALSE(std::regex_search(wrong.err, std::regex("[^\n]{121}")));
}

TEST_CASE("init writes a configuration that check accepts", "[cli]") {
  Scratch scratch;
  const Result shown = engine(scratch, {"init", "tiny"});
  CHECK(shown.exit == 0);
  CHECK(has(shown.out, "preset = \"tiny\""));
  CHECK(engine(scratch, {"init", "tiny", "-o", "new.toml"}).exit == 0);
  CHECK(read(scratch / "new.toml") == shown.out);
  CHECK(engine(scratch, {"init", "tiny", "-o", "new.toml"}).exit == 2);  // not overwritten
  const Result checked = engine(scratch, {"check", "new.toml", "data.paths=['text.txt']", "train.sequence_length=64"});
  INFO(checked.err);
  CHECK(checked.exit == 0);
  for (const char* line : {"config", "plugins", "model", "data", "batch", "schedule", "memory", "disk"})
    CHECK(std::regex_search(checked.out, std::regex("\\n  " + std::string(line) + " .* ok\\n")));
  const Result unknown = engine(scratch, {"init", "tinny"});
  CHECK(unknown.exit == 2);
  CHECK(has(unknown.err, "no model plugin has a preset `tinny`"));
  CHECK(has(unknown.err, "\n  llama: 13b"));
  CHECK(has(engine(scratch, {"init", "opt/125m"}).out, "plugin = \"opt\"\npreset = \"125m\""));
  CHECK(engine(scratch, {"init", "llama", "tiny"}).out == shown.out);
  const Result large = engine(scratch, {"init", "7b_mamba", "-o", "mamba.toml"});
  CHECK(has(large.err, "set [data] paths and tokenizer, then:  engine check mamba.toml"));
  const Result bytes = engine(scratch, {"check", "mamba.toml", "data.paths=['text.txt']", "data.tokenizer=bytes",
                                        "model.num_hidden_layers=1", "train.sequence_length=16"});
  CHECK(has(bytes.err, "note: the data have ids below 256, the model has 50257"));
  // Several models have a preset of this name: the first is used, with a note.
  const Result several = engine(scratch, {"init", "13b"});
  CHECK(has(several.out, "plugin = \"llama\""));
  CHECK(has(several.err, "`13b` is also a preset of opt; this one is llama's"));
  CHECK(engine(scratch, {"init", "7b"}).err.empty());
  const Result nowhere = engine(scratch, {"init", "7b", "-o", "nowhere/x.toml"});
  CHECK(nowhere.exit == 10);
  CHECK(has(nowhere.err, "cannot write nowhere/x.toml: No such file or directory\n"));
}

TEST_CASE("plan --json has every field", "[cli]") {
  Scratch scratch;
  const Result plan = engine(scratch, {"plan", scratch.config().string(), "--json"});
  INFO(plan.err);
  REQUIRE(plan.exit == 0);
  const Json json = Json::parse(plan.out);
  // 256 x 32 in and out, two layers of four 32 x 32, three 32 x 64 and two norms, one last norm.
  CHECK(json.at("parameters") == 2 * 256 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32);
  CHECK(json.at("flops_per_step") > 0);
  CHECK(json.at("fits") == true);
  CHECK(json.contains("step_seconds_estimate"));
  const Json& rank = json.at("ranks").at(0);
  CHECK(rank.at("rank") == 0);
  for (const char* key : {"host_peak_bytes", "nvme_bytes", "communication"}) CHECK(rank.contains(key));
  uint64_t all = 0;
  for (const Json& arena : rank.at("arenas")) {
    const uint64_t parts = arena.at("persistent").get<uint64_t>() + arena.at("transient").get<uint64_t>() +
                           arena.at("workspace").get<uint64_t>();
    CHECK(arena.at("total") == parts);
    CHECK(arena.at("device") == "cpu");
    CHECK(arena.contains("kind"));
    all += parts;
  }
  CHECK(rank.at("device_peak_bytes") == all);
  CHECK(rank.at("host_peak_bytes") > all);

  // What a checkpoint takes, headers aside; ranks write it together.
  const Result run = engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=1"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  uint64_t written = 0;
  for (const auto& file : std::filesystem::directory_iterator(scratch / "run/checkpoints/step-00000001"))
    if (file.path().extension() == ".safetensors") written += file.file_size();
  const auto planned = json.at("checkpoint_bytes").get<uint64_t>();
  CHECK(written >= planned);
  CHECK(written - planned < 16384);
  const Result four = engine(scratch, {"plan", "config.toml", "--json", "--ranks", "4", "zero.plugin=zero3"});
  CHECK(Json::parse(four.out).at("checkpoint_bytes") == planned);

  const Result text = engine(scratch, {"plan", "config.toml"});
  for (const char* word :
       {"parameters", "FLOPs per step", "persistent", "transient", "workspace", "process peak", "checkpoint"})
    CHECK(has(text.out, word));
  const Result dump = engine(scratch, {"plan", "config.toml", "--dump"});
  CHECK(dump.exit == 0);
  CHECK(has(dump.out, "eng.attention/1"));
  CHECK(names(scratch / "runs").empty());
}

TEST_CASE("plan --ranks prints what each rank holds and sends", "[cli]") {
  Scratch scratch;
  const std::string config = scratch.config().string();
  const Result plan = engine(scratch, {"plan", config, "--ranks", "8", "--json", "zero.plugin=zero3",
                                       "comm.describe={bandwidth=\"1GB\", latency=\"5us\", flops=1e9}"});
  INFO(plan.err);
  REQUIRE(plan.exit == 0);
  const Json json = Json::parse(plan.out);
  CHECK(json.at("world_size") == 8);
  CHECK(json.at("step_seconds_estimate") > json.at("exposed_seconds"));
  CHECK(json.at("communication_seconds") >= json.at("exposed_seconds"));
  CHECK(json.at("ranks").at(0).at("communication").size() == 6);
  for (const Json& row : json.at("ranks").at(0).at("communication")) CHECK(row.at("sent_bytes") > 0);
  // Ranks that share this machine need more of it.
  const std::vector<std::string> words = {"plan", config, "--ranks", "8", "comm.describe.ranks_per_node=4"};
  CHECK(has(engine(scratch, words).out, "4 on a node"));
  CHECK(engine(scratch, {"plan", config, "--ranks", "0"}).exit == 2);
  // The ranks share a batch that is said of all of them.
  Args batch = {"plan", config, "--ranks", "2", "train.micro_batch=4", "train.global_batch=24"};
  CHECK(has(engine(scratch, batch).out, "micro-batch 4 x 3"));
  batch[3] = "4";
  const Result uneven = engine(scratch, batch);
  CHECK(uneven.exit == 2);
  CHECK(has(uneven.err, "help: train.global_batch = 32"));
}

TEST_CASE("plan needs only the model", "[cli]") {
  Scratch scratch;
  scratch.write("model.toml", "[model]\nplugin = \"llama\"\npreset = \"tiny\"\n");
  CHECK(engine(scratch, {"plan", "model.toml"}).exit == 0);
}

TEST_CASE("config show prints the origin of values, config schema all keys", "[cli]") {
  Scratch scratch;
  const Result show = engine(scratch, {"config", "show", scratch.config().string(), "train.steps=11"});
  INFO(show.err);
  REQUIRE(show.exit == 0);
  CHECK(std::regex_search(show.out, std::regex(R"(steps = 11 +# from: command line)")));
  CHECK(std::regex_search(show.out, std::regex(R"(micro_batch = 2 +# from: \S*config\.toml:\d+)")));
  CHECK(std::regex_search(show.out, std::regex(R"(vocab_size = 256 +# from: preset tiny)")));
  CHECK(std::regex_search(show.out, std::regex(R"(seed = 1 +# from: default)")));
  const Result schema = engine(scratch, {"config", "schema"});
  CHECK(schema.exit == 0);
  for (const char* key : {"micro_batch", "weight_decay", "hidden_size", "validation", "threads"})
    CHECK(has(schema.out, key));
}

TEST_CASE("plugins ls, plugins info and doctor", "[cli]") {
  Scratch scratch;
  const Result list = engine(scratch, {"plugins", "ls"});
  CHECK(list.exit == 0);
  for (const char* name : {"cpu", "llama", "adamw", "sgd", "fp32", "text"}) CHECK(has(list.out, name));
  CHECK_FALSE(has(list.out, "folders searched"));

  fs::create_directory(scratch / "more");
  scratch.write("more/broken.eng.so", "not a plugin");
  const Result why = engine(scratch, {"--plugin-path", (scratch / "more").string(), "plugins", "ls", "--why"});
  CHECK(why.exit == 0);
  CHECK(has(why.out, "folders searched, in this order:\n  " + (scratch / "more").string()));
  CHECK(std::regex_search(why.out, std::regex(R"(broken\.eng\.so: refused: \S+)")));
  CHECK(has(why.out, "cpu.eng.so: used"));

  const Result info = engine(scratch, {"plugins", "info", "llama"});
  CHECK(info.exit == 0);
  CHECK(has(info.out, "num_hidden_layers"));
  const Result lama = engine(scratch, {"plugins", "info", "lama"});
  CHECK(lama.exit == 3);
  CHECK(has(lama.err, "there is no plugin `lama`\nhelp: did you mean `llama`?"));
  CHECK(std::count(lama.err.begin(), lama.err.end(), '\n') == 2);

  const Result doctor = engine(scratch, {"doctor"});
  CHECK(doctor.exit == 0);
  for (const char* word : {"engine ", "cpu ", "device  cpu: ", "limits", "disk", "folders searched"})
    CHECK(has(doctor.out, word));
}
