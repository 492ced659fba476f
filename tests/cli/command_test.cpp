// SPDX-License-Identifier: Apache-2.0
// The output of the command without training.
#include <algorithm>
#include <regex>

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
  told({"ckpt", "list", "run"}, "`list` is not a subcommand; available: ls, get, export");
  told({"run", "x.toml", "--train.steps=3"}, "an override has no dashes: section.key=value");
  told({"run", "x.toml", "--num_gpus", "2"}, "help: ranks are started by `engine run CONFIG --ranks N`");
  told({"run", "x.toml", "--max_restarts", "2"}, "help: `engine run CONFIG --ranks N --restarts R` starts ranks again");
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

TEST_CASE("each group lists its commands, and each command has its help", "[cli]") {
  Scratch scratch;
  for (const Args& command :
       {Args{"ckpt"}, {"report"}, {"config", "convert"}, {"plugins", "test"}, {"plugins", "new"}}) {
    Args group(command.begin(), command.end() - 1), args = command;
    group.emplace_back("--help"), args.emplace_back("--help");
    CHECK(has(engine(scratch, group).out, "\n  " + command.back() + " "));
    const Result help = engine(scratch, args);
    INFO(help.out << help.err);
    CHECK(help.exit == 0);
    CHECK(
        has(help.out, "Usage: engine " + (command.size() > 1 ? command[0] + " " : "") + command.back() + " [OPTIONS]"));
  }
  const Result odd = engine(scratch, {"--plugin-path", scratch.path().string(), "report", "--", "--out", "no-run"});
  CHECK(odd.exit == 2);
  CHECK(has(odd.err, "--out"));
  const Result wrong = engine(scratch, {"config", "convert", "--no-such-flag"});
  CHECK(wrong.exit == 2);
  CHECK(has(wrong.err, "--no-such-flag"));
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
  CHECK(has(engine(scratch, {"init", "lora", "-o", "lora.toml"}).err, "set [model] from and [data] paths, then:"));
  const Result adapter =
      engine(scratch, {"check", "lora.toml", "model.from=" + std::string(ENGINE_SOURCE_DIR) + "/tests/models/hf/single",
                       "data.paths=['text.txt']", "train.sequence_length=32", "adapter.rank=4"});
  INFO(adapter.err);
  CHECK(adapter.exit == 0);
  CHECK(has(adapter.out, "lora replaces 14 calls"));
  // Several models have a preset of this name: the first is used, with a note.
  const Result several = engine(scratch, {"init", "13b"});
  CHECK(has(several.out, "plugin = \"llama\""));
  CHECK(has(several.err, "`13b` is also a preset of opt; this one is llama's"));
  CHECK(engine(scratch, {"init", "7b"}).err.empty());
  // A part of the name of a preset of another model.
  CHECK(has(engine(scratch, {"init", "3b"}).out, "preset = \"smollm3-3b\""));
  CHECK(has(engine(scratch, {"init", "pythia-160m"}).out, "plugin = \"gpt_neox\""));
  const std::string medium = engine(scratch, {"init", "openai-community/gpt2-medium"}).out;
  CHECK((has(medium, "plugin = \"gpt2\"") && has(medium, "preset = \"medium\"")));
  const Result nowhere = engine(scratch, {"init", "7b", "-o", "nowhere/x.toml"});
  CHECK(nowhere.exit == 10);
  CHECK(has(nowhere.err, "cannot create nowhere/x.toml: No such file or directory\n"));
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

  // The size of a checkpoint, headers aside; ranks write it together.
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
  const Result list = engine(scratch, {"plan", "config.toml", "--activations"});
  CHECK(list.exit == 0);
  CHECK(has(list.out, "eng.linear/1 of model.layers.0.self_attn.q_proj.weight"));
  const Json listed = Json::parse(engine(scratch, {"plan", "config.toml", "--activations", "--json"}).out);
  CHECK(listed.at(0).at("name") == "embed.embedding.0");
  CHECK(listed.at(1).at("name") == "embed.output");
  CHECK(listed.at(1).at("bytes") == listed.at(0).at("bytes"));
  CHECK(names(scratch / "runs").empty());
}

TEST_CASE("plan counts muon's products of bf16 at the rate of bf16", "[cli]") {
  Scratch scratch;
  const std::string config = scratch.config().string();
  Json plans[2];
  for (int k : {0, 1}) {
    const Result plan = engine(scratch, {"plan", config, "--json", "device.describe=a800-80g", "model.hidden_size=2048",
                                         "model.intermediate_size=4096", "optimizer.plugin=muon",
                                         std::string("optimizer.products=") + (k == 0 ? "f32" : "bf16")});
    INFO(plan.err);
    REQUIRE(plan.exit == 0);
    plans[k] = Json::parse(plan.out);
  }
  // 19.5 and 312 TFLOP/s; the model itself computes in f32 in both.
  const double f32 = plans[0].at("step_seconds_estimate"), bf16 = plans[1].at("step_seconds_estimate");
  CHECK(f32 > 3 * bf16);
  const auto bytes = [](const Json& plan) { return plan.at("ranks").at(0).at("device_peak_bytes").get<uint64_t>(); };
  CHECK(bytes(plans[1]) < bytes(plans[0]));
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

TEST_CASE("a described device is for planning", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result plan = engine(scratch, {"plan", "config.toml", "device.describe=rtx4090", "--ranks", "2"});
  INFO(plan.err);
  CHECK(plan.exit == 0);
  for (const char* part : {"described device  rtx4090", "arena cuda (device)", "arena cuda (pinned)", "upper bound",
                           "of 23.5 GiB: fits", "2 on a node", "estimated, bound by"})
    CHECK(has(plan.out, part));
  // An amount of memory describes the device that is here: the same plan, byte for byte.
  const auto same = [&](const char* how) {
    const std::string here = engine(scratch, {"plan", "config.toml", how}).out;
    CHECK(here.size() > 1000);
    return engine(scratch, {"plan", "config.toml", how, "device.describe=1GB"}).out == here;
  };
  CHECK(same("--dump"));
  const auto arenas = [&](const char* device) {
    return Json::parse(engine(scratch, {"plan", "config.toml", "--json", device}).out).at("ranks").at(0);
  };
  CHECK(arenas("device.describe=1GB") == arenas("device.plugin=cpu"));
  const Result check = engine(scratch, {"check", "config.toml", "device.describe=h200"});
  CHECK(check.exit == 0);
  CHECK(has(check.out, "of 139.7 GiB, described by h200"));
  CHECK(std::regex_search(check.out, std::regex("\n  disk .* on another machine +not checked\n")));
  CHECK(std::regex_search(check.out, std::regex("\n  host .*: host.memory is not given +not checked\n")));
  const Result host = engine(scratch, {"check", "config.toml", "device.describe=h200", "host.memory=64GiB"});
  CHECK(host.exit == 0);
  CHECK_FALSE(has(host.out, "host.memory is not given"));
  // A checkpoint that no disk has room for: only that of this machine is looked at.
  const Args large = {"check",
                      "config.toml",
                      "model.vocab_size=50000000",
                      "train.steps=1000000",
                      "checkpoint.every=1",
                      "checkpoint.keep=1000000"};
  for (const auto& [describe, exit] : {std::pair("device.describe=h200", 0), {"host.memory=1TiB", 10}}) {
    Args words = large;
    words.push_back(describe);
    const Result one = engine(scratch, words);
    INFO(one.err);
    CHECK(one.exit == exit);
  }
  CHECK(engine(scratch, {"check", "config.toml", "device.describe=1MiB"}).exit == 6);
  for (const char* command : {"run", "check", "plan"}) {
    const Result unknown = engine(scratch, {command, "config.toml", "device.describe=h2000"});
    CHECK(unknown.exit == 2);
    CHECK(has(unknown.err, command == std::string("run") ? "described, not present" : "did you mean `h200`?"));
  }
  for (Args run : {Args{"run", "config.toml"}, Args{"run", "config.toml", "--ranks", "2", "--oversubscribe"}}) {
    run.push_back("device.describe=h200");
    const Result refused = engine(scratch, run);
    CHECK(refused.exit == 2);
    CHECK(has(refused.err, "the device is described, not present, so nothing can run on it"));
    CHECK(has(refused.err, "--unset device.describe"));
  }
}

TEST_CASE("check --ranks checks what plan --ranks plans", "[cli]") {
  Scratch scratch;
  scratch.config();
  const auto with = [&](const char* command, const char* ranks, Args more) {
    more.insert(more.begin(), {command, "config.toml", "--ranks", ranks});
    return engine(scratch, more);
  };
  const Result four = with("check", "4", {"zero.plugin=zero3"});
  INFO(four.err << four.out);
  CHECK(four.exit == 0);
  CHECK(has(four.out, " x 4 ranks = "));
  CHECK(has(four.out, ", each of 4 ranks"));
  // The checkpoint is that of all ranks, but for the headers of its files.
  const auto disk = [](const Result& result) {
    std::smatch found;
    REQUIRE(std::regex_search(result.out, found, std::regex("disk +3 checkpoints x ([0-9.]+) KiB")));
    return std::stod(found[1].str());
  };
  CHECK(disk(four) == Approx(disk(with("check", "1", {}))).epsilon(0.05));
  // The messages are the same, and so are the proposals.
  const Args batch = {"--unset", "train.accumulate", "train.micro_batch=1", "train.global_batch=6"};
  CHECK(with("check", "4", batch).exit == 2);
  CHECK(with("check", "4", batch).err == with("plan", "4", batch).err);
  CHECK(has(with("check", "4", batch).err, "is not a multiple of 4 ranks x train.micro_batch = 1"));
  CHECK(with("check", "3", batch).exit == 0);
  CHECK(with("check", "0", {}).exit == 2);
  // A step that fits on one rank need not fit on a machine that several share, and the other way round.
  const Json plan = Json::parse(with("plan", "4", {"zero.plugin=zero3", "--json"}).out);
  const uint64_t peak = plan.at("ranks").at(0).at("host_peak_bytes");
  const std::string room = "device.describe=" + std::to_string(peak + 100'000),  // for the text, 20 KB
      less = "device.describe=" + std::to_string(peak - 1);
  CHECK(with("check", "4", {"zero.plugin=zero3", room}).exit == 0);
  CHECK(with("check", "4", {"zero.plugin=zero3", less}).exit == 6);
  CHECK(with("check", "4", {"zero.plugin=zero3", room, "comm.describe={ranks_per_node=4}"}).exit == 6);
  CHECK(has(engine(scratch, {"check", "--help"}).out, "number of ranks that share the step; they need not exist"));
}

TEST_CASE("plan --fit finds settings, and explains them", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  const auto fit = [&](Args more) {
    more.insert(more.begin(), "plan");
    return engine(scratch, more);
  };
  // The value may be left out, and the words may come in any order.
  const std::string here = fit({"config.toml", "--fit"}).out;
  CHECK(has(here, "fit cpu: "));
  CHECK(has(here, "  best  "));
  CHECK(fit({"--fit", "config.toml"}).out == here);
  const std::string card = fit({"config.toml", "--fit", "rtx4090", "train.micro_batch=2"}).out;
  CHECK(has(card, "fit rtx4090: 23.5 GiB (1.0 GiB reserved, assumed), 1 rank"));
  CHECK(has(card, "a step takes "));
  for (const Args& order : {Args{"--fit", "rtx4090", "config.toml", "train.micro_batch=2"},
                            Args{"config.toml", "train.micro_batch=2", "--fit=rtx4090"},
                            Args{"config.toml", "train.micro_batch=2", "device.describe=rtx4090", "--fit"}})
    CHECK(fit(order).out == card);
  const Result json = fit({"config.toml", "--fit", "24GiB", "--ranks", "2", "--host", "64GiB", "--json"});
  INFO(json.err);
  const Json found = Json::parse(json.out);
  CHECK(found.at("fits") == true);
  CHECK(found.at("ranks") == 2);
  CHECK(found.at("device_bytes") == uint64_t{24} << 30);
  // A path starts at the working directory.
  std::filesystem::create_directory(scratch / "cards");
  scratch.write("cards/mine.toml", "plugin = 'cuda'\nmemory = '300KiB'\nreserve = 0\nworkspace = 1\n");
  const Result none = fit({"config.toml", "--fit", "cards/mine.toml"});
  CHECK(none.exit == 5);  // the code for device memory
  CHECK(has(none.out, "nothing fits: "));
  CHECK(fit({"config.toml", "--fit", "1MiB"}).exit == 6);  // the cpu's is the host's
  CHECK(fit({"config.toml", "--fit", "4090", "train.micro_batch=2"}).out == card);
  // Every bad value has its message.
  const auto refused = [&](const Args& args, const std::string& what) {
    const Result result = fit(args);
    INFO(what << "\n" << result.err);
    CHECK(result.exit == 2);
    CHECK(has(result.err, what));
  };
  refused({"config.toml", "--fit", "0"}, "--fit = 0: nothing fits into a device without memory");
  refused({"config.toml", "--fit", "rtx4091"}, "did you mean `rtx4090`?");
  refused({"config.toml", "--fit", "a100"}, "say which: a100-40g or a100-80g");
  refused({"config.toml", "--fit", "4096"}, "--fit = 4096: there is no such card, and fewer than 1 MiB need a unit");
  refused({"config.toml", "--fit", "24GiB", "--host", "512"}, "--host 512: this is no amount of memory");
  refused({"config.toml", "--fit", "24GiB", "--host", "0"}, "--host 0: this is no amount of memory");
  refused({"config.toml", "--fit", "24GiB", "--host", "much"}, "--host much: this is no amount of memory");
  refused({"config.toml", "--fit", "24GiB", "--dump"}, "--dump prints one plan");
  refused({"config.toml", "--fit", "24GiB", "--activations"}, "--activations prints one plan");
  refused({"config.toml", "--fit", "./none.toml"}, "none.toml");
  refused({"--fit"}, "a configuration file or a run directory is missing");
  refused({}, "a configuration file or a run directory is missing");
  // An error about memory has the same proposals.
  const Result check = engine(scratch, {"check", "config.toml", "device.describe=" + std::to_string(3 << 20)});
  INFO(check.err);
  CHECK(check.exit == 6);
  CHECK(has(check.err, "too much"));
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
  std::smatch rate;  // a rate that a plan takes, of two digits
  REQUIRE(std::regex_search(doctor.out, rate, std::regex(R"re(host\.memory_bandwidth = "([1-9][0-9]?0*)MB")re")));
  CHECK(std::stod(rate[1]) > 100);
  for (const char* word :
       {"engine ", "cpu ", "device  cpu: ", "host    memory ", "limits", "io      ", "disk", "folders searched"})
    CHECK(has(doctor.out, word));
}
