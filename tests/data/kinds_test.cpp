// SPDX-License-Identifier: Apache-2.0
// Patterns, kinds of tokenizer.json and folders of a tokenizer: ids equal to those of the libraries
// (tools/goldens/oniguruma.py, tokenizer_kinds.py, tokenizer_models.py).
#include <zlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness.hpp"
#include "tokenizer_harness.hpp"

using namespace data_test;
using nlohmann::json;

namespace {

json load(const char* name) {
  return json::parse(std::ifstream(golden + name));
}

// A tokenizer whose ids are bytes, behind these pre-tokenizers.
json byte_file(const json& steps) {
  json file = json::parse(std::ifstream(golden + "gpt2/tokenizer.json"));
  file["model"]["merges"] = json::array();
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  return file;
}

void check_ids(const json& all, const json& expected, TokenizerUse& tokenizer) {
  for (std::size_t i = 0; i < all["texts"].size(); ++i) {
    if (expected["ids"][i].is_null()) continue;
    CAPTURE(all["texts"][i].get<std::string>());
    CHECK(shown(tokenizer.encode(all["texts"][i].get<std::string>())) == expected["ids"][i].get<std::string>());
  }
  if (!expected["special"].is_null())
    CHECK(shown(tokenizer.encode(all["texts"][0].get<std::string>(), ENG_ENCODE_SPECIAL)) ==
          expected["special"].get<std::string>());
  CHECK(tokenizer.info().vocabulary == expected["count"].get<int64_t>());
}

std::string utf8(char32_t c) {
  const auto tail = [&](unsigned shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xc0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xe0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0)};
}

// The tokenizer.json of a case, whose vocabulary may be a common one.
json file_of(const json& all, const json& expected) {
  json file = expected["file"];
  json& model = file["model"];
  if (!model["vocab"].is_string()) return file;
  const json common = all["common"][model["vocab"].get<std::string>()];
  for (const auto& [key, value] : common.items()) model[key] = value;
  return file;
}

// Without the spaces around a text, which the decoders of the library drop.
std::string trimmed(const std::string& text) {
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

void check_decoded(const json& all, const json& expected, TokenizerUse& tokenizer) {
  if (!expected.contains("decoded")) return;
  for (std::size_t i = 0; i < all["texts"].size(); ++i) {
    const std::string text = all["texts"][i];
    // A single byte of a character is shown as it is; the library shows U+FFFD.
    if (expected["file"]["model"].value("byte_fallback", false) && text.find("<0xE4>") != std::string::npos) continue;
    CAPTURE(text);
    CHECK(trimmed(tokenizer.decode(tokenizer.encode(text))) == trimmed(expected["decoded"][i].get<std::string>()));
  }
}

// all_characters of tools/goldens/tokenizer_models.py.
template <class Take>
void each_thousand(Take take) {
  std::vector<char32_t> starts;
  for (char32_t c = 0; c < 0x32400; c += 1024)
    if (c < 0xd800 || c >= 0xe000) starts.push_back(c);
  starts.push_back(0xe0000);
  starts.push_back(0xf0000);
  for (const char32_t first : starts) {
    std::string text;
    for (char32_t c = first; c < first + 1024; ++c) {
      const std::string character = utf8(c);
      text += "A" + character + "e\u0301" + character + " ";
    }
    take(text);
  }
}

}  // namespace

TEST_CASE("a pattern splits as in the tokenizers library, or is refused", "[.slow]") {
  Folder folder;
  constexpr std::size_t known = 18;  // the first ones: in use
  std::size_t at = 0, refused = 0, refused_there = 0;
  for (const json& row : load("patterns.json")) {
    const std::string pattern = row[0], behaviour = row[1];
    CAPTURE(pattern, behaviour, row[2].get<bool>());
    std::string name;
    for (bool upper = true; const char c : behaviour) {  // merged_with_next -> MergedWithNext
      if (c != '_') name += upper ? static_cast<char>(std::toupper(c)) : c;
      upper = c == '_';
    }
    // ByteLevel puts a space before each part that does not begin with one: so the parts show.
    const json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", name}, {"invert", row[2]}};
    const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
    TokenizerUse use("huggingface", folder.write("tokenizer.json", byte_file({split, bytes}).dump()));
    ++at;
    if (use.status() != ENG_OK) {
      CHECK_THAT(use.error(), Catch::Contains("pattern"));
      CHECK(at > known);
      ++(row[4].is_null() ? refused_there : refused);
      continue;
    }
    CHECK_FALSE(row[4].is_null());
    for (std::size_t i = 0; i < row[3].size() && !row[4].is_null(); ++i) {
      std::string parts;
      for (const json& part : row[4][i]) {
        const std::string text = part;
        parts += (text[0] == ' ' ? "" : " ") + text;
      }
      CAPTURE(row[3][i].get<std::string>());
      CHECK(use.decode(use.encode(row[3][i].get<std::string>())) == parts);
    }
  }
  CHECK(at == 600);
  CHECK(refused_there > 10);
  CHECK(refused < 120);
}

TEST_CASE("a pattern may go back as often, and match as long, as it may in the tokenizers library") {
  Folder folder;
  json file = byte_file({{{"type", "Split"}, {"pattern", {{"Regex", ""}}}, {"behavior", "Removed"}, {"invert", false}},
                         {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}});
  const auto encode = [&](const char* pattern, const std::string& text) {
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
    TokenizerUse tokenizer("huggingface", folder.write("tokenizer.json", file.dump()));
    return tokenizer.encode(text);
  };
  // By tokenizers 0.23.3, which takes no 33 letters, since then it would go back more than 10,000,000 times.
  CHECK(encode("(?:a|aa)+b", std::string(32, 'a') + "c").size() == 33);
  CHECK(encode("(?:\\p{L}|\\p{M})+", std::string(300'000, 'a') + "1") == Ids{17});
}

TEST_CASE("kinds of tokenizer.json have the ids of the tokenizers library, and its text of them") {
  Folder folder;
  for (const char* kinds : {"kinds.json", "models.json"}) {
    const json all = load(kinds);
    for (const auto& [name, expected] : all["cases"].items()) {
      if (expected.contains("crc")) continue;
      CAPTURE(name);
      TokenizerUse tokenizer("huggingface", folder.write("tokenizer.json", file_of(all, expected).dump()));
      REQUIRE(tokenizer.error() == "");
      check_ids(all, expected, tokenizer);
      check_decoded(all, expected, tokenizer);
    }
  }
}

TEST_CASE("normalizers change each character as the tokenizers library does", "[.slow]") {
  const json all = load("models.json");
  Folder folder;
  int found = 0;
  for (const auto& [name, expected] : all["cases"].items()) {
    if (!expected.contains("crc")) continue;
    CAPTURE(name);
    ++found;
    TokenizerUse tokenizer("huggingface", folder.write("tokenizer.json", file_of(all, expected).dump()));
    REQUIRE(tokenizer.error() == "");
    unsigned long crc = 0;
    each_thousand([&](const std::string& text) {
      const Ids ids = tokenizer.encode(text);  // little-endian, as all that is tested
      crc = crc32(crc, reinterpret_cast<const unsigned char*>(ids.data()), static_cast<unsigned>(4 * ids.size()));
    });
    CHECK(crc == expected["crc"].get<unsigned long>());
  }
  CHECK(found == 8);
}

TEST_CASE("a folder is read whole: ids, vocabulary and end of text are those of transformers") {
  const json all = load("folders.json");
  for (const auto& [name, expected] : all["cases"].items()) {
    CAPTURE(name);
    Folder folder;
    for (const auto& [path, content] : expected["files"].items()) {
      if (path == "model") {
        std::filesystem::copy(golden + "llama/tokenizer.model", folder.path() / "tokenizer.model");
      } else if (path == "merges.txt") {
        std::string lines = "#version: 0.2\n";
        for (const json& merge : all["merges"])
          lines += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
        folder.write(path, lines);
      } else if (path == "tokenizer.json") {
        json file = content;
        file["model"]["vocab"] = all["vocab"];
        file["model"]["merges"] = all["merges"];
        folder.write(path, file.dump());
      } else {
        folder.write(path, (content == "common" ? all["vocab"] : content).dump());
      }
    }
    TokenizerUse tokenizer("auto", folder.path().string());
    REQUIRE(tokenizer.error() == "");
    check_ids(all, expected, tokenizer);
    CHECK(tokenizer.info().eos == expected["eos"].get<int32_t>());
    CHECK(tokenizer.info().eot == expected["eos"].get<int32_t>());
  }
}

TEST_CASE("pieces of kinds that are not byte-level are shown as text") {
  const json all = load("kinds.json");
  Folder folder;
  json file = all["cases"]["llama2"]["file"];
  file["model"]["vocab"] = all["common"]["characters"]["vocab"];
  file["model"]["merges"] = all["common"]["characters"]["merges"];
  TokenizerUse llama("huggingface", folder.write("tokenizer.json", file.dump()));
  for (const char* text : {"the caf\u00e9 \U0001f600 2024\n", "a<|im_end|>", "x  y"})
    CHECK(llama.decode(llama.encode(text)).substr(1) == text);
  TokenizerUse unigram("huggingface", folder.write("tokenizer.json", all["cases"]["unigram"]["file"].dump()));
  CHECK(unigram.decode(unigram.encode("the word")) == " the word");
}

TEST_CASE("time grows with the text and with the tokens, not with their squares") {
  const auto begin = std::chrono::steady_clock::now();
  Folder folder;
  for (const char* form : {"NFC", "NFKD"}) {
    json file = byte_file({{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}});
    file["normalizer"] = {{"type", form}};
    TokenizerUse use("huggingface", folder.write("tokenizer.json", file.dump()));
    std::string marks = "a";  // in the order that takes the most exchanges
    for (int i = 0; i < 30'000; ++i) marks += "\u0301\u0323\u0f71\u0334";
    const std::string ordered = use.decode(use.encode(marks));
    CHECK(ordered.size() > marks.size() - 8);
    CHECK(ordered.find("\u0323\u0334") == std::string::npos);
  }
  json many = byte_file({{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}});
  json single = json::array({{{"Sequence", {{"id", "A"}}}}});
  for (int i = 0; i < 30'000; ++i) {
    many["added_tokens"].push_back({{"id", 700 + i}, {"content", "<t" + std::to_string(i) + ">"}, {"special", true}});
    single.push_back({{"SpecialToken", {{"id", "<t5>"}}}});
  }
  many["post_processor"] = {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", json::object()}};
  TokenizerUse use("huggingface", folder.write("tokenizer.json", many.dump()));
  REQUIRE(use.error() == "");
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "<t";
  CHECK(use.encode(text + "<t77>").back() == 777);
  CHECK(use.encode("", ENG_ENCODE_SPECIAL).size() == 30'000);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));  // the squares: many minutes
}
