// SPDX-License-Identifier: Apache-2.0
// Every key of session/config/foreign, converted: what is said of it is what the table says.
#include <map>
#include <set>

#include "converted.hpp"
#include "session/config/foreign.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

struct Name {
  std::string trainer, key;
};

// With the trainer under which a name is tried: those that count everywhere as DeepSpeed's or as Hugging Face's.
std::vector<Name> all_names() {
  std::vector<Name> out;
  const std::vector<std::string> known = foreign_names();
  const std::set<std::string> every(known.begin(), known.end());
  for (const std::string& name : known) {
    const auto colon = name.find(':');
    if (colon != std::string::npos && colon > 0 && name[colon + 1] != '/')
      out.push_back({name.substr(0, colon), name.substr(colon + 1)});
    else if (!every.count("deepspeed:" + name))
      out.push_back({"huggingface", name});
  }
  return out;
}

std::string yaml_value(const Value& value) {
  return value.index() == 4 ? "\"" + std::get<std::string>(value) + "\"" : value.index() ? toml_text(value) : "null";
}

// Keys with their values, as a file of the trainer.
struct Given {
  std::string trainer;
  std::vector<std::pair<std::string, Value>> keys = {};

  std::string text() const {
    std::string out =
        trainer == "deepspeed" ? "{\"train_micro_batch_size_per_gpu\": 1,\n\"optimizer.type\": \"Adam\"" : "";
    if (trainer == "huggingface") out = "output_dir: o\nmax_steps: 10\n";
    if (trainer == "accelerate") out = "compute_environment: LOCAL_MACHINE\n";
    if (trainer == "nanogpt") out = "max_iters: 10\nlr_decay_iters: 10\n";
    if (trainer == "llamafactory") out = "cutoff_len: 16\n";
    if (trainer == "script") out = "model:\n  vocab_size: 300\n";
    for (const auto& [key, value] : keys) {
      const std::string line = "\"" + key + "\": " + yaml_value(value);
      if (("\n" + out).find("\n" + key + ":") != std::string::npos) continue;  // it is there already
      out += trainer == "deepspeed" ? ",\n" + line : line + "\n";
    }
    return trainer == "deepspeed" ? out + "}" : out;
  }
  std::string launch() const {
    if (trainer == "axolotl") return "axolotl train x.yml --max_steps 10";
    if (trainer == "llamafactory") return "llamafactory-cli train x.yml --max_steps 10 --finetuning_type full";
    if (trainer == "trl") return "trl sft --max_steps 10";
    if (trainer == "megatron") return "pretrain_gpt.py --train-iters 10";
    return trainer == "accelerate" ? "accelerate launch train.py --max_steps 10" : "";
  }
  std::string name() const { return trainer == "deepspeed" ? "ds.json" : "x.yml"; }
};

const std::vector<Value> values = {Value(true),
                                   Value(false),
                                   Value(int64_t{7}),
                                   Value(int64_t{5}),
                                   Value(int64_t{1}),
                                   Value(int64_t{0}),
                                   Value(std::string("x7")),
                                   Value(std::string("mean")),
                                   Value(std::string("random")),
                                   Value(std::string("concat")),
                                   Value(std::string("full")),
                                   Value(std::string("pt")),
                                   Value(std::string("nll")),
                                   Value(std::string("none"))};

// Keys that make a file LLaMA-Factory's, or that its launch line has: trainers_test.cpp tries them.
bool tells_trainer(const Name& name) {
  return (name.trainer == "huggingface" || name.trainer == "llamafactory") &&
         (name.key == "finetuning_type" || name.key == "stage");
}

// Trainer and fate -> its keys, each with a value that has this fate.
std::map<std::pair<std::string, Fate>, Given> by_fate() {
  std::map<std::pair<std::string, Fate>, Given> out;
  for (const Name& name : all_names())
    for (const Fate fate : {Fate::none, Fate::same, Fate::told, Fate::refused, Fate::job, Fate::off})
      for (const Value& value : values) {
        const auto account = account_of(name.trainer, name.key, value);
        if (!account || account->fate != fate || account->below || tells_trainer(name)) continue;
        Given& given = out.try_emplace({name.trainer, fate}, Given{name.trainer}).first->second;
        given.keys.emplace_back(name.key, value);
        break;
      }
  return out;
}

}  // namespace

TEST_CASE("convert: every key of the table has the fate that the table says") {
  std::size_t tried = 0;
  for (auto& [which, given] : by_fate()) {
    INFO(which.first << " " << int(which.second) << "\n" << given.text());
    const Fate fate = which.second;
    if (fate == Fate::refused || fate == Fate::job) {
      const std::string told = refusal(given.text(), given.launch(), given.name());
      std::vector<std::string> ignored;
      for (const auto& [key, value] : given.keys) {
        INFO(key);
        CHECK_THAT(told, Contains("`" + key + "`"));
        if (fate == Fate::job) CHECK_THAT(told, Contains("another kind of training"));
        if (fate == Fate::refused) CHECK_THAT(told, Contains("--ignore " + key));
        ignored.push_back(key);
        ++tried;
      }
      if (fate == Fate::refused)
        CHECK_NOTHROW(converted(given.text(), given.launch(), given.name(), ignored));
      else
        CHECK_THAT(refusal(given.text(), given.launch(), given.name(), {ignored[0]}),
                   Contains("--ignore " + ignored[0] + ": this is another kind of training"));
      continue;
    }
    Converted made;
    REQUIRE_NOTHROW(made = converted(given.text(), given.launch(), given.name()));
    const std::string notes = notes_of(made);
    for (const auto& [key, value] : given.keys) {
      INFO(key << "\n" << notes);
      CHECK_THAT(notes, Contains("`" + key + "`") || Contains(" " + key + ",") || Contains(" " + key + "\n"));
      ++tried;
    }
    CHECK_THAT(notes, !Contains("not understood"));
    if (fate == Fate::off) CHECK_THAT(notes, Contains("off there and here"));
  }
  CHECK(tried > 1000);
}

TEST_CASE("convert: what is ours points at a key that exists, and other spellings at a name that does") {
  const SchemaSource plugins = schemas_of(built_plugins());
  const auto there = [&](const std::string& key) {
    const auto dot = key.find('.');
    for (const SectionSchema& section : section_schemas()) {
      if (key.starts_with("[") ? key != "[" + section.name + "]" : section.name != key.substr(0, dot)) continue;
      if (key.starts_with("[")) return true;
      if (find_option(section.options, key.substr(dot + 1))) return true;
      for (const std::string& name : section.kind.empty() ? std::vector<std::string>() : plugins.names(section.kind))
        if (const auto* plugin = plugins.find(section.kind, name))
          if (find_option(merged(section, plugin), key.substr(dot + 1))) return true;
    }
    return false;
  };
  std::size_t tried = 0;
  for (const Name& name : all_names()) {
    INFO(name.trainer << ":" << name.key);
    const auto account = account_of(name.trainer, name.key, {});
    REQUIRE(account);
    if (account->fate == Fate::ours) CHECK(there(translation(name.trainer, name.key, {})->here));
    if (account->fate == Fate::alias && !account->text.starts_with("deepspeed:"))
      CHECK(account_of(name.trainer, account->text, {}));
    if (account->fate == Fate::alias && account->text.starts_with("deepspeed:"))
      CHECK(account_of("deepspeed", account->text.substr(10), {}));
    ++tried;
  }
  CHECK(tried > 1300);
}

TEST_CASE("convert: a key that nobody knows is an error, whatever its value is") {
  for (const char* value : {"true", "false", "0", "3", "x", "[1, 2]"}) {
    const std::string yaml = "output_dir: o\nmax_steps: 3\nlearning_rte: " + std::string(value) + "\n";
    INFO(yaml);
    const std::string told = refusal(yaml, "", "a.yaml");
    CHECK_THAT(told, Contains("not understood: learning_rte (did you mean learning_rate?)") &&
                         Contains("--ignore learning_rte"));
    const Converted made = converted(yaml, "", "a.yaml", {"learning_rte"});
    CHECK_THAT(notes_of(made), Contains("`learning_rte` is ignored"));
  }
  // Nothing was set.
  for (const char* value : {"null", "\"\"", "[]"})
    CHECK_THAT(notes_of(converted("output_dir: o\nmax_steps: 3\nnovelty: " + std::string(value) + "\n", "", "a.yaml")),
               Contains("not understood, and empty there: novelty"));
  CHECK_THAT(refusal("{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2, \"stage4_novel\": 1}}"),
             Contains("not understood: zero_optimization.stage4_novel"));
  CHECK_THAT(refusal("", "train.py --max_steps 3 --qwxyz 1 --other=2"),
             Contains("not understood: --other, --qwxyz") && Contains("--ignore other --ignore qwxyz"));
  CHECK_NOTHROW(converted("", "train.py --max_steps 3 --qwxyz 1 --other=2", "", {"qwxyz", "--other"}));
  CHECK_THAT(refusal("output_dir: o\nmax_steps: 3\n", "", "a.yaml", {"never"}),
             Contains("--ignore never: no key of this name is given"));
  // A section is ignored whole.
  CHECK_NOTHROW(converted(R"({"train_batch_size": 8, "novel": {"a": 1, "b": {"c": 2}}})", "", "ds.json", {"novel"}));
}
