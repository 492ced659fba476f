// SPDX-License-Identifier: Apache-2.0
// Ids equal to those of the `tokenizers` and sentencepiece libraries on hard strings (tools/goldens/tokenizer.py), and
// bytes that come back.
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "harness.hpp"
#include "tokenizer_harness.hpp"

using namespace data_test;
using nlohmann::json;

namespace {

struct Golden {
  std::vector<std::string> strings;
  json data;
  Golden() {
    data = json::parse(std::ifstream(golden + "ids.json"));
    for (const auto& hex : data["strings"]) {
      std::string text;
      const auto digits = hex.get<std::string>();
      for (std::size_t i = 0; i < digits.size(); i += 2)
        text += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
      strings.push_back(text);
    }
  }
  static Ids ids(const json& text) {
    std::istringstream in(text.get<std::string>());
    return Ids(std::istream_iterator<int32_t>(in), {});
  }
};

const Golden& all() {
  static const Golden loaded;
  return loaded;
}

// The number of strings whose ids differ from the library's.
std::size_t differences(TokenizerUse& tokenizer, const json& expected, std::string* first = nullptr) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < all().strings.size(); ++i) {
    const Ids ids = tokenizer.encode(all().strings[i]);
    if (expected[i].is_null()) continue;
    if (ids == Golden::ids(expected[i])) continue;
    if (count++ == 0 && first) {
      std::ostringstream text;
      text << "string " << i << " \"" << all().strings[i].substr(0, 80) << "\": expected " << expected[i] << ", got";
      for (const int32_t id : ids) text << ' ' << id;
      *first = text.str();
    }
  }
  return count;
}

bool valid(const std::string& text) {
  try {
    return !json(text).dump().empty();
  } catch (const json::exception&) {
    return false;
  }
}

// The rest of a text after a pattern: the tokenizer of `file`, with a pre-tokenizer that removes what the pattern
// matches.
std::string left_by(const char* pattern, const std::string& text, json file, Folder& folder) {
  const json removed = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Removed"}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {removed, bytes}}};
  TokenizerUse tokenizer("huggingface", folder.write("tokenizer.json", file.dump()));
  INFO(tokenizer.error());
  return tokenizer.decode(tokenizer.encode(text));
}

}  // namespace

TEST_CASE("ids are those of the libraries") {
  REQUIRE(all().strings.size() > 150);
  for (const char* name : {"gpt2", "llama3", "neox", "opt", "llama", "unigram"}) {
    CAPTURE(name);
    TokenizerUse tokenizer("auto", golden + name);
    REQUIRE(tokenizer.error() == "");
    const json& expected = all().data["ids"][name];
    CHECK(std::count(expected.begin(), expected.end(), json()) < (std::string(name) == "unigram" ? 20 : 1));
    std::string first;
    const std::size_t wrong = differences(tokenizer, all().data["ids"][name], &first);
    INFO(first);
    CHECK(wrong == 0);
    CHECK(tokenizer.encode(all().strings[3], ENG_ENCODE_SPECIAL) == Golden::ids(all().data["special"][name]));
    // Once more, now that words are remembered.
    CHECK(differences(tokenizer, all().data["ids"][name]) == 0);
  }
}

TEST_CASE("the comparison sees another pattern, missing merges and a lost normaliser") {
  TokenizerUse gpt2("auto", golden + "gpt2");
  Folder folder;
  json file = json::parse(std::ifstream(golden + "gpt2/tokenizer.json"));
  file["model"]["merges"].erase(20);
  TokenizerUse fewer("huggingface", folder.write("a/tokenizer.json", file.dump()));
  CHECK(differences(fewer, all().data["ids"]["gpt2"]) > 0);
  file = json::parse(std::ifstream(golden + "llama3/tokenizer.json"));
  json& pattern = file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  std::string text = pattern;
  pattern = text.replace(text.find("{1,3}"), 5, "{1,4}");
  TokenizerUse digits("huggingface", folder.write("b/tokenizer.json", file.dump()));
  CHECK(differences(digits, all().data["ids"]["llama3"]) > 0);
  file = json::parse(std::ifstream(golden + "llama3/tokenizer.json"));
  file["model"]["ignore_merges"] = false;
  TokenizerUse merged("huggingface", folder.write("d/tokenizer.json", file.dump()));
  CHECK(differences(merged, all().data["ids"]["llama3"]) > 0);
  file = json::parse(std::ifstream(golden + "neox/tokenizer.json"));
  file["normalizer"] = nullptr;
  TokenizerUse plain("huggingface", folder.write("c/tokenizer.json", file.dump()));
  CHECK(differences(plain, all().data["ids"]["neox"]) > 0);
}

TEST_CASE("a token in white space that another one took is found, as the library does it") {
  json file = json::parse(std::ifstream(golden + "gpt2/tokenizer.json"));
  const auto add = [&](int32_t id, const char* content, bool lstrip, bool rstrip) {
    file["added_tokens"].push_back({{"id", id}, {"content", content}, {"lstrip", lstrip}, {"rstrip", rstrip}});
  };
  constexpr int32_t right = 700, spaces = 701, left = 702;
  add(right, "[R]", false, true);
  add(spaces, "  ", false, false);
  add(left, "[L]", true, false);
  Folder folder;
  TokenizerUse tokenizer("huggingface", folder.write("tokenizer.json", file.dump()));
  // By tokenizers 0.23.3.
  CHECK(tokenizer.encode("a[R]   b") == Ids{65, right, spaces, 291});
  CHECK(tokenizer.encode("[R]      ") == Ids{right, spaces, spaces, spaces});
  CHECK(tokenizer.encode("x  [R]   [L] y") == Ids{88, spaces, right, spaces, left, 458});
  CHECK(tokenizer.encode("[R] [L]") == Ids{right, left});
  CHECK(tokenizer.encode("  [L][R]  [R]") == Ids{spaces, left, right, spaces, right});
}

TEST_CASE("classes of characters are those of the library") {
  const json file = json::parse(std::ifstream(golden + "gpt2/tokenizer.json"));
  Folder folder;
  // By tokenizers 0.23.3, whose patterns are Oniguruma's.
  const auto left = [&](const char* pattern, const std::string& text) { return left_by(pattern, text, file, folder); };
  const std::string text = "|\u00b2|\u2167|\u24b6|\u0301|_|\u00b7|\u200d|";
  CHECK(left(R"(\w)", text) == "||||||\u00b7|\u200d|");
  CHECK(left(R"([\w])", text) == "|\u00b2|||||\u00b7|\u200d|");
  CHECK(left(R"(\W)", text) == "\u00b2\u2167\u24b6\u0301_");
  CHECK(left(R"(\|\b)", text) == "\u00b2\u2167\u24b6\u0301_|\u00b7|\u200d|");
  CHECK(left(R"(\|\B)", text) == "|\u00b2|\u2167|\u24b6|\u0301|_\u00b7\u200d");
  const std::string han = "\u4e2d\u3001\u3005\u3006\u30fc";  // the second and the last are of several scripts
  CHECK(left(R"(\p{Han})", han) == "\u3001\u3006\u30fc");
  CHECK(left(R"(\P{Han})", han) == "\u4e2d\u3005");
  CHECK(left(R"([\p{Hiragana}\p{Han}])", han) == "\u3001\u3006\u30fc");
  // The edge of a word where a token must be one.
  json words = file;
  words["added_tokens"].push_back({{"id", 700}, {"content", "quix"}, {"single_word", true}, {"special", true}});
  TokenizerUse tokenizer("huggingface", folder.write("words/tokenizer.json", words.dump()));
  for (const char* alone : {"quix", "quix\u00b2", "quix\u00b7"}) CHECK(tokenizer.encode(alone)[0] == 700);
  for (const char* more : {"quix\u2167", "quix\u24b6", "quix\u200d", "quix\u0301"})
    CHECK(tokenizer.encode(more)[0] != 700);
}

TEST_CASE("characters newer than the installed libraries' tables are those of the library") {
  // By tokenizers 0.23.3, which knows Unicode 16.0; PCRE2 10.42 knows 14.0. tools/goldens/unicode.py compares all.
  TokenizerUse gpt2("auto", golden + "gpt2");
  CHECK(gpt2.encode("j\U000318ac's") == Ids{74, 173, 110, 96, 106, 473});   // 15.0
  CHECK(gpt2.encode("j\U0002ebf0's") == Ids{74, 173, 107, 108, 109, 473});  // 15.1
  CHECK(gpt2.encode("x\u0cf3 \u1c8a"
                    "1's") == Ids{88, 157, 112, 112, 221, 158, 111, 233, 17, 473});  // 15.0, 16.0
  // Its normalisers know Unicode 9.0: a mark that is newer is left where it is, and keeps the next one away.
  TokenizerUse neox("auto", golden + "neox");
  CHECK(neox.encode("a\u0345\u0897\u0301 e\u0301\u0899") ==
        Ids{66, 139, 229, 158, 97, 247, 138, 225, 222, 289, 158, 97, 249});
}

TEST_CASE("classes hold the characters newer than the installed libraries' tables") {
  const json file = json::parse(std::ifstream(golden + "gpt2/tokenizer.json"));
  Folder folder;
  const auto left = [&](const char* pattern, const std::string& text) { return left_by(pattern, text, file, folder); };
  const std::string han = "\U000318ac", kawi = "\U00011f04", digit = "\U00011f50",
                    text = "a" + han + kawi + digit + "-1";
  CHECK(left(R"(\p{L}+)", text) == digit + "-1");
  CHECK(left(R"([^\p{L}\p{N}])", text) == "a" + han + kawi + digit + "1");
  CHECK(left(R"(\P{L})", text) == "a" + han + kawi);
  CHECK(left(R"([\P{L}])", text) == "a" + han + kawi);
  CHECK(left(R"(\p{^N}+)", text) == digit + "1");
  CHECK(left(R"(\p{Han})", text) == "a" + kawi + digit + "-1");
  CHECK(left(R"(\p{Kawi}+)", text) == "a" + han + "-1");  // a script that PCRE2 has no name for
  CHECK(left(R"(\w)", text) == "-");
  CHECK(left(R"(\b-)", text) == "a" + han + kawi + digit + "1");
  json bad = file;
  bad["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", R"(\p{Nonsense})"}}}, {"behavior", "Removed"}};
  CHECK(TokenizerUse("huggingface", folder.write("bad/tokenizer.json", bad.dump())).status() == ENG_UNSUPPORTED);
}

TEST_CASE("byte-level text comes back byte for byte") {
  for (const char* name : {"gpt2", "llama3", "opt"}) {
    CAPTURE(name);
    TokenizerUse tokenizer("auto", golden + name);
    for (const std::string& text : all().strings) {
      if (!valid(text)) continue;
      if (std::string(name) == "llama3" && text.find("<mask>") != std::string::npos) continue;  // it takes the spaces
      CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    }
    // Bytes that are not UTF-8 come back as U+FFFD.
    CHECK(tokenizer.decode(tokenizer.encode("a\xff"
                                            "b\xe2\x82"
                                            "c")) ==
          "a\xef\xbf\xbd"
          "b\xef\xbf\xbd"
          "c");
  }
  TokenizerUse bytes("bytes", "");
  for (const std::string& text : all().strings) CHECK(bytes.decode(bytes.encode(text)) == text);
  TokenizerUse llama("sentencepiece", golden + "llama/tokenizer.model");
  CHECK(llama.decode(llama.encode("caf\u00e9 \U0001f600 2024\n")) == " caf\u00e9 \U0001f600 2024\n");
}

TEST_CASE("a tokenizer describes itself") {
  struct Expected {
    const char* name;
    int64_t vocabulary;
    int32_t bos, eos, eot;
  };
  for (const Expected& e : {Expected{"gpt2", 700, 0, 0, 0},
                            {"llama3", 705, 700, 701, 701},
                            {"neox", 723, 0, 0, 0},
                            {"opt", 600, 2, 2, 2},
                            {"llama", 700, 1, 2, 2},
                            {"unigram", 440, 1, 2, 2}}) {
    CAPTURE(e.name);
    TokenizerUse tokenizer("auto", golden + e.name);
    CHECK(tokenizer.info().vocabulary == e.vocabulary);
    CHECK(tokenizer.info().bos == e.bos);
    CHECK(tokenizer.info().eos == e.eos);
    CHECK(tokenizer.info().eot == e.eot);
    CHECK(std::string(tokenizer.info().content_hash).size() == 32);
    CHECK(tokenizer.try_decode({0, static_cast<int32_t>(e.vocabulary)}) == ENG_OUT_OF_RANGE);
    CHECK(tokenizer.try_decode({-1}) == ENG_OUT_OF_RANGE);
  }
  TokenizerUse one("auto", golden + "gpt2"), other("auto", golden + "neox");
  CHECK(std::string(one.info().content_hash) != other.info().content_hash);
}

TEST_CASE("many threads encode at once") {
  TokenizerUse tokenizer("auto", golden + "llama3");
  TokenizerUse sentence("auto", golden + "llama");
  for (auto* use : {&tokenizer, &sentence}) {
    std::vector<Ids> expected;
    for (const std::string& text : all().strings) expected.push_back(use->encode(text));
    const auto* table = static_cast<const eng_tokenizer*>(plugin().get_interface(ENG_TOKENIZER_KIND, "auto"));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        Ids ids(1000);
        for (std::size_t i = 0; i < all().strings.size(); ++i) {
          uint64_t count = 0;
          const std::string& text = all().strings[i];
          if (table->encode(use->self(), text.data(), text.size(), 0, ids.data(), ids.size(), &count, nullptr) !=
              ENG_OK)
            ++wrong;
          else if (Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)) != expected[i])
            ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}
