// SPDX-License-Identifier: Apache-2.0
// Weights of conversations: of messages and of rows, as the source "chat" reads them and keeps them in its file.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace chat_weights {
namespace {

const char* const chatml =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% "
    "endif %}";

Settings settings(bool weights, std::map<std::string, std::string> strings = {}, bool pack = false) {
  strings.emplace("chat_template", "t.jinja");
  return {.paths = {"rows.jsonl"},
          .strings = std::move(strings),
          .numbers = {{"validation", 0}, {"weights", weights ? 1 : 0}, {"pack", pack ? 1 : 0}},
          .length = 150,
          .source = "chat"};
}

struct Rows {
  explicit Rows(const std::string& rows) {
    folder.write("rows.jsonl", rows + "\n");
    folder.write("t.jinja", chatml);
  }
  std::string error(const Settings& with) const { return Source(folder, with).error(); }
  Folder folder;
};

// A row of a question and answers, each with what follows its content.
std::string row(const std::vector<std::pair<std::string, std::string>>& answers, const std::string& more = "") {
  std::string out = R"({"messages": [)";
  for (const auto& [text, keys] : answers)
    out += (out.back() == '[' ? "" : ", ") +
           std::string(R"({"role": "user", "content": "Q"}, {"role": "assistant", )") + R"("content": ")" + text +
           "\"" + keys + "}";
  return out + "]" + more + "}";
}

// By the tokenizer bytes: the weight of each byte that trains.
std::map<char, float> weights_of(Source& source) {
  std::map<char, float> out;
  for (uint64_t i = 0; i < source.samples(0); ++i) {
    const Sample& sample = source.read(0, i);
    for (std::size_t t = 0; t < sample.labels.size(); ++t) {
      if (sample.weights[t] == -7) FAIL("a weight was not written");
      if (sample.labels[t] != ENG_IGNORE_LABEL) out[static_cast<char>(sample.labels[t])] = sample.weights[t];
    }
  }
  return out;
}

std::string file_of(const Folder& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / ".engine-cache"))
    if (entry.path().extension() == ".tokens") return entry.path().string();
  return "";
}

}  // namespace

TEST_CASE("a token has the weight of its message times that of its row, packed or not") {
  const Rows rows(row({{"a", R"(, "weight": 0.5)"}, {"b", ""}, {"c", R"(, "weight": 0)"}, {"d", R"(, "weight": 3)"}}) +
                  "\n" + row({{"e", ""}}) + "\n" + row({{"f", R"(, "weight": 0.25)"}, {"g", ""}}, R"(, "weight": 2)") +
                  "\n" + row({{"h", ""}}, R"(, "loss_weight": 0.1)") + "\n" + row({{"i", ""}}));
  for (const bool pack : {false, true}) {
    Source source(rows.folder, settings(true, {}, pack));
    REQUIRE(source.error() == "");
    std::map<char, float> got = weights_of(source);
    for (const char c : {'<', '/', '>'}) got.erase(c);  // the end of every turn
    CHECK(got == std::map<char, float>{
                     {'a', 0.5F}, {'b', 1}, {'d', 3}, {'e', 1}, {'f', 0.5F}, {'g', 2}, {'h', 0.1F}, {'i', 1}});
  }
  Source all(rows.folder, settings(true, {{"train_on", "last"}}));
  REQUIRE(all.error() == "");
  CHECK(weights_of(all).count('f') == 0);
  CHECK(weights_of(all).at('g') == 2);
}

TEST_CASE("weights belong to the content of the data, and files without any are what they were") {
  const auto opened = [](const std::string& rows, bool weights) {
    const Rows all(rows);
    Source source(all.folder, settings(weights));
    REQUIRE(source.error() == "");
    std::ifstream file(file_of(all.folder), std::ios::binary);
    return std::pair(std::string(source.info().content_hash), std::string(std::istreambuf_iterator<char>(file), {}));
  };
  const auto plain = opened(row({{"a", ""}}), false), ones = opened(row({{"a", R"(, "weight": 1)"}}), true),
             half = opened(row({{"a", R"(, "weight": 0.5)"}}), true),
             third = opened(row({{"a", R"(, "weight": 0.3)"}}), true);
  CHECK(ones.first == plain.first);
  CHECK(half.first != plain.first);
  CHECK(third.first != half.first);
  CHECK(ones.second.size() == plain.second.size());
  CHECK(half.second.size() == plain.second.size() + 16);
}

TEST_CASE("wrong weights are refused by line, and a row of weight 0 trains no token") {
  const auto error = [](const std::string& bad, std::map<std::string, std::string> strings = {}) {
    return Rows(row({{"a", ""}}) + "\n" + bad).error(settings(true, std::move(strings)));
  };
  CHECK_THAT(error(row({{"a", R"(, "weight": -1)"}})),
             Contains("rows.jsonl:2: message 2 has weight = -1; a weight is 0, or a number from 1e-9 to 1e9"));
  CHECK_THAT(error(row({{"a", R"(, "weight": "2")"}})), Contains("rows.jsonl:2: message 2 has weight = \"2\""));
  CHECK_THAT(error(row({{"a", R"(, "weight": NaN)"}})), Contains("rows.jsonl:2: not valid JSON"));
  CHECK_THAT(error(row({{"a", R"(, "weight": 1e10)"}})), Contains("a weight is 0, or a number from 1e-9 to 1e9"));
  CHECK_THAT(error(row({{"a", R"(, "weight": 1e-10)"}})), Contains("a weight is 0, or a number from 1e-9 to 1e9"));
  CHECK_THAT(error(row({{"a", ""}}, R"(, "weight": -0.5)")), Contains("rows.jsonl:2: the row has weight = -0.5"));
  CHECK_THAT(error(row({{"a", ""}}, R"(, "loss_weight": [1])")), Contains("the row has loss_weight = [1]"));
  CHECK_THAT(error(row({{"a", ""}}, R"(, "weight": 1, "loss_weight": 1)")),
             Contains("the row has weight and loss_weight: leave one of them out"));
  CHECK_THAT(error(row({{"a", ""}}, R"(, "weight": 0)")), Contains("the row trains no token: its weight is 0"));
  CHECK_THAT(error(row({{"a", R"(, "weight": 0)"}})), Contains("the row trains no token"));
  CHECK_THAT(error(row({{"a", R"(, "weight": 0.5)"}}), {{"train_on", "all"}}),
             Contains("message 2 has a weight, and with [data] train_on = \"all\" the text trains as a whole"));
  CHECK(error(row({{"a", ""}}, R"(, "weight": 0)"), {{"on_empty", "skip"}}) == "");
  CHECK(error(row({{"a", ""}}, R"(, "weight": 0.5)"), {{"train_on", "all"}}) == "");
  CHECK(error(row({{"a", R"(, "weight": null)"}}, R"(, "weight": null)")) == "");
}

TEST_CASE("without the option weights are 0 or 1, and others of rows are counted") {
  const Rows rows(row({{"a", ""}}, R"(, "weight": 0.5)") + "\n" + row({{"b", ""}}, R"(, "loss_weight": 0)") + "\n" +
                  row({{"c", ""}}, R"(, "weight": 1)") + "\n" + row({{"d", ""}}, R"(, "weight": "heavy")"));
  logged();
  Source source(rows.folder, settings(false));
  REQUIRE(source.error() == "");
  CHECK(source.sample().weights.empty());
  CHECK(source.samples(0) == 4);
  CHECK_THAT(logged(), Contains("weights = false: rows whose weight, or loss_weight, does not count: 2"));
  CHECK_THAT(
      Rows(row({{"a", R"(, "weight": 0.5)"}})).error(settings(false)),
      Contains("it must be 0 or 1: an answer trains, or it does not. Other weights are read with [data] weights = "
               "true"));
}

TEST_CASE("a source with weights needs a reader for them, and a damaged file of them is made again") {
  const Rows rows(row({{"a", R"(, "weight": 0.5)"}}) + "\n" + row({{"b", ""}}));
  Opening none(rows.folder, settings(true));
  none.request.n_fields = 2;
  void* self = nullptr;
  std::string text;
  eng_error sink{sizeof(eng_error), 0, &text, [](eng_error* to, eng_status, const char* what, uint64_t n) {
                   static_cast<std::string*>(to->data)->assign(what, n);
                 }};
  CHECK(table("chat").create(&none.options, &none.request, &self, &sink) == ENG_INVALID);
  CHECK_THAT(text, Contains("weights = true needs a model and a loss that read loss_weights"));
  Source before(rows.folder, settings(true));
  REQUIRE(before.error() == "");
  const std::string path = file_of(rows.folder);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-6, std::ios::end);  // in the last weight
    file.put('\x7f');
  }
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  Source after(rows.folder, settings(true));
  REQUIRE(after.error() == "");
  CHECK(weights_of(after).at('a') == 0.5F);
}

}  // namespace chat_weights
