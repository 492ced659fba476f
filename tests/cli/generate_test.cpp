// SPDX-License-Identifier: Apache-2.0
// engine generate.
#include "harness.hpp"

using namespace cli;

TEST_CASE("a run continues a text", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result trained = engine(scratch, {"run", "config.toml", "--out", "run"});
  INFO(trained.err);
  REQUIRE(trained.exit == 0);
  auto generate = [&](Args more) {
    Args args = {"generate", "run", "The "};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = engine(scratch, args);
    INFO(result.err);
    REQUIRE(result.exit == 0);
    return result;
  };

  SECTION("the same text for the same seed, another one for another") {
    const Result once = generate({"--tokens", "40", "--seed", "5"});
    CHECK(once.out.size() == 41);  // bytes are tokens; a newline ends the text
    CHECK(
        std::regex_search(once.err, std::regex(R"(^prompt 4 tokens, [\d.]+ tokens/s; generated 40 tokens, [\d.]+ )")));
    CHECK(generate({"--tokens", "40", "--seed", "5"}).out == once.out);
    CHECK(generate({"--tokens", "40", "--seed", "6"}).out != once.out);
    CHECK(generate({"--tokens", "10", "--seed", "5"}).out == once.out.substr(0, 10) + "\n");
  }
  SECTION("the likeliest tokens") {
    const std::string greedy = generate({"--tokens", "40", "--temperature", "0"}).out;
    CHECK(generate({"--tokens", "40", "--top-k", "1", "--seed", "9"}).out == greedy);
    CHECK(generate({"--tokens", "40", "--top-p", "1e-9", "--seed", "9"}).out == greedy);
    // A long prompt takes the way of whole chunks: one token less of prompt, one more to generate.
    std::string longer = read(scratch / "text.txt").substr(0, 150);
    const Result next = engine(scratch, {"generate", "run", longer, "--tokens", "8", "--temperature", "0"});
    REQUIRE(next.exit == 0);
    const Result after =
        engine(scratch, {"generate", "run", longer + next.out.substr(0, 1), "--tokens", "7", "--temperature", "0"});
    CHECK(next.out == next.out.substr(0, 1) + after.out);
  }
  SECTION("another tokenizer") {
    CHECK(generate({"--tokens", "9", "--tokenizer", "bytes"}).out == generate({"--tokens", "9"}).out);
    const Result none = engine(scratch, {"generate", "run", "The ", "--tokenizer", "nowhere"});
    CHECK(none.exit == 4);
    CHECK(has(none.err, "nowhere"));
  }
  SECTION("up to max-length") {
    CHECK(generate({"--max-length", "20"}).out.size() == 16 + 1);
    CHECK(generate({"--max-length", "5"}).out.size() == 1 + 1);
  }
  SECTION("what cannot be done is told") {
    auto refused = [&](Args args, int exit, const char* text) {
      args.insert(args.begin(), "generate");
      const Result result = engine(scratch, args);
      INFO(result.err);
      CHECK(result.exit == exit);
      CHECK(has(result.err, text));
      CHECK(result.out.empty());
    };
    refused({"run"}, 2, "prompt is required");
    refused({"run", ""}, 2, "the prompt is empty");
    refused({"run", "The ", "--max-length", "4"}, 2,
            "the prompt has 4 tokens, which leaves no room below --max-length 4");
    refused({"run", "The ", "--max-length", "4096"}, 2,
            "--max-length 4096 is more than the 2048 positions of the model");
    refused({"run", std::string(2048, 'x')}, 2, "the prompt has 2048 tokens, which leaves no room");
    refused({"run", "The ", "--temperature", "-1"}, 2, "--temperature -1 is below 0");
    refused({"run", "The ", "--top-p", "1.5"}, 2, "--top-p 1.5");
    refused({"run", "The ", "--top-k", "-2"}, 2, "--top-k -2");
    refused({"run", "The ", "--tokens", "0"}, 2, "--tokens 0");
    refused({"config.toml", "The "}, 2, "config.toml is no directory");
    refused({"checkpoints", "The "}, 2, "checkpoints");
    refused({"run/checkpoints/step-00000008", "The "}, 2, "is one checkpoint, and here a run is needed");
    fs::remove_all(scratch / "run" / "checkpoints");
    refused({"run", "The "}, 9, "run has no usable checkpoint");
  }
}

TEST_CASE("a Hugging Face directory continues as transformers does", "[cli]") {
  Scratch scratch;
  const fs::path folder = fs::path(ENGINE_SOURCE_DIR) / "tests" / "models" / "hf";
  const Json expected = Json::parse(read(folder / "expected.json"));
  const std::string prompt = expected.at("prompt");
  for (const auto& [name, ids] : expected.at("greedy").items()) {
    std::string text;
    for (const int id : ids) text += static_cast<char>(id);
    const Result result = engine(scratch, {"generate", (folder / name).string(), prompt, "--tokenizer", "bytes",
                                           "--tokens", "40", "--temperature", "0"});
    INFO(name << ": " << result.err);
    CHECK(result.exit == 0);
    CHECK(result.out == text + "\n");
  }
  CHECK(expected.at("greedy").at("single") != expected.at("greedy").at("tied"));

  SECTION("its own tokenizer is the default") {
    fs::copy(folder / "single", scratch / "hf");
    const Result without = engine(scratch, {"generate", "hf", prompt});
    CHECK(without.exit == 2);
    CHECK(has(without.err, "hf has no tokenizer to read a prompt with\nhelp: name it: --tokenizer"));
    fs::copy(fs::path(ENGINE_SOURCE_DIR) / "tests" / "data" / "golden" / "gpt2" / "tokenizer.json", scratch / "hf");
    const Result larger = engine(scratch, {"generate", "hf", prompt});
    CHECK(larger.exit == 2);
    CHECK(has(larger.err, "for a part of the prompt, the model has 256 ids"));
    CHECK(engine(scratch, {"generate", "hf", "x", "--tokens", "4"}).exit == 0);
  }
}
