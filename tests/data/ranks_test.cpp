// SPDX-License-Identifier: Apache-2.0
// Files of tiktoken and tekken.json: ids equal to those of tiktoken and mistral-common (tools/goldens/ranks.py), what
// is damaged refused with its place.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness.hpp"
#include "tokenizer_harness.hpp"

using namespace data_test;
using Catch::Contains;
using nlohmann::json;

namespace {

const json& all_cases() {
  static const json all = json::parse(std::ifstream(golden + "ranks.json"));
  return all;
}

std::string lines() {
  std::string out;
  int rank = 0;
  for (const json& token : all_cases()["ranks"]) out += token.get<std::string>() + " " + std::to_string(rank++) + "\n";
  return out;
}

json tekken(json file) {
  int rank = 0;
  for (const json& token : all_cases()["ranks"])
    file["vocab"].push_back({{"rank", rank++}, {"token_bytes", token}, {"token_str", nullptr}});
  return file;
}

json added(const json& special) {
  json out;
  for (const auto& [text, id] : special.items())
    out[std::to_string(id.get<int>())] = {{"content", text}, {"special", true}};
  return out;
}

// Returns the path of the tokenizer of a case.
std::string write_case(const Folder& folder, const std::string& name, const json& one) {
  if (one.contains("tekken")) return folder.write(name + "/tekken.json", tekken(one["tekken"]).dump());
  folder.write(name + "/tokenizer_config.json",
               json({{"pat_str", one["pattern"]}, {"added_tokens_decoder", added(one["special"])}}).dump());
  return folder.write(name + "/small.tiktoken", lines());
}

struct Damaged {
  Folder folder;
  void fails(const std::string& path, const std::vector<std::string>& words, eng_status status = ENG_INVALID) {
    TokenizerUse use("auto", path);
    CHECK(use.status() == status);
    for (const std::string& word : words) CHECK_THAT(use.error(), Contains(word));
  }
  std::string ranks(const std::string& text, const json& config = {{"pat_str", "\\S+|\\s+"}}) {
    folder.write("tokenizer_config.json", config.dump());
    return folder.write("x.tiktoken", text);
  }
};

}  // namespace

TEST_CASE("files of ranks give the ids of tiktoken and mistral-common") {
  Folder folder;
  for (const auto& [name, one] : all_cases()["cases"].items()) {
    const std::string path = write_case(folder, name, one);
    for (const std::string& what : {path, std::filesystem::path(path).parent_path().string()}) {
      CAPTURE(name, what);
      TokenizerUse use("auto", what);
      INFO(use.error());
      REQUIRE(use.status() == ENG_OK);
      CHECK(use.info().vocabulary == one["count"].get<int64_t>());
      for (std::size_t i = 0; i < all_cases()["texts"].size(); ++i) {
        const std::string text = all_cases()["texts"][i];
        CAPTURE(text);
        const Ids ids = use.encode(text);
        CHECK(shown(ids) == one["ids"][i].get<std::string>());
        if (name != "dropped" && name != "edges") CHECK(use.decode(ids) == text);
      }
    }
  }
}

TEST_CASE("special tokens of files of ranks") {
  Folder folder;
  const json& cases = all_cases()["cases"];
  TokenizerUse tekken_v7("auto", write_case(folder, "v7", cases["tekken v7"]));
  CHECK(tekken_v7.info().bos == 1);
  CHECK(tekken_v7.info().eos == 2);
  // bos stands before a text, and the names of special tokens are found, as with a tokenizer.json.
  CHECK(tekken_v7.encode("", ENG_ENCODE_SPECIAL) == Ids{1});
  CHECK(tekken_v7.encode("[INST]</s><SPECIAL_7>") == Ids{3, 2, 7});
  TokenizerUse tekken_v3("auto", write_case(folder, "v3", cases["tekken v3"]));
  CHECK(tekken_v3.encode("[INST][/INST][TOOL_CALLS]<SPECIAL_29>") == Ids{3, 4, 9, 29});
  TokenizerUse tiktoken("auto", write_case(folder, "t", cases["cl100k"]));
  CHECK(tiktoken.info().eos == 700);
  CHECK(tiktoken.encode("", ENG_ENCODE_SPECIAL).empty());
  CHECK(tiktoken.decode({703, 700, 701}) == "<|x|><|endoftext|>");
}

TEST_CASE_METHOD(Damaged, "damaged files of tiktoken are refused with the line") {
  const std::string good = lines();
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return ranks(text.replace(text.find(from), from.size(), to));
  };
  CHECK(TokenizerUse("auto", ranks(good)).status() == ENG_OK);
  fails(changed("Ig== 34\n", "Ig== 33\n"), {"x.tiktoken: line 35", "that of line 34"});
  fails(changed("Ig== 34\n", "Ig== 34x\n"), {"line 35", "not a whole number"});
  fails(changed("Ig== 34\n", "Ig== -34\n"), {"line 35", "not a whole number"});
  fails(changed("Ig== 34\n", "Ig== 99999999\n"), {"line 35", "out of range"});
  fails(changed("Ig== 34\n", "Ig==34\n"), {"line 35", "base64, a space and a rank"});
  fails(changed("Ig== 34\n", "I*== 34\n"), {"line 35", "not base64"});
  fails(changed("Ig== 34\n", " 34\n"), {"line 35", "not base64"});
  fails(changed("Ig== 34\n", "IQ== 34\n"), {"line 35", "bytes of another token"});
  fails(changed("Ig== 34\n", ""), {"no token is the byte 34 alone"});
  fails(ranks(""), {"is empty"});
  // The pattern and the tokens beside it.
  fails(ranks(good, {{"pat_str", 5}}), {"pat_str"});
  fails(ranks(good, json::object()), {"vocabulary of tiktoken", "cl100k_base (100256)", "pat_str"}, ENG_UNSUPPORTED);
  fails(ranks(good, {{"pat_str", "a"}, {"added_tokens_decoder", added({{"<x>", 5}})}}), {"id 5", "another token"});
  folder.write("named/cl100k_base.tiktoken", good);
  fails((folder.path() / "named").string(), {"cl100k_base has 100256", "damaged"});
}

TEST_CASE_METHOD(Damaged, "patterns of tiktoken are translated or refused") {
  const std::string good = lines();
  const auto refused = [&](const std::string& pattern, const std::string& what) {
    CAPTURE(pattern);
    fails(ranks(good, {{"pat_str", pattern}}), {what}, ENG_UNSUPPORTED);
  };
  refused("\\w+", "`\\w`");
  refused("a\\b", "`\\b`");
  refused("(?s:.)", "a group of a kind");
  refused("(?P<x>a)", "a group of a kind");
  refused("[a[b]]", "a class inside of a class");
  refused("[a&&b]", "a set operation");
  refused("[a--b]", "a set operation");
  refused("[]a]", "begins with `]`");
  refused("a{2}?", "`{n}?`");
  refused("a{,2}", "no number of repetitions");
  refused("a++*", "a repetition of a repetition");
  refused("|+", "a repetition of nothing");
  refused("(a", "a group without its end");
  refused("a)", "without its beginning");
  refused("(?i:ss)", "`ss` without regard to case");
  refused("(?i:\xc3\xa9)", "outside of ASCII");
  refused("(a)\\1", "`\\1`");
  refused("\\s*", "may match nothing");
  // Ends of the text, not of its lines; a possessive number of repetitions.
  const auto parts = [&](const std::string& pattern, const std::string& text) {
    TokenizerUse use("auto", ranks(good, {{"pat_str", pattern}}));
    INFO(use.error());
    REQUIRE(use.status() == ENG_OK);
    return use.decode(use.encode(text));
  };
  CHECK(parts("^a|b$", "a\na\nb\nb") == "ab");
  CHECK(parts("a{1,2}+ab|c", "aab aaab c") == "aaabc");
  CHECK(parts("(?:a|bc){2}+|\\x21|\\x{3f}", "abca!?") == "abc!?");
}

TEST_CASE_METHOD(Damaged, "damaged tekken.json files are refused with the place") {
  const json good = tekken(all_cases()["cases"]["tekken v7"]["tekken"]);
  const auto changed = [&](const char* pointer, const json& value) {
    json file = good;
    file[json::json_pointer(pointer)] = value;
    return folder.write("tekken.json", file.dump());
  };
  CHECK(TokenizerUse("auto", changed("/config/version", "v7")).status() == ENG_OK);
  fails(changed("/vocab/40/rank", 41), {"tekken.json", "vocab[40].rank"});
  fails(changed("/vocab/40/token_bytes", "*"), {"vocab[40].token_bytes"});
  fails(changed("/vocab/40/token_bytes", "IQ=="), {"vocab[40].token_bytes", "not the byte 40"});
  fails(changed("/vocab/400/token_bytes", "IQ=="), {"vocab[400]", "bytes of another token"});
  fails(changed("/config/default_vocab_size", 100000), {"cut short"});
  fails(changed("/config/default_num_special_tokens", 2), {"special_tokens", "more than"});
  fails(changed("/config/pattern", 5), {"config.pattern"});
  fails(changed("/config/version", "v99"), {"config.version"}, ENG_UNSUPPORTED);
  fails(changed("/special_tokens/2/token_str", "<s>"), {"special_tokens[2]"});
  fails(changed("/special_tokens/2/rank", 7), {"special_tokens[2].rank"});
  fails(folder.write("tekken.json", "[]"), {"not an object"});
  json file = good;
  file["config"]["version"] = "v11";
  file.erase("special_tokens");
  fails(folder.write("tekken.json", file.dump()), {"special_tokens", "is missing"});
}
