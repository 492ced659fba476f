// SPDX-License-Identifier: Apache-2.0
// The source "pairs": two answers to one prompt, side by side.
#include <catch2/catch.hpp>
#include <map>

#include "harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace pairs_test {
namespace {

// Pair k: the prompt "k?", the answers "+++" and "-" with the number again.
std::string rows(int n) {
  std::string out;
  for (int k = 0; k < n; ++k) {
    const std::string number = std::to_string(k);
    out += R"({"prompt": ")" + number + R"(?", "chosen": "+++)" + number + R"(", "rejected": "-)" + number + "\"}\n";
  }
  return out;
}

Settings settings(std::vector<std::string> paths, double validation = 0, const std::string& too_long = "stop") {
  return {.paths = std::move(paths),
          .strings = {{"too_long", too_long}},
          .numbers = {{"validation", validation}, {"eot", 1}},
          .length = 12,
          .source = "pairs"};
}

std::string letters(const std::vector<int32_t>& ids) {
  std::string out;
  for (int32_t id : ids) out += id == ENG_IGNORE_LABEL ? '_' : id == 0 ? '.' : static_cast<char>(id);
  return out;
}

}  // namespace

TEST_CASE("a sample of a pair is the prompt and one answer, whose tokens are the labels") {
  const Folder folder;
  folder.write("rows.jsonl", rows(1));
  Source source(folder, settings({"rows.jsonl"}));
  REQUIRE(source.error() == "");
  CHECK(source.samples(0) == 2);
  CHECK(source.info().tokens == 6 + 4);
  CHECK(letters(source.read(0, 0).tokens) == "0?+++.......");
  CHECK(letters(source.read(0, 0).labels) == "_+++0_______");
  CHECK(letters(source.read(0, 1).tokens) == "0?-.........");
  CHECK(letters(source.read(0, 1).labels) == "_-0_________");
}

TEST_CASE("pairs stay together in every epoch, each once, and the held-out ones are others") {
  const Folder folder;
  folder.write("a.jsonl", rows(20));
  folder.write("b.jsonl.gz", gzip(rows(30).substr(rows(20).size())));
  Source source(folder, settings({"*.jsonl*"}, 0.1));
  REQUIRE(source.error() == "");
  CHECK(source.samples(0) == 2 * 27);
  CHECK(source.samples(1) == 2 * 3);
  std::map<std::string, int> seen;
  std::vector<std::string> orders[2];
  const auto prompt = [](const Sample& sample) {
    const std::string text = letters(sample.tokens);
    return text.substr(0, text.find('?'));
  };
  for (int split = 0; split < 2; ++split)
    for (uint64_t epoch = 0; epoch < (split ? 1 : 2); ++epoch)
      for (uint64_t k = 0; k < source.samples(split); k += 2) {
        const uint64_t at = epoch * source.samples(split) + k;
        const Sample first = source.read(split, at), second = source.read(split, at + 1);
        CHECK(prompt(first) == prompt(second));
        CHECK(letters(first.tokens).find('+') != std::string::npos);
        CHECK(letters(second.tokens).find('-') != std::string::npos);
        seen[prompt(first)] += split ? 10 : 1;
        if (!split) orders[epoch].push_back(prompt(first));
      }
  CHECK(seen.size() == 30);
  for (const auto& [name, times] : seen) CHECK((times == 2 || times == 10));
  CHECK(orders[0] != orders[1]);
}

TEST_CASE("pairs that are longer than a sample are refused, cut or left out") {
  const Folder folder;
  folder.write("rows.jsonl", rows(2) + R"({"prompt": "x", "chosen": "abcdefghijklmnop", "rejected": "b"})" + "\n");
  const Source stopped(folder, settings({"rows.jsonl"}));
  CHECK_THAT(stopped.error(), Contains("rows.jsonl:3: prompt and answer are 17 tokens, a sample holds 13"));
  const Source skipped(folder, settings({"rows.jsonl"}, 0, "skip"));
  CHECK(skipped.samples(0) == 4);
  CHECK_THAT(logged(), Contains("pairs that are left out: 1"));
  Source cut(folder, settings({"rows.jsonl"}, 0, "cut"));
  CHECK(cut.samples(0) == 6);
  CHECK_THAT(logged(), Contains("answers that lost their end: 1"));
  bool found = false;
  for (uint64_t k = 0; k < 6; ++k) found = found || letters(cut.read(0, k).labels) == "abcdefghijkl";
  CHECK(found);
}

TEST_CASE("the weight of a pair lies at the first label of its first sample") {
  const Folder folder;
  const std::string row = R"({"prompt": "0?", "chosen": "+++0", "rejected": "-0", "weight": 0.5})";
  folder.write("rows.jsonl", row + "\n");
  Settings with = settings({"rows.jsonl"});
  with.numbers["weights"] = 1;
  Source source(folder, with);
  REQUIRE(source.error() == "");
  for (uint64_t k = 0; k < 2; ++k) {
    const Sample sample = source.read(0, k);
    const size_t first = letters(sample.labels).find_first_not_of('_');
    REQUIRE(sample.weights.size() == sample.labels.size());
    for (size_t t = 0; t < sample.weights.size(); ++t) CHECK(sample.weights[t] == (k == 0 && t == first ? 0.5F : 0.0F));
  }
  // They are a part of the data.
  folder.write("others.jsonl", row.substr(0, row.size() - 4) + "0.75}\n");
  with.paths = {"others.jsonl"};
  CHECK(source.info().content_hash != std::string(Source(folder, with).info().content_hash));
}

TEST_CASE("rows that are no pairs are refused by line") {
  const Folder folder;
  const auto error = [&](const std::string& text) {
    folder.write("rows.jsonl", text);
    return Source(folder, settings({"rows.jsonl"})).error();
  };
  CHECK_THAT(error(rows(1) + "{\"prompt\": \"a\"}\n"), Contains("rows.jsonl:2: no field \"chosen\""));
  CHECK_THAT(error(rows(1) + "{\"prompt\": 1}\n"), Contains("field \"prompt\" is a number, not a string"));
  CHECK_THAT(error(R"({"prompt": "a", "chosen": [{}], "rejected": "b"})"), Contains("chats are not read as pairs yet"));
  CHECK_THAT(error(R"({"prompt": "a", "chosen": "", "rejected": "b"})"), Contains("an answer has no token to train"));
  CHECK_THAT(error(rows(1) + "{\"prompt\": \"a\"\n"), Contains("rows.jsonl:2: not valid JSON"));
}

}  // namespace pairs_test
