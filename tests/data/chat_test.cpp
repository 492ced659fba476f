// SPDX-License-Identifier: Apache-2.0
// The source "chat": ids and masks beside transformers', and what is refused. The golden is made by
// tools/goldens/chat_templates.py.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace chat_test {
namespace {

using Json = nlohmann::ordered_json;

std::string golden_file(const std::string& name) {
  return std::string(ENGINE_SOURCE_DIR) + "/tests/data/golden/chat/" + name;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string without(std::string text, const std::string& what) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos;) text.erase(at, what.size());
  return text;
}

// FNV-1a, its upper half in hexadecimal digits, as the script writes it.
std::string fnv(const std::string& text) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char out[16];
  std::snprintf(out, sizeof(out), "%08x", static_cast<unsigned>(value >> 32));
  return out;
}

// A sample of one conversation: its ids, those that train with a + behind them.
std::string ids_of(const Sample& sample) {
  std::size_t n = sample.tokens.size();
  while (n > 0 && sample.tokens[n - 1] == 0 && (n < 2 || sample.labels[n - 2] == ENG_IGNORE_LABEL)) --n;
  std::string out = std::to_string(sample.tokens[0]);
  for (std::size_t t = 0; t + 1 < n; ++t)
    out += " " + std::to_string(sample.tokens[t + 1]) + (sample.labels[t] != ENG_IGNORE_LABEL ? "+" : "");
  return out;
}

// By the tokenizer bytes: the text of a sample, with what trains in brackets.
std::string marked(const Sample& sample) {
  std::string out(1, static_cast<char>(sample.tokens[0]));
  bool inside = false;
  for (std::size_t t = 0; t + 1 < sample.tokens.size() && sample.tokens[t + 1] != 0; ++t) {
    const bool trains = sample.labels[t] != ENG_IGNORE_LABEL;
    if (trains) CHECK(sample.labels[t] == sample.tokens[t + 1]);
    if (trains != inside) out += trains ? '[' : ']';
    inside = trains;
    out += static_cast<char>(sample.tokens[t + 1]);
  }
  return out + (inside ? "]" : "");
}

const std::string chatml =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% "
    "endif %}";

Settings settings(std::map<std::string, std::string> strings = {}, int64_t length = 100) {
  strings.emplace("chat_template", "t.jinja");
  return {.paths = {"rows.jsonl"},
          .strings = std::move(strings),
          .numbers = {{"validation", 0}},
          .length = length,
          .source = "chat"};
}

const std::string hello =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]})";

struct Rows {
  explicit Rows(const std::string& rows, const std::string& text = chatml) {
    folder.write("rows.jsonl", rows + "\n");
    folder.write("t.jinja", text);
  }
  std::string first(const Settings& with = settings()) const {
    Source source(folder, with);
    return source.error().empty() ? marked(source.read(0, 0)) : source.error();
  }
  Folder folder;
};

}  // namespace

TEST_CASE("ids and masks of conversations are those of transformers, with marks in the template and without") {
  const Json golden = Json::parse(read_text(golden_file("results.json")));
  std::vector<std::string> rows;
  std::ifstream file(golden_file("conversations.jsonl"));
  for (std::string line; std::getline(file, line);) rows.push_back(line);
  const std::set<std::string> know_tools = {"llama3_tools", "mistral_tools", "qwen2_5", "qwen3"};
  std::size_t compared = 0;
  REQUIRE(golden.size() >= 20);
  for (const auto& [name, hashes] : golden.items()) {
    const std::string text = read_text(golden_file(name + ".jinja"));
    for (const bool marks : {true, false}) {
      INFO(name << (marks ? ", with marks" : ", by prefixes"));
      const Folder folder;
      folder.write("t.jinja", marks ? text : without(without(text, "{% generation %}"), "{% endgeneration %}"));
      std::string chosen;
      std::multiset<std::string> wanted, got;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const bool tools = rows[i].find("\"tools\"") != std::string::npos;
        // This one writes a system message only if the user has the last word, so it drops that of a finished row.
        const bool dropped = name == "mistral_tools" && rows[i].find("\"system\"") != std::string::npos;
        // It writes the tools beside the last question, so that earlier calls do not show where they begin.
        const bool hidden = name == "mistral_tools" && !marks && rows[i].find("tool_calls") != std::string::npos;
        if (hashes[i] == "-" || dropped || hidden || (tools && !know_tools.count(name))) continue;
        chosen += rows[i] + "\n";
        wanted.insert(hashes[i].get<std::string>());
      }
      folder.write("rows.jsonl", chosen);
      Settings with = settings({{"tokenizer", golden_file("")}}, 1600);
      with.vocabulary = 1000;
      Source source(folder, with);
      REQUIRE(source.error() == "");
      REQUIRE(source.samples(0) == wanted.size());
      for (uint64_t i = 0; i < wanted.size(); ++i) got.insert(fnv(ids_of(source.read(0, i))));
      std::vector<std::string> wrong;
      std::set_difference(got.begin(), got.end(), wanted.begin(), wanted.end(), std::back_inserter(wrong));
      CHECK(wrong.size() == 0);
      compared += got.size();
    }
  }
  CHECK(compared > 5000);
}

TEST_CASE("answers train with the token that ends them, and nothing else does") {
  const Rows rows(R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"},
 {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "No?"}, {"role": "assistant", "content": "No"}]})");
  std::string one = read_text((rows.folder.path() / "rows.jsonl").string());
  std::replace(one.begin(), one.end() - 1, '\n', ' ');
  rows.folder.write("rows.jsonl", one);
  CHECK(rows.first() == "<system>S</>\n<user>Hi</>\n<assistant>[Yes</>]\n<user>No?</>\n<assistant>[No</>]\n");
  CHECK(rows.first(settings({{"train_on", "last"}})) ==
        "<system>S</>\n<user>Hi</>\n<assistant>Yes</>\n<user>No?</>\n<assistant>[No</>]\n");
  CHECK(rows.first(settings({{"train_on", "all"}})) ==
        "<[system>S</>\n<user>Hi</>\n<assistant>Yes</>\n<user>No?</>\n<assistant>No</>\n]");
}

TEST_CASE("rows of every common form are read") {
  const std::string wanted = "<user>Hi</>\n<assistant>[Yes</>]\n";
  for (
      const char* row :
      {R"({"messages": [{"role": "user", "content": "Hi", "name": null}, {"role": "assistant", "content": "Yes"}], "id": 7})",
       R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}]})",
       R"({"conversations": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]})",
       R"({"instruction": "Hi", "input": "", "output": "Yes"})", R"({"prompt": "Hi", "completion": "Yes"})",
       R"({"prompt": [{"role": "user", "content": "Hi"}], "completion": [{"role": "assistant", "content": "Yes"}]})",
       R"({"messages": "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yes\"}]"})"}) {
    INFO(row);
    CHECK(Rows(row).first() == wanted);
  }
  CHECK(Rows(R"({"chat": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]})")
            .first(settings({{"field", "chat"}})) == wanted);
  CHECK(Rows(R"({"system": "S", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}]})")
            .first() == "<system>S</>\n" + wanted);
  CHECK(Rows(R"({"instruction": "Add", "input": "1 2", "output": "3", "history": [["a", "b"]]})").first() ==
        "<user>a</>\n<assistant>[b</>]\n<user>Add\n1 2</>\n<assistant>[3</>]\n");
  CHECK(Rows(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}, )" +
             std::string(R"({"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "train": true}]})"))
            .first() == "<user>a</>\n<assistant>b</>\n<user>c</>\n<assistant>[d</>]\n");
  const Rows packed(hello);
  packed.folder.write("rows.jsonl.gz", gzip(hello + "\n"));
  Settings with = settings();
  with.paths = {"rows.jsonl.gz"};
  CHECK(packed.first(with) == wanted);
}

TEST_CASE("rows that would train nothing, or another thing, are refused by line") {
  const auto error = [](const std::string& row, const std::string& text = chatml, const Settings& with = settings()) {
    return Rows(hello + "\n" + row, text).first(with);
  };
  CHECK_THAT(error(R"({"messages": [{"role": "user", "content": "Hi"}]})"),
             Contains("rows.jsonl:2: the row trains no token: it has no answer that trains"));
  CHECK_THAT(
      error(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a", "weight": 0}]})"),
      Contains("rows.jsonl:2: the row trains no token"));
  CHECK_THAT(error(R"({"text": "a"})"), Contains("rows.jsonl:2: no messages") && Contains("this one has text"));
  CHECK_THAT(error(R"({"messages": null})"), Contains("missing = \"skip\""));
  CHECK_THAT(error(R"({"messages": [{"role": "user"}]})"), Contains("rows.jsonl:2: message 1 has no content"));
  CHECK_THAT(error(R"({"messages": [{"content": "a"}]})"), Contains("message 1 has no role"));
  CHECK_THAT(error(R"({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]})"),
             Contains("it must be 0 or 1"));
  CHECK_THAT(error(R"({"conversations": [{"from": "alien", "value": "a"}]})"), Contains("is from \"alien\""));
  CHECK_THAT(error(R"({"messages": [)"), Contains("rows.jsonl:2: not valid JSON"));
  CHECK_THAT(error(R"({"messages": )" + std::string(100, '[')), Contains("nests deeper than 64 levels"));
  const std::string user_only =
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}<{{ m.role }}>{{ m.content }}</>"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  CHECK_THAT(
      error(R"({"messages": [{"role": "system", "content": "S"}, {"role": "assistant", "content": "a"}]})", user_only),
      Contains("rows.jsonl:2: the chat template drops message 1, of the role \"system\""));
  CHECK_THAT(
      error(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": [{"x": 1}]})"),
      Contains("the row has tools, and the chat template has no place for them"));
  CHECK_THAT(
      error(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}]})"),
      Contains("the chat template drops the tool calls of message 2"));
  CHECK_THAT(
      error(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}]})",
          "{{ messages|length }}{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].id }}{% else %}{{ "
          "m.content }}"
          "{% endif %}{% endfor %}"),
      Contains("rows.jsonl:2: the chat template does not tell where the answer of message 2 begins"));
  CHECK_THAT(error(hello, "{{ bad.thing }}"),
             Contains("rows.jsonl:1: the chat template") && Contains("line 1, column 7"));
  CHECK_THAT(error(hello, "{{ strftime_now('%Y') }}" + chatml), Contains("set [data] date"));
  CHECK_THAT(error(hello, "{% if %}"), Contains("t.jinja: line 1, column 7"));
  CHECK(error(hello, "{{ strftime_now('%Y') }}" + chatml, settings({{"date", "2024-07-26"}})).starts_with("2024"));
  CHECK_THAT(error(hello, chatml, settings({{"date", "today"}})), Contains("is no day"));
  CHECK_THAT(error(hello, chatml, settings({{"chat_template", ""}})), Contains("chat_template must name a file"));
  CHECK_THAT(error(hello, chatml, settings({{"chat_template", "none.jinja"}})), Contains("there is no file"));
}

TEST_CASE("rows are left out or cut where the options say so, and counted") {
  const std::string empty = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  const Rows rows(hello + "\n" + empty + "\n{\"messages\": null}\n");
  logged();
  Source skipped(rows.folder, settings({{"on_empty", "skip"}, {"missing", "skip"}}));
  REQUIRE(skipped.error() == "");
  CHECK(skipped.samples(0) == 1);
  CHECK_THAT(logged(), Contains("rows that train no token and are left out: 1") &&
                           Contains("rows without messages that are left out: 1"));

  const Rows some(hello + R"(
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "0123456789"}]})");
  CHECK_THAT(some.first(settings({}, 31)), Contains("rows.jsonl:2: the conversation is 36 tokens, a sample holds 32"));
  Source cut(some.folder, settings({{"too_long", "cut"}}, 31));
  REQUIRE(cut.error() == "");
  CHECK_THAT(logged(), Contains("conversations whose answers lost their end: 1"));
  bool found = false;
  for (uint64_t i = 0; i < 2; ++i) {
    const Sample& sample = cut.read(0, i);
    found = found || sample.labels[30] == '9';
  }
  CHECK(found);
  Source out(some.folder, settings({{"too_long", "skip"}}, 31));
  CHECK(out.samples(0) == 1);
  CHECK_THAT(logged(), Contains("conversations that are left out: 1"));
  CHECK_THAT(some.first(settings({{"too_long", "cut"}}, 20)),
             Contains("the row trains no token: its answers begin behind the 21 tokens"));
}

TEST_CASE("packed conversations keep their masks, and a file of them is not read as plain tokens") {
  std::string rows;
  for (int i = 0; i < 40; ++i)
    rows += R"({"messages": [{"role": "user", "content": ")" + std::string(static_cast<std::size_t>(i % 7), 'q') +
            R"(?"}, {"role": "assistant", "content": ")" + std::to_string(i) + "\"}]}\n";
  const Rows all(rows);
  Settings with = settings({}, 128);
  Source alone(all.folder, with);
  with.numbers["pack"] = 1;
  Source packed(all.folder, with);
  REQUIRE(packed.error() == "");
  CHECK(alone.samples(0) == 40);
  CHECK(packed.samples(0) < 20);
  CHECK(packed.info().documents == 40);
  CHECK(packed.info().tokens == alone.info().tokens);
  const auto answers = [](Source& source) {
    std::multiset<std::string> out;
    for (uint64_t i = 0; i < source.samples(0); ++i) {
      const Sample& sample = source.read(0, i);
      std::string text;
      for (const int32_t label : sample.labels) text += label == ENG_IGNORE_LABEL ? ' ' : static_cast<char>(label);
      for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        out.insert(text.substr(at, end - at));
        at = end;
      }
    }
    return out;
  };
  CHECK(answers(alone) == answers(packed));
  CHECK(answers(packed).count("39</>") == 1);
  const Sample& sample = packed.read(0, 0);
  CHECK(sample.segments[0] == 0);
  CHECK(*std::max_element(sample.segments.begin(), sample.segments.end()) > 0);
  Settings tokens{.paths = {".engine-cache/*.tokens"}, .length = 8, .source = "tokens"};
  CHECK_THAT(Source(all.folder, tokens).error(), Contains("holds chat data with masks"));
  Settings half = settings({}, 128);
  half.numbers["validation"] = 0.25;
  Source split(all.folder, half);
  REQUIRE(split.error() == "");
  CHECK(split.samples(0) + split.samples(1) == 40);
  CHECK(split.samples(1) >= 8);
}

}  // namespace chat_test
