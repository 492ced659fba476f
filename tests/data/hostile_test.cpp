// SPDX-License-Identifier: Apache-2.0
// Tokenizer files that are damaged, hostile, or ask for what there is not: a clear error that names file and place.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "harness.hpp"
#include "tokenizer_harness.hpp"

using namespace data_test;
using Catch::Contains;
using nlohmann::json;

namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

struct Hostile {
  Folder folder;
  json good = json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})");

  void refuse(const json& file, const std::vector<std::string>& words, eng_status status = ENG_INVALID) {
    refuse_text(file.dump(), words, status);
  }
  void refuse_text(const std::string& text, const std::vector<std::string>& words, eng_status status = ENG_INVALID) {
    CAPTURE(text.substr(0, 300));
    TokenizerUse use("huggingface", folder.write("tokenizer.json", text));
    CHECK(use.status() == status);
    CHECK_THAT(use.error(), Contains((folder.path() / "tokenizer.json").string()));
    CHECK(use.error().size() < 1000);
    for (const std::string& word : words) CHECK_THAT(use.error(), Contains(word));
  }
  // The good file with one part replaced.
  json with(const std::string& pointer, const json& value) const {
    json file = good;
    file[json::json_pointer(pointer)] = value;
    return file;
  }
};

}  // namespace

TEST_CASE_METHOD(Hostile, "the good file is good") {
  TokenizerUse use("huggingface", folder.write("tokenizer.json", good.dump()));
  CHECK(use.encode("abcab") == Ids{2, 3, 2});
  CHECK(use.encode("xay") == Ids{0});  // no unknown token: left out, as the library does
}

TEST_CASE_METHOD(Hostile, "no JSON, or too deep") {
  for (const char* text : {"", "{", "[]", "3", "{\"model\": ", "nul", "{\"a\":\"\xff\"}"}) refuse_text(text, {});
  refuse_text("{} x", {"not valid JSON"});
  refuse_text(std::string(5'000'000, '['), {"nests deeper"});
  std::string deep;
  for (int i = 0; i < 200000; ++i) deep += "{\"a\":";
  refuse_text(deep, {"nests deeper"});
  const std::string whole = read(golden + "gpt2/tokenizer.json");
  for (std::size_t size = 0; size + 1 < whole.size(); size += 997) refuse_text(whole.substr(0, size), {});
}

TEST_CASE_METHOD(Hostile, "merges and vocabularies that make no sense") {
  refuse(with("/model/merges", {"a x"}), {"model.merges[0]", "not in model.vocab: x"});
  refuse(with("/model/merges", {"b a"}), {"model.merges[0]", "ba"});
  refuse(with("/model/merges", {"a b", "ab ab"}), {"model.merges[1]", "abab"});  // a cycle would have to grow
  for (const char* text : {"ab", "a b c", "a  b", " a", "a ", ""})
    refuse(with("/model/merges", {text}), {"model.merges[0]"});
  refuse(with("/model/merges", json::array({json::array({"a", ""})})), {"model.merges[0]", "empty"});
  refuse(with("/model/merges", {{"a", "b", "c"}}), {"model.merges[0]"});
  refuse(with("/model/merges", {3}), {"model.merges[0]"});
  refuse(with("/model/merges", "a b"), {"model.merges", "string, not array"});
  refuse(with("/model/vocab/a", -1), {"model.vocab[\"a\"]", "out of range"});
  refuse(with("/model/vocab/a", 1), {"the id 1, which another token has"});
  refuse(with("/model/vocab/a", 4000000000u), {"out of range"});
  refuse(with("/model/vocab/a", 18446744073709551615u), {"out of range"});
  refuse(with("/model/vocab/a", 1.5), {"not a whole number"});
  refuse(with("/model/vocab", json::array()), {"model.vocab", "array, not object"});
  json file = good;
  file["model"].erase("vocab");
  refuse(file, {"model.vocab is missing"});
  file = with("/model/vocab", json::object());
  file["model"]["merges"] = json::array();
  refuse(file, {"model.vocab is empty"});
  file = with("/added_tokens", {{{"id", 3}, {"content", "<x>"}}});
  refuse(file, {"added_tokens[0].id", "which another token has"});
  file["added_tokens"][0]["id"] = 9;  // the library gives it 4 whatever the file says
  refuse(file, {"added_tokens[0].id", "<x> has the id 9, but it has 4", "without a gap"});
  file["added_tokens"][0]["id"] = 4000000;
  refuse(file, {"added_tokens[0].id", "out of range"});
  refuse(with("/added_tokens", {{{"id", 9}}}), {"added_tokens[0].content is missing"});
  file = with("/normalizer", {{"type", "NFKC"}});
  file["added_tokens"] = {{{"id", 4}, {"content", "\u00bd"}}, {{"id", 5}, {"content", "1\u20442"}}};
  refuse(file, {"added_tokens: two of them are the same text"}, ENG_UNSUPPORTED);
}

TEST_CASE_METHOD(Hostile, "what is not supported is named") {
  refuse(with("/model/type", "Odd"), {"model.type", "Odd", "BPE, Unigram, WordPiece or WordLevel"}, ENG_UNSUPPORTED);
  refuse(with("/model/type", "Unigram"), {"model.vocab", "object, not array"});
  refuse(with("/model/dropout", 0.1), {"model.dropout", "by chance"}, ENG_UNSUPPORTED);
  refuse(with("/model/byte_fallback", true), {"model.byte_fallback", "ByteLevel"}, ENG_UNSUPPORTED);
  refuse(with("/model/continuing_subword_prefix", "\u00e9"), {"model.continuing_subword_prefix", "ASCII"},
         ENG_UNSUPPORTED);
  refuse(with("/model/continuing_subword_prefix", "##"), {"model.merges[0]", "not longer than the prefix"});
  refuse(with("/model/end_of_word_suffix", 1), {"model.end_of_word_suffix", "number, not string"});
  refuse(with("/normalizer", {{"type", "Odd"}}), {"normalizer.type", "Odd"}, ENG_UNSUPPORTED);
  refuse(with("/normalizer", {{"type", "BertNormalizer"}, {"lowercase", "yes"}}), {"normalizer.lowercase"});
  json sequence = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Precompiled"}}}}};
  refuse(with("/normalizer", sequence), {"normalizer.normalizers[1].precompiled_charsmap is missing"});
  for (const char* map : {"A", "AA=A", "####"})
    refuse(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", map}}),
           {"normalizer.precompiled_charsmap is not base64"});
  for (const char* map : {"", "AAAA", "AAAAAA==", "CAAAAAAAAAA=", "BAAAAAAAAAD/"})  // short; no units; not UTF-8
    refuse(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", map}}),
           {"normalizer.precompiled_charsmap is damaged"});
  refuse(with("/decoder", {{"type", "CTC"}}), {"decoder.type", "CTC"}, ENG_UNSUPPORTED);
  refuse(with("/decoder", {{"type", "Replace"}, {"pattern", {{"Regex", "x"}}}, {"content", ""}}),
         {"decoder.pattern.Regex"}, ENG_UNSUPPORTED);
  refuse(with("/normalizer", {{"type", "Replace"}, {"content", "x"}}), {"normalizer.pattern is missing"});
  refuse(with("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "\\K"}}}, {"content", "x"}}),
         {"normalizer.pattern.Regex", "\\K (at byte 0)"}, ENG_UNSUPPORTED);
  refuse(with("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "x*"}}}, {"content", "x"}}),
         {"normalizer.pattern.Regex", "match nothing"}, ENG_UNSUPPORTED);
  refuse(with("/pre_tokenizer", {{"type", "FixedLength"}}), {"pre_tokenizer.type", "FixedLength"}, ENG_UNSUPPORTED);
  refuse(with("/pre_tokenizer", {{"type", "Metaspace"}, {"prepend_scheme", "last"}}),
         {"pre_tokenizer.prepend_scheme", "last"}, ENG_UNSUPPORTED);
  json first = with("/normalizer", {{"type", "Prepend"}, {"prepend", "x"}});
  first["pre_tokenizer"] = {{"type", "Metaspace"}, {"prepend_scheme", "first"}};
  refuse(first, {"normalizer", "Prepend", "\"first\""}, ENG_UNSUPPORTED);
  refuse(with("/pre_tokenizer", {{"type", "Metaspace"}, {"add_prefix_space", false}}),
         {"pre_tokenizer.add_prefix_space", "never"});
  refuse(with("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}), {"pre_tokenizer.replacement"});
  refuse(with("/post_processor", {{"type", "Odd"}}), {"post_processor.type"}, ENG_UNSUPPORTED);
  refuse(with("/post_processor", {{"type", "TemplateProcessing"}, {"single", json::array()}}),
         {"no place for the text"});
  refuse(with("/post_processor", {{"type", "BertProcessing"}, {"cls", {"x", 77}}, {"sep", {"y", 0}}}),
         {"no token has"});
  const auto split = [&](const json& pattern, const char* behavior) {
    json step = {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}};
    return with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {step, good["pre_tokenizer"]}}});
  };
  const std::string place = "pre_tokenizer.pretokenizers[0]";
  refuse(split({{"String", "x"}}, "MergedWithBoth"), {place + ".behavior"}, ENG_UNSUPPORTED);
  refuse(split({{"Regex", "("}}, "Isolated"), {place + ".pattern.Regex", "pattern is wrong"});
  refuse(split({{"Regex", "[a&&]"}}, "Isolated"), {place + ".pattern.Regex", "intersection", "at byte 0"},
         ENG_UNSUPPORTED);
  refuse(split({{"Regex", "ab\\X"}}, "Isolated"), {"\\X (at byte 2)"}, ENG_UNSUPPORTED);
  refuse(split({{"Regex", "\\C"}}, "Isolated"), {"\\C"}, ENG_UNSUPPORTED);
  refuse(split({{"Regex", "(*LIMIT_MATCH=9)a"}}, "Isolated"), {"a verb", "at byte 0"}, ENG_UNSUPPORTED);
  refuse(split({{"Regex", std::string(100000, '(')}}, "Isolated"), {"pattern is wrong"});
}

TEST_CASE_METHOD(Hostile, "a pattern that runs wild is an error of the text, and long words are quick") {
  json file = good;
  json step = {{"type", "Split"}, {"pattern", {{"Regex", "(a*)*b"}}}, {"behavior", "Isolated"}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {step, good["pre_tokenizer"]}}};
  TokenizerUse use("huggingface", folder.write("tokenizer.json", file.dump()));
  REQUIRE(use.status() == ENG_OK);
  const auto* table = static_cast<const eng_tokenizer*>(plugin().get_interface(ENG_TOKENIZER_KIND, "auto"));
  const std::string text = std::string(40, 'a') + "c";
  uint64_t count = 0;
  const eng_status status = table->encode(use.self(), text.data(), text.size(), 0, nullptr, 0, &count, nullptr);
  CHECK((status == ENG_OK || status == ENG_INVALID));
  TokenizerUse gpt2("auto", golden + "gpt2");
  for (const char* piece : {"a", " ", "ab", "\U0001f600", "e\u0301"}) {
    std::string run;
    while (run.size() < 100'000) run += piece;
    CHECK(gpt2.decode(gpt2.encode(run)) == run);
  }
}

TEST_CASE_METHOD(Hostile, "a text with a word or rules without a meaning is an error of the text") {
  const auto fails = [&](const json& file, const std::string& text, const char* word) {
    TokenizerUse use("huggingface", folder.write("tokenizer.json", file.dump()));
    REQUIRE(use.error() == "");
    const auto* table = static_cast<const eng_tokenizer*>(plugin().get_interface(ENG_TOKENIZER_KIND, "huggingface"));
    std::string said;
    eng_error sink = {sizeof(sink), 0, &said, [](eng_error* self, eng_status, const char* what, uint64_t length) {
                        static_cast<std::string*>(self->data)->assign(what, length);
                      }};
    uint64_t count = 0;
    CHECK(table->encode(use.self(), text.data(), text.size(), 0, nullptr, 0, &count, &sink) == ENG_INVALID);
    CHECK_THAT(said, Contains(word));
  };
  fails(with("/model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}}), "b", "unk_token");
  // 256 units. That of the letter a has a value, 8191 units away.
  std::string map(4 + 4 * 256, '\0');
  map[1] = 4;
  map.replace(4 + 4 * 'a', 3, "a\xfd\x7f");
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  map.resize((map.size() + 2) / 3 * 3);
  std::string text;
  for (std::size_t i = 0; i < map.size(); i += 3) {
    uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | static_cast<unsigned char>(map[i + k]);
    for (unsigned shift = 24; shift > 0; shift -= 6) text += digits[bits >> (shift - 6) & 63];
  }
  fails(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", text}}), "a",
        "precompiled_charsmap is damaged");
}

TEST_CASE_METHOD(Hostile, "sentencepiece models") {
  for (const char* name : {"llama", "unigram"}) {
    const std::string whole = read(golden + name + "/tokenizer.model");
    const auto load = [&](const std::string& bytes) {
      TokenizerUse use("sentencepiece", folder.write("tokenizer.model", bytes));
      if (use.status() == ENG_OK)
        use.encode("caf\u00e9 e\u0301 \U0001f600 text");
      else
        CHECK_THAT(use.error(), Contains("tokenizer.model"));
      return use.status();
    };
    CHECK(load(whole) == ENG_OK);
    for (std::size_t size = 0; size < whole.size(); size += 61) CHECK(load(whole.substr(0, size)) != ENG_OK);
    for (std::size_t at = 0; at < whole.size(); at += 53) {
      std::string bad = whole;
      bad[at] = static_cast<char>(bad[at] ^ 0xff);
      load(bad);  // no crash, whatever it is then
    }
  }
  CHECK(TokenizerUse("sentencepiece", folder.write("a.model", "")).status() == ENG_INVALID);
  CHECK(TokenizerUse("sentencepiece", folder.write("a.model", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")).status() ==
        ENG_INVALID);
  CHECK(TokenizerUse("sentencepiece", folder.write("a.model", std::string(100, '\n'))).status() == ENG_INVALID);
  // A table of characters whose offsets lead outside: the library would follow them.
  std::string model = read(golden + "unigram/tokenizer.model");
  std::string map(4 + 1024, '\0');
  map[1] = 4;           // 1024 bytes of units
  map[4 + 1] = '\xfc';  // the root's offset
  map[4 + 2] = '\xff';
  map += std::string("\0", 1);
  const std::string spec = std::string("\x12\x85\x08") + map;  // field 2, 1029 bytes
  model += std::string("\x1a\x88\x08") + spec;                 // field 3, 1032 bytes
  TokenizerUse use("sentencepiece", folder.write("a.model", model));
  CHECK(use.status() == ENG_INVALID);
  CHECK_THAT(use.error(), Contains("precompiled_charsmap"));
}

TEST_CASE_METHOD(Hostile, "paths that lead to no tokenizer") {
  CHECK(TokenizerUse("auto", (folder.path() / "none").string()).status() == ENG_NOT_FOUND);
  TokenizerUse empty("auto", folder.path().string());
  CHECK(empty.status() == ENG_NOT_FOUND);
  CHECK_THAT(empty.error(), Contains("tokenizer.json") && Contains("merges.txt"));
  CHECK(TokenizerUse("auto", folder.write("a.txt", "text")).status() == ENG_INVALID);
  folder.write("tiktoken/tokenizer.model", "IQ== 0\nIg== 1\n");
  for (const char* path : {"tiktoken", "tiktoken/tokenizer.model"}) {
    TokenizerUse tiktoken("auto", (folder.path() / path).string());
    CHECK(tiktoken.status() == ENG_UNSUPPORTED);
    CHECK_THAT(tiktoken.error(), Contains("tiktoken/tokenizer.model") && Contains("vocabulary of tiktoken") &&
                                     Contains("use the tokenizer.json"));
  }
  folder.write("mistral/tekken.json", "{}");
  TokenizerUse tekken("auto", (folder.path() / "mistral").string());
  CHECK(tekken.status() == ENG_INVALID);
  CHECK_THAT(tekken.error(), Contains("tekken.json: config is missing"));
  // tiktoken's file of the same name is none of sentencepiece's.
  folder.write("both/tokenizer.model", "IQ== 0\n");
  folder.write("both/tokenizer.json", good.dump());
  CHECK(TokenizerUse("auto", (folder.path() / "both").string()).status() == ENG_OK);
  folder.write("config/tokenizer.json", good.dump());
  folder.write("config/tokenizer_config.json", "[");
  TokenizerUse config("auto", (folder.path() / "config").string());
  CHECK(config.status() == ENG_INVALID);
  CHECK_THAT(config.error(), Contains("tokenizer_config.json"));
}

TEST_CASE_METHOD(Hostile, "what a folder asks for and is not done is refused") {
  const auto fails = [&](const json& config, const std::vector<std::string>& words, bool parts = false,
                         const json& added = nullptr) {
    Folder own;
    if (parts) {
      own.write("vocab.json", good["model"]["vocab"].dump());
      own.write("merges.txt", "a b\n");
    } else {
      own.write("tokenizer.json", good.dump());
    }
    own.write("tokenizer_config.json", config.dump());
    if (!added.is_null()) own.write("added_tokens.json", added.dump());
    TokenizerUse use("auto", own.path().string());
    CAPTURE(config.dump());
    CHECK(use.status() != ENG_OK);
    CHECK_THAT(use.error(), Contains(own.path().string()));
    for (const std::string& word : words) CHECK_THAT(use.error(), Contains(word));
  };
  for (const char* name : {"WhisperTokenizer", "LlamaTokenizer", "PreTrainedTokenizerFast", "MyOwnTokenizer"})
    fails({{"tokenizer_class", name}},
          {"tokenizer_config.json: tokenizer_class is " + std::string(name), "save_pretrained", "Qwen2Tokenizer"},
          true);
  fails({{"split_special_tokens", true}}, {"split_special_tokens is true"});
  fails({{"fix_mistral_regex", true}}, {"fix_mistral_regex"});
  fails({{"eos_token", 5}}, {"eos_token is neither a text nor an object"});
  fails({{"added_tokens_decoder", json::array()}}, {"added_tokens_decoder is not an object"});
  fails({{"added_tokens_decoder", {{"four", {{"content", "<x>"}}}}}}, {"added_tokens_decoder[\"four\"]", "not an id"});
  // Tokens whose ids are not those that the library gives them.
  fails({{"added_tokens_decoder", {{"9", {{"content", "<x>"}}}}}}, {"<x> has the id 9, but it has 4"});
  fails({{"added_tokens_decoder", {{"2", {{"content", "c"}}}}}}, {"c has the id 2, but it has 3"});
  fails(json::object(), {"added_tokens.json", "<y> has the id 7, but it has 5"}, true, {{"<x>", 4}, {"<y>", 7}});
  fails(json::object(), {"added_tokens.json", "an id that another token has too"}, true, {{"<x>", 4}, {"<y>", 4}});
  fails(json::object(), {"added_tokens.json", "not a whole number"}, true, {{"<x>", "4"}});
}
