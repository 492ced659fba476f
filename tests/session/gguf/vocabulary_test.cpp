// SPDX-License-Identifier: Apache-2.0
// Tokenizers as GGUF files have them: which are known to llama.cpp, which kind each token is of. Ids beside
// llama.cpp's: tools/roundtrip_gguf.py.
#include "session/gguf/vocabulary.hpp"

#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "session/file.hpp"
#include "tests/cli/harness.hpp"
#include "tests/paths.hpp"

namespace gguf_vocabulary_test {

using namespace eng;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

fs::path golden(const std::string& name) {
  return fs::path(ENGINE_SOURCE_DIR) / "tests/data/golden" / name;
}

// The name of a pre-tokenizer, or what is said of it.
std::string named(const std::string& json, bool ignore_merges = false) {
  try {
    return pre_tokenizer_name(Json::parse(json), ignore_merges, "tokenizer.json");
  } catch (const Error& error) {
    return error.what();
  }
}

std::string split(const std::string& pattern, const std::string& behaviour = "Isolated", bool invert = false) {
  const Json step = Json::object({{"type", "Split"},
                                  {"pattern", Json::object({{"Regex", pattern}})},
                                  {"behavior", behaviour},
                                  {"invert", invert}});
  return R"({"type": "Sequence", "pretokenizers": [)" + step.dump() +
         R"(, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
}

const std::string qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

GgufVocabulary sentencepiece(const std::string& name) {
  return sentencepiece_vocabulary(read_text(golden(name), 1 << 24, Exit::data), name);
}

}  // namespace

TEST_CASE("a pre-tokenizer has llama.cpp's name, or none", "[gguf]") {
  const std::string words = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  CHECK(named(words) == "gpt-2");
  CHECK(named(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, )" + words +
              "]}") == "smollm");
  CHECK(named(split(qwen2)) == "qwen2");
  CHECK(named(split(qwen2, "Removed", true)) == "qwen2");
  std::string llama3 = qwen2;
  llama3.replace(llama3.find(R"(|\p{N}|)"), 7, R"(|\p{N}{1,3}|)");
  CHECK(named(split(llama3), true) == "llama-bpe");
  CHECK(named(split(llama3), false) == "smaug-bpe");
  CHECK(named(split(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
                    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
              true) == "tekken");
  // Other ids would come of these.
  CHECK_THAT(named(split(qwen2), true), Contains("only with model.ignore_merges = false"));
  CHECK_THAT(named(split(qwen2 + "|x")), Contains("no name for this pre-tokenizer") && Contains("|x"));
  CHECK_THAT(named(split(qwen2, "MergedWithNext")), Contains("no name for this pre-tokenizer"));
  CHECK_THAT(named(R"({"type": "ByteLevel", "use_regex": true})"), Contains("add_prefix_space"));
  CHECK_THAT(named(R"({"type": "Metaspace"})"), Contains("Metaspace"));
  CHECK_THAT(named("null"), Contains("there is none"));
}

TEST_CASE("the vocabulary of a tokenizer.json", "[gguf]") {
  const GgufVocabulary gpt2 = json_vocabulary(golden("gpt2/tokenizer.json"));
  CHECK(gpt2.model == "gpt2");
  CHECK(gpt2.pre == "gpt-2");
  CHECK(gpt2.tokens.size() == 700);
  CHECK(gpt2.tokens[0] == "<|endoftext|>");
  CHECK(gpt2.types[0] == GgufToken::control);
  CHECK(gpt2.types[1] == GgufToken::normal);
  CHECK(gpt2.merges[0] == "\xc4\xa0 \xc4\xa0");
  CHECK(gpt2.scores.empty());
  CHECK(gpt2.notes.empty());
  const GgufVocabulary llama3 = json_vocabulary(golden("llama3/tokenizer.json"));
  CHECK(llama3.pre == "llama-bpe");
  CHECK(llama3.tokens.size() == 705);
  CHECK(llama3.tokens[702] == "<|eot_id|>");
  CHECK(llama3.notes.size() == 3);  // lstrip and rstrip of <mask>, single_word of <one>
  const GgufVocabulary neox = json_vocabulary(golden("neox/tokenizer.json"));
  CHECK(neox.merges[1] == "i n");
  CHECK(neox.types[700] == GgufToken::user_defined);
  REQUIRE(neox.notes.size() == 1);
  CHECK_THAT(neox.notes[0], Contains("NFC"));
}

TEST_CASE("a tokenizer.json that llama.cpp does not know is refused", "[gguf]") {
  cli::Scratch scratch;
  const auto told = [&](cli::Json file) {
    try {
      json_vocabulary(scratch.write("tokenizer.json", file.dump()));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const cli::Json good = cli::Json::parse(cli::read(golden("gpt2/tokenizer.json")));
  CHECK(told(good).empty());
  cli::Json file = good;
  file["normalizer"] = {{"type", "Lowercase"}};
  CHECK_THAT(told(file), Contains("does not have the normalizer Lowercase"));
  file = good, file["model"]["type"] = "WordPiece";
  CHECK_THAT(told(file), Contains("type WordPiece"));
  file = good, file["model"]["vocab"] = {{"a", -1}};
  CHECK_THAT(told(file), Contains("has an id"));
  file = good, file.erase("model");
  CHECK_THAT(told(file), Contains("model"));
  file = good, file["model"]["merges"] = {5};
  CHECK_THAT(told(file), Contains("tokenizer.json"));
  // Tokens that only tokenizer_config.json has.
  scratch.write("tokenizer_config.json", R"({"added_tokens_decoder": {"701": {"content": "<x>", "special": true}}})");
  scratch.write("tokenizer.json", good.dump());
  GgufVocabulary more = json_vocabulary(scratch / "tokenizer.json");
  add_tokens_beside(scratch.path(), more);
  REQUIRE(more.tokens.size() == 702);
  CHECK(more.tokens[701] == "<x>");
  CHECK(more.types[701] == GgufToken::control);
  CHECK(more.types[700] == GgufToken::unused);
}

TEST_CASE("the vocabulary of a model of sentencepiece", "[gguf]") {
  const GgufVocabulary llama = sentencepiece("llama/tokenizer.model");
  CHECK(llama.model == "llama");
  CHECK(llama.pre.empty());
  CHECK(llama.unknown == 0);
  CHECK(llama.types[0] == GgufToken::unknown);
  CHECK(llama.types[1] == GgufToken::control);
  CHECK(llama.tokens[3] == "<0x00>");
  CHECK(llama.types[3] == GgufToken::byte);
  CHECK(llama.scores.size() == llama.tokens.size());
  CHECK(llama.space_prefix);
  const GgufVocabulary unigram = sentencepiece("unigram/tokenizer.model");
  CHECK(unigram.model == "t5");
  CHECK_FALSE(unigram.charsmap.empty());
  // Cut anywhere, it is refused or read, and nothing else.
  const std::string whole = read_text(golden("llama/tokenizer.model"), 1 << 24, Exit::data);
  CHECK_THROWS_AS(sentencepiece_vocabulary("", "x"), Error);
  CHECK_THROWS_AS(sentencepiece_vocabulary("\n\x7f", "x"), Error);
  for (size_t size = 1; size < whole.size(); size += 97) try {
      sentencepiece_vocabulary(std::string_view(whole).substr(0, size), "x");
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Contains("sentencepiece"));
    }
}

TEST_CASE("the 256 bytes are tokens in GPT-2's characters", "[gguf]") {
  const GgufVocabulary bytes = bytes_vocabulary();
  REQUIRE(bytes.tokens.size() == 256);
  for (size_t b = 0; b < 256; ++b) CHECK(bytes_of_characters(bytes.tokens[b]) == std::string(1, static_cast<char>(b)));
  CHECK(bytes.tokens[' '] == "\xc4\xa0");
  CHECK_FALSE(bytes_of_characters(" "));
  CHECK_FALSE(bytes_of_characters("\xe4\xb8\xad"));
}

}  // namespace gguf_vocabulary_test
