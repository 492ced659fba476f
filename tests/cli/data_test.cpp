// SPDX-License-Identifier: Apache-2.0
// engine data: tokens are made once, looked at, checked, and used again.
#include <fstream>

#include <cmath>
#include <regex>

#include "harness.hpp"

using namespace cli;

namespace {

const std::string golden = std::string(ENGINE_SOURCE_DIR) + "/tests/data/golden/";

Args with(Args args) {
  args.push_back("data.tokenizer=" + golden + "gpt2");
  args.push_back("model.vocab_size=704");
  return args;
}

}  // namespace

TEST_CASE("data build makes a token file that run reuses", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result built = engine(scratch, with({"data", "build", "config.toml"}));
  INFO(built.err);
  REQUIRE(built.exit == 0);
  const fs::path file = built.out.substr(0, built.out.find('\n'));
  CHECK(file.parent_path() == scratch / ".engine-cache");
  CHECK(std::regex_search(
      built.err, std::regex(R"(data  \S+\.tokens: \d+ tokens in 1 documents, built in \S+ \(\d+ tokens/s\))")));
  const std::string bytes = read(file);

  const Result other = engine(scratch, with({"data", "build", "config.toml", "--out", "elsewhere", "--threads", "3"}));
  REQUIRE(other.exit == 0);
  CHECK(fs::path(other.out.substr(0, other.out.find('\n'))) == scratch / "elsewhere" / file.filename());
  CHECK(read(scratch / "elsewhere" / file.filename().string()) == bytes);

  const Result inspected = engine(scratch, {"data", "inspect", file.string()});
  CHECK(inspected.exit == 0);
  for (const char* line : {"format: engine\n", "vocabulary: 700\n", "documents: 1\n", "bytes per token: 2\n"})
    CHECK(has(inspected.out, line));
  CHECK(engine(scratch, {"data", "verify", file.string()}).exit == 0);
  const Result data = engine(scratch, with({"data", "inspect", "config.toml"}));
  CHECK(data.exit == 0);
  CHECK(has(data.out, "training samples: "));
  CHECK(has(data.out, "as text: "));

  const Result run = engine(scratch, with({"run", "config.toml", "--out", "run"}));
  INFO(run.err);
  REQUIRE(run.exit == 0);
  CHECK(has(run.err, "already built"));
  CHECK(names(scratch / ".engine-cache").size() == 1);
  const Result eval = engine(scratch, {"eval", "run"});
  CHECK(eval.exit == 0);
  CHECK(has(eval.err, "already built"));

  // A damaged file is found and made again by a run; verify refuses it.
  std::string bad = bytes;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
  scratch.write(".engine-cache/" + file.filename().string(), bad);
  const Result verified = engine(scratch, {"data", "verify", file.string()});
  CHECK(verified.exit == 4);
  CHECK(has(verified.err, "is damaged"));
  const Result again = engine(scratch, with({"run", "config.toml", "--out", "run2"}));
  CHECK(again.exit == 0);
  CHECK(has(again.err, "built in"));
  CHECK(read(file) == bytes);
  CHECK(numbers(scratch / "run2") == numbers(scratch / "run"));
}

TEST_CASE("token files train like the text from which they are made", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result built = engine(scratch, with({"data", "build", "config.toml", "--out", "."}));
  REQUIRE(built.exit == 0);
  const std::string file = fs::path(built.out.substr(0, built.out.find('\n'))).filename();
  REQUIRE(engine(scratch, with({"run", "config.toml", "--out", "text"})).exit == 0);
  const std::string text = read(scratch / "config.toml");
  const std::string config = std::regex_replace(text, std::regex("\\[data\\]\n"), "[data]\nplugin = \"tokens\"\n");
  REQUIRE(config != text);
  scratch.write("tokens.toml", config);
  const Result run =
      engine(scratch, {"run", "tokens.toml", "--out", "tokens", "model.vocab_size=704", "data.paths=['" + file + "']"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  CHECK(numbers(scratch / "tokens") == numbers(scratch / "text"));
}

TEST_CASE("data that does not fit the model, or is missing", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result small = engine(scratch, {"data", "build", "config.toml", "data.tokenizer=" + golden + "gpt2"});
  CHECK(small.exit == 4);
  CHECK(has(small.err, "has 700 token ids, but the model's vocabulary is 256"));
  CHECK(engine(scratch, {"run", "config.toml", "data.tokenizer=" + golden + "gpt2"}).exit == 4);
  CHECK(names(scratch / "runs").empty());
  const Result bytes = engine(scratch, {"data", "build", "config.toml"});
  CHECK(bytes.exit == 0);
  CHECK(bytes.out.empty());
  CHECK(has(bytes.err, "nothing to build"));
  scratch.write("data.parquet", "PAR1");
  const Result parquet = engine(scratch, {"check", "config.toml", "data.paths=['data.parquet']"});
  CHECK(parquet.exit == 4);
  CHECK(
      has(parquet.err, (scratch / "data.parquet").string() + ", read by the format parquet: is damaged, or cut short"));
  CHECK(engine(scratch, {"data", "inspect", "nothing"}).exit == 2);
  CHECK(engine(scratch, {"data", "inspect", scratch.write("a.txt", "text").string()}).exit == 4);
}

TEST_CASE("data build and inspect for a model with its own ops", "[cli]") {
  Scratch scratch;
  scratch.write("config.toml", "[model]\nplugin = \"mamba\"\npreset = \"tiny\"\n[data]\npaths = [\"text.txt\"]\n");
  for (const char* what : {"build", "inspect"}) {
    const Result result = engine(scratch, {"data", what, "config.toml"});
    INFO(result.err);
    CHECK(result.exit == 0);
  }
}

TEST_CASE("data in an unexpected format is reported before anything runs", "[cli]") {
  Scratch scratch;
  scratch.config();
  // Every command that opens the data refuses it alike.
  scratch.write("a.json", "[\"some text\"]\n");
  scratch.write("a.txt", std::string("\xff\xfe"
                                     "a\0b\0",
                                     6));
  scratch.write("a.jsonl", "{\"text\": null}\n");
  scratch.write("a.bin", std::string(4096, '\0'));
  for (const auto& [name, words] :
       {std::pair("a.json", "is one JSON array"), std::pair("a.txt", "is text in UTF-16"),
        std::pair("a.jsonl", "missing = \"skip\""), std::pair("a.bin", "each of its 2048 ids is 0")}) {
    std::string first;
    for (const Args& command : {Args{"data", "inspect"}, Args{"check"}, Args{"run"}}) {
      Args args = command;
      args.insert(args.end(), {"config.toml", "data.paths=['" + std::string(name) + "']"});
      if (std::string(name) == "a.bin") args.push_back("data.plugin=tokens");
      const Result result = engine(scratch, args);
      INFO(result.err);
      CHECK(result.exit == 4);
      CHECK(has(result.err, words));
      const std::size_t at = result.err.find("error: ");
      REQUIRE(at != std::string::npos);
      if (first.empty()) first = result.err.substr(at, result.err.find('\n', at) - at);
      CHECK(has(result.err, first));
    }
  }
  CHECK(names(scratch / "runs").empty());
  scratch.write("nul.toml",
                std::regex_replace(read(scratch / "config.toml"), std::regex("text\\.txt"), "text.txt\\u0000x"));
  const Result nul = engine(scratch, {"check", "nul.toml"});
  INFO(nul.err);
  CHECK(nul.exit == 2);
  CHECK(has(nul.err, "must not contain the character U+0000"));
  for (const char* command : {"check", "run"}) {
    const Result nothing = engine(scratch, {command, "config.toml", "data.validation=1"});
    INFO(nothing.err);
    CHECK(nothing.exit == 4);
    CHECK(has(nothing.err, "there is nothing to train on: data.validation is 1"));
  }
}

TEST_CASE("eval of whole files: every token once", "[cli]") {
  Scratch scratch;
  scratch.config();
  scratch.write("held.txt", read(scratch / "text.txt").substr(0, 1000));
  const Result run =
      engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=2", "data.validation_paths=['held.txt']"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  const auto eval = [&](Args more) {
    Args args = {"eval", "run", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = engine(scratch, args);
    INFO(result.err);
    REQUIRE(result.exit == 0);
    return Json::parse(result.out);
  };
  // The run's own: the file, and the share that its configuration asks for. Going on finds the same data.
  CHECK(eval({}).at("tokens") > 999);
  CHECK(engine(scratch, {"run", "run", "train.steps=3"}).exit == 0);
  const uint64_t all = fs::file_size(scratch / "text.txt");
  const Json whole = eval({"--all", "data.validation_paths=[]"});
  CHECK(whole.at("tokens") == all - 1);
  CHECK(whole.at("bits_per_byte").get<double>() == Approx(whole.at("loss").get<double>() / std::log(2.0)));
  // Files that are named for it are evaluated whole, in batches of any size.
  const Json held = eval({"data.paths=['held.txt']"});
  CHECK(held.at("tokens") == 999);
  CHECK(held.at("perplexity").get<double>() == Approx(std::exp(held.at("loss").get<double>())));
  CHECK(eval({"data.paths=['held.txt']", "train.micro_batch=3"}).at("loss").get<double>() ==
        Approx(held.at("loss").get<double>()).epsilon(1e-6));
  CHECK(eval({"data.paths=['held.txt']", "data.validation_paths=[]", "data.validation=0.5"}).at("tokens") < 600);
  // A model's directory, and tokens of several bytes.
  const Result exported = engine(scratch, {"ckpt", "export", "run", "--to", "hf"});
  REQUIRE(exported.exit == 0);
  const Result directory =
      engine(scratch, {"eval", "hf", "--json", "data.paths=['held.txt']", "train.sequence_length=32"});
  INFO(directory.err);
  REQUIRE(directory.exit == 0);
  CHECK(Json::parse(directory.out).at("tokens") == 999);
  CHECK(Json::parse(directory.out).at("loss").get<double>() == Approx(held.at("loss").get<double>()).epsilon(1e-5));
}

namespace {

// Lines of JSON with texts of 1 to 80 bytes.
void write_documents(const Scratch& scratch) {
  std::string lines;
  for (int k = 0; k < 400; ++k) {
    lines += "{\"text\": \"";
    for (int i = 0; i < 1 + k * 37 % 80; ++i) lines += static_cast<char>('a' + (k * i + i / 3) % 26);
    lines += "\"}\n";
  }
  scratch.write("documents.jsonl", lines);
}

const Args packed = {"data.paths=[\"documents.jsonl\"]", "data.pack=true", "data.validation=0.1",
                     "schedule.kind=constant"};

Result packed_run(const Scratch& scratch, const std::string& run, Args more = {}) {
  Args args = {"run", "config.toml", "--out", run};
  args.insert(args.end(), packed.begin(), packed.end());
  args.insert(args.end(), more.begin(), more.end());
  Result result = engine(scratch, args);
  INFO(result.err);
  REQUIRE(result.exit == 0);
  return result;
}

}  // namespace

TEST_CASE("packed documents: resumed as if never stopped, measured, generated from", "[cli]") {
  Scratch scratch;
  scratch.config();
  write_documents(scratch);
  const Result whole = packed_run(scratch, "whole");
  CHECK(std::regex_search(whole.err, std::regex("note: packed: \\d+ documents in \\d+ samples; \\d+\\.\\d % of the "
                                                "positions are padding")));
  CHECK(has(whole.err, " pad: "));
  const std::vector<double> padding = column(scratch / "whole", "padding");
  CHECK(padding.size() == 8);
  for (const double share : padding) CHECK((share >= 0 && share < 0.5));
  packed_run(scratch, "half", {"train.steps=4"});
  const Result more = engine(scratch, {"run", "half", "train.steps=8"});
  INFO(more.err);
  REQUIRE(more.exit == 0);
  CHECK(numbers(scratch / "half") == numbers(scratch / "whole"));
  CHECK((tensors(scratch / "half", 8) == tensors(scratch / "whole", 8)));
  // Without packing, or with another one, it is another run.
  const Result other = engine(scratch, {"run", "half", "train.steps=9", "data.pack=false"});
  CHECK(other.exit == 2);
  CHECK(has(other.err, "data.pack"));
  const Result eval = engine(scratch, {"eval", "whole", "--json"});
  INFO(eval.err);
  REQUIRE(eval.exit == 0);
  CHECK(Json::parse(eval.out)["loss"].get<double>() > 0);
  CHECK(engine(scratch, {"generate", "whole", "abc", "--tokens", "4"}).exit == 0);
  Args plan = {"plan", "config.toml", "data.paths=[\"absent.jsonl\"]", "data.pack=true"};
  CHECK(engine(scratch, plan).exit == 0);  // it opens no data
  Args inspect = {"data", "inspect", "config.toml"};
  inspect.insert(inspect.end(), packed.begin(), packed.end());
  const Result seen = engine(scratch, inspect);
  CHECK(has(seen.out, "fields: tokens, labels, segments, positions\n"));
  CHECK(std::regex_search(seen.out, std::regex("packed: \\d+ documents, \\d+\\.\\d % of the positions are padding\n")));
}

TEST_CASE("packed documents: zero2 on two ranks has the bits of no strategy on two ranks", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  write_documents(scratch);
  const Args ranks = {"--ranks", "2", "--oversubscribe", "train.accumulate=2"};
  Args sharded = ranks, same = ranks;
  sharded.push_back("zero.plugin=zero2");
  same.push_back("zero.plugin=none");
  packed_run(scratch, "sharded", sharded);
  packed_run(scratch, "same", same);
  for (const char* key : {"loss", "grad_norm", "padding"})
    CHECK(column(scratch / "sharded", key) == column(scratch / "same", key));
  // One rank that takes both ranks' samples sums in another order.
  packed_run(scratch, "one", {"train.accumulate=4"});
  const auto two = column(scratch / "same", "loss"), one = column(scratch / "one", "loss");
  REQUIRE(two.size() == one.size());
  for (size_t k = 0; k < one.size(); ++k) CHECK(two[k] == Approx(one[k]).epsilon(1e-5));
  CHECK(column(scratch / "same", "padding") == column(scratch / "one", "padding"));
}

TEST_CASE("a run trains the answers of conversations, which data inspect shows", "[cli]") {
  Scratch scratch;
  scratch.config();
  scratch.write(
      "t.jinja",
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>"
      "{% endif %}");
  std::string rows;
  for (int i = 0; i < 60; ++i)
    rows += R"({"messages": [{"role": "user", "content": ")" + std::to_string(i) +
            R"(?"}, {"role": "assistant", "content": ")" + (i % 2 ? "odd" : "even") + "\"}]}\n";
  scratch.write("chat.jsonl", rows);
  const Args chat = {
      "data.plugin=chat", "data.paths=['chat.jsonl']",   "data.chat_template=t.jinja", "train.sequence_length=96",
      "train.steps=30",   "optimizer.learning_rate=1e-2"};
  const auto args = [&](Args command, const Args& more = {}) {
    command.insert(command.end(), chat.begin(), chat.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const Result inspected = engine(scratch, args({"data", "inspect", "config.toml"}));
  INFO(inspected.err);
  REQUIRE(inspected.exit == 0);
  CHECK(has(inspected.out, "sample 0, trained tokens in {+ +}:\n<user>"));
  CHECK(std::regex_search(inspected.out, std::regex(R"(\n<assistant>\{\+(odd|even)</>\+\}\n)")));
  CHECK(std::regex_search(inspected.out, std::regex(R"(trained: \d+ of \d+ tokens \(\d\d\.\d %\), in \d+ samples\n)")));
  const fs::path file = scratch / ".engine-cache" / names(scratch / ".engine-cache").at(0);
  const Result described = engine(scratch, {"data", "inspect", file.string()});
  CHECK(has(described.out, "documents: 60\n"));
  CHECK(has(described.out, "trained tokens: 390\n"));

  for (const char* pack : {"data.pack=false", "data.pack=true"}) {
    const std::string out = std::string("out-") + pack;
    const Result run = engine(scratch, args({"run", "config.toml", "--out", out}, {pack}));
    INFO(pack << "\n" << run.err);
    REQUIRE(run.exit == 0);
    // Only the first letter of an answer is hard to know: half of them are odd.
    const Result eval = engine(scratch, {"eval", out, "--json"});
    INFO(eval.out << eval.err);
    REQUIRE(eval.exit == 0);
    std::smatch loss;
    REQUIRE(std::regex_search(eval.out, loss, std::regex(R"re("loss": *([0-9.]+))re")));
    CHECK(std::stod(loss[1]) < 2);
  }

  scratch.write("chat.jsonl", rows + R"({"messages": [{"role": "user", "content": "Hi"}]})" + "\n");
  const Result refused = engine(scratch, args({"run", "config.toml", "--out", "none"}));
  CHECK(refused.exit == 4);
  CHECK(has(refused.err, "chat.jsonl:61: the row trains no token"));
  CHECK(engine(scratch, args({"data", "inspect", "config.toml"}, {"data.on_empty=skip"})).exit == 0);
}
