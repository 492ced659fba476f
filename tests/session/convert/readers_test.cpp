// SPDX-License-Identifier: Apache-2.0
// The files as people have them: JSON with comments, YAML of every kind, byte order marks.
#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

const Section& train_of(const Converted& made) {
  static Config config = built_config(made.text);
  config = built_config(made.text);
  return config.section("train");
}

}  // namespace

TEST_CASE("convert: JSON as DeepSpeed reads it") {
  const auto batch = [](const std::string& text) {
    INFO(text);
    return train_of(converted(text, "--preset tiny --num_gpus 1")).integer("micro_batch");
  };
  CHECK(batch("# a comment\n{\"train_batch_size\": 8, # of all ranks\n}") == 8);
  CHECK(batch("// a comment\n{\"train_batch_size\": 8} // its end") == 8);
  CHECK(batch("/* {\"train_batch_size\": 4} */ {/* 1 */ \"train_batch_size\" /* 2 */ : /* 3 */ 8 /* 4 */}") == 8);
  CHECK(batch("{\"train_batch_size\": 8,}") == 8);
  CHECK(batch("{train_batch_size: 8\n steps_per_print: 5}") == 8);
  CHECK(batch("{'train_batch_size': 8, \"steps_per_print\": 5}") == 8);
  CHECK(batch("{\"train_batch_size\": 8, \"optimizer\": {\"type\": AdamW\n \"params\": {\"lr\": 1e-3}}}") == 8);
  CHECK(batch("\xef\xbb\xbf{\"train_batch_size\": 8}") == 8);
  CHECK(batch("{\"train_batch_size\": 8.0e0}") == 8);
  CHECK(batch("{\r\n\"train_batch_size\": 8,\r\n\"wandb\": {\"enabled\": false, \"project\": \"a # b // c\"}\r\n}") ==
        8);
  CHECK(line_of(converted("{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.8, "
                          "0.99,], \"lr\": 1e-3}}}",
                          "--num_gpus 1"),
                "beta2") == "beta2 = 0.99 # from: optimizer.params.betas = [0.8, 0.99]");
}

TEST_CASE("convert: JSON that is none") {
  CHECK(refusal("{\"a\": 1,\n \"b\": NaN}") ==
        "ds.json:2: not valid JSON\nhelp: JSON has no NaN and no Infinity: write a number");
  CHECK_THAT(refusal("{\"a\": -Infinity}"), Contains("JSON has no NaN and no Infinity"));
  CHECK_THAT(refusal("{\"fp16\": {\"enabled\": True}}"), Contains("this looks like Python"));
  CHECK_THAT(refusal("{\"fp16\": {\"enabled\": False\n}}"), Contains("this looks like Python"));
  CHECK_THAT(refusal("{\"a\": 1e999}"), Contains("not valid JSON"));
  CHECK_THAT(refusal("{\"a\": 1_000}"), Contains("not a number that can be used: 1_000"));
  CHECK_THAT(refusal("{"), Contains("ds.json:1: not valid JSON") && Contains("a closing bracket is missing"));
  CHECK_THAT(refusal("{\n\"a\": \"b\n}"),
             Contains("ds.json:2: not valid JSON") && Contains("does not end with its quote"));
  CHECK_THAT(refusal("{\"a\": 1} {\"b\": 2}"), Contains("there is text after the last bracket"));
  CHECK_THAT(refusal("{\"a\": AdamW, \"b\": 2}"), Contains("write quotes around it"));
  CHECK_THAT(refusal("{\"a\": /* never"), Contains("a comment does not end"));
  CHECK_THAT(refusal("{\"a\" 1}"), Contains("`:` and a value are missing"));
  CHECK_THAT(refusal("{\"a\": }"), Contains("a value is missing"));
  CHECK_THAT(refusal("{\"a\": \"\\q\"}"), Contains("that JSON does not allow"));
  CHECK(refusal(R"({"train_batch_size": 8, "train_batch_size": 16})") == "ds.json: `train_batch_size` appears twice");
  CHECK(refusal(R"({"fp16": {"enabled": true, "enabled": true}})") == "ds.json: `enabled` appears twice");
  CHECK_THAT(refusal("{\"a\": " + std::string(40, '[') + std::string(40, ']') + "}"), Contains("nested too deeply"));
  CHECK_THAT(refusal(std::string(1 << 20, ' ') + "{}"), Contains("larger than 1 MiB"));
  CHECK(refusal(" \n") == "ds.json is empty");
  CHECK(refusal("\xef\xbb\xbf \n") == "ds.json is empty");
  CHECK_THAT(refusal(std::string("\xff\xfe{\0}\0", 6)), Contains("is UTF-16: save it as UTF-8"));
  CHECK_THAT(refusal("{}"), Contains("has no key of a DeepSpeed file or of Hugging Face's training arguments"));
  CHECK_THAT(refusal(R"({"model_type": "opt", "architectures": ["OPTForCausalLM"]})"),
             Contains("describes a model, not a run"));
  CHECK_THAT(refusal("[train]\n", "", "x.toml"), Contains("is TOML already"));
}

TEST_CASE("convert: YAML as people write it") {
  const auto steps = [](const std::string& text, const std::string& name = "a.yaml") {
    INFO(text);
    return train_of(converted("output_dir: o\nmodel_name: tiny\n" + text, "", name)).integer("steps");
  };
  CHECK(steps("max_steps:\n  50\n") == 50);
  CHECK(steps("max_steps: &n 50\nsave_steps: *n\n") == 50);
  CHECK(steps("max_steps: 1_000\n") == 1000);
  CHECK(steps("max_steps: !!int 50\n") == 50);
  CHECK(steps("\"max_steps\": 50\n'seed': 3\n") == 50);
  CHECK(steps("run_name: >-\n  a\n  b\nmax_steps: 50\n") == 50);
  CHECK(steps("? max_steps\n: 50\n") == 50);
  CHECK(steps("max_steps: 50 # of 100\n...\n") == 50);
  CHECK(train_of(converted("\xef\xbb\xbfmax_steps: 50\noutput_dir: o\n", "--preset tiny", "a.yaml")).integer("steps") ==
        50);
  CHECK(train_of(converted("{max_steps: 50, output_dir: o}", "--preset tiny", "a.yaml")).integer("steps") == 50);
  const Converted made = converted(R"(base: &base
  max_steps: 40
  seed: 3
training:
  <<: *base
  max_steps: 50
  learning_rate: +1e-3
)",
                                   "--preset tiny", "a.yaml", {"base"});
  CHECK(train_of(made).integer("steps") == 50);
  CHECK(train_of(made).integer("seed") == 3);
  CHECK(built_config(made.text).section("optimizer").number("learning_rate") == 1e-3);
}

TEST_CASE("convert: YAML that cannot be read") {
  const auto told = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK_THAT(refusal(text, "", "a.yaml"), Contains(part));
  };
  told("max_steps: 3\nmax_steps: 4\n", "a.yaml:2: `max_steps` appears twice, first in line 1");
  told("max_steps\n", "a.yaml:1: not a `key: value` line");
  told("- a\n", "a list without a key");
  told("a: 1\n---\nb: 2\n", "a second document");
  told("a: .nan\n", "is not a number that can be used");
  told("learning_rate: NaN\n", "is not a number that can be used");
  told("a: *b\n", "`*b` names no value");
  told("a: !!python/name:os.system x\n", "a kind of value that is not read here");
  told("a: [1, 2\n", "not valid YAML");
  told("a: \"b\n", "not valid YAML");
  told("a: {b: {c: {d: {e: {f: {g: {h: {i: {j: {k: {l: {m: {n: {o: {p: {q: {r: 1}}}}}}}}}}}}}}}}}\n",
       "nested too deeply");
  told("[a]: 1\n", "a key is not a word");
  told("# nothing\n", "has no keys");
  told("output_dir: \xff\n", "a.yaml is not UTF-8");
  told("max_steps: soon\n", "`max_steps`: train.steps must be of type integer, not string \"soon\"");
  // Values that name each other grow without end.
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int k = 1; k < 9; ++k) {
    const std::string before = "*a" + std::to_string(k - 1), name = "a" + std::to_string(k);
    bomb += name + ": &" + name + " [" + before;
    for (int n = 0; n < 9; ++n) bomb += ", " + before;
    bomb += "]\n";
  }
  told(bomb, "more values than a file of arguments has");
}
