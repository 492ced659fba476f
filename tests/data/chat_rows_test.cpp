// SPDX-License-Identifier: Apache-2.0
// Rows and templates as people have them, which elsewhere trained something else or nothing without a word: TRL #3279,
// #4147, #4879, transformers #37766 (by its masks), empty masks of Gemma, exports of `datasets` full of nulls.
#include <algorithm>
#include <catch2/catch.hpp>

#include "harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace chat_rows {
namespace {

// ChatML without `{% generation %}`, as most published templates are.
const std::string plain =
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '</>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}";
// Gemma's way: the answer's role has another name in the text, and a system message is refused.
const std::string gemma =
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = m['role'] "
    "%}"
    "{% endif %}{{ '<' + role + '>' + m['content'] | trim + '</>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<model>' }}{% endif %}";
// One that reads lists of parts and texts alike, and reasoning only in the last turn, as Qwen3 does.
const std::string parts =
    "{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{{ '</>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}";

// The text of the first sample, with what trains in brackets; or the error.
std::string trained(const std::string& rows, const std::string& text = plain,
                    std::map<std::string, std::string> options = {}, int64_t length = 120) {
  const Folder folder;
  folder.write("rows.jsonl", rows);
  folder.write("t.jinja", text);
  options.emplace("chat_template", "t.jinja");
  Settings with{.paths = {"rows.jsonl"},
                .strings = std::move(options),
                .numbers = {{"validation", 0}},
                .length = length,
                .source = "chat"};
  Source source(folder, with);
  if (!source.error().empty()) return source.error();
  const Sample& sample = source.read(0, 0);
  std::string out(1, static_cast<char>(sample.tokens[0]));
  bool inside = false;
  for (std::size_t t = 0; t + 1 < sample.tokens.size() && sample.tokens[t + 1] != 0; ++t) {
    const bool trains = sample.labels[t] != ENG_IGNORE_LABEL;
    if (trains != inside) out += trains ? '[' : ']';
    inside = trains;
    out += static_cast<char>(sample.tokens[t + 1]);
  }
  return out + (inside ? "]" : "");
}

const std::string asked = R"({"role": "user", "content": "Hi"})", said = R"({"role": "assistant", "content": "Yes"})";
const std::string wanted = "<user>Hi</>\n<assistant>[Yes</>]\n";

std::string row(const std::string& messages, const std::string& more = "") {
  return "{\"messages\": [" + messages + "]" + more + "}\n";
}

}  // namespace

TEST_CASE("situation 1: a template without marks of generation trains the answers, not nothing") {
  CHECK(trained(row(asked + ", " + said)) == wanted);
}

TEST_CASE("situation 2: a template that renames the role of answers trains them; what it refuses is told by line") {
  CHECK(trained(row(asked + ", " + said), gemma) == "<user>Hi</>\n<model>[Yes</>]\n");
  CHECK_THAT(
      trained(row(asked + ", " + said) + row(R"({"role": "system", "content": "S"}, )" + asked + ", " + said), gemma),
      Contains("rows.jsonl:2:") && Contains("System role not supported"));
}

TEST_CASE("situation 3: columns of a table that are null in most rows are not there") {
  CHECK(trained(row(R"({"role": "user", "content": "Hi", "name": null, "tool_calls": null, "tool_call_id": null}, )"
                    R"({"role": "assistant", "content": "Yes", "name": null, "tool_calls": null, "weight": null})",
                    R"(, "tools": null, "system": null, "conversations": null, "label": null)")) == wanted);
  CHECK(
      trained(
          R"({"messages": null, "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}]})") ==
      wanted);
  CHECK_THAT(trained(row(asked + R"(, {"role": "assistant", "content": null})")), Contains("rows.jsonl:1:"));
  CHECK_THAT(trained(row(asked + ", null")), Contains("message 2 is a null"));
}

TEST_CASE("situation 4: the messages may be inside other fields") {
  const std::string inner = R"({"id": 1, "data": {"turns": [)" + asked + ", " + said + "]}}\n";
  CHECK(trained(inner, plain, {{"field", "data.turns"}}) == wanted);
  CHECK(trained(R"({"data.turns": [)" + asked + ", " + said + "]}\n", plain, {{"field", "data.turns"}}) == wanted);
  CHECK_THAT(trained(inner, plain, {{"field", "data.talk"}}),
             Contains("no messages") && Contains("\"data.talk\"") && Contains("this one has id, data"));
  CHECK_THAT(trained(R"({"data": 5})"
                     "\n",
                     plain, {{"field", "data.turns"}}),
             Contains("no messages"));
  CHECK_THAT(trained(R"({"data": {"turns": 5}})"
                     "\n",
                     plain, {{"field", "data.turns"}}),
             Contains("field \"data.turns\" is a number, not a list of messages"));
}

TEST_CASE("situation 5: a file from Windows, or one with a mark at its beginning, reads as any other") {
  std::string windows = row(asked + ", " + said);
  windows.insert(windows.size() - 1, "\r");
  CHECK(trained(windows + "\r\n") == wanted);
  CHECK(trained("\xef\xbb\xbf" + row(asked + ", " + said)) == wanted);
  CHECK(trained(row(asked + ", " + said) + "\n\n") == wanted);
}

TEST_CASE("situation 6: answers in a row, and conversations that begin with one, each train") {
  CHECK(trained(row(said + ", " + asked + ", " + said)) == "<assistant>[Yes</>]\n<user>Hi</>\n<assistant>[Yes</>]\n");
  CHECK(trained(row(asked + ", " + said + R"(, {"role": "assistant", "content": "Sir"})")) ==
        "<user>Hi</>\n<assistant>[Yes</>]\n<assistant>[Sir</>]\n");
}

TEST_CASE("situation 7: a question that fills the sample leaves nothing to train, and is told") {
  const std::string filler(200, 'q');
  const std::string one = row(R"({"role": "user", "content": ")" + filler + "\"}, " + said), large = one + one;
  CHECK_THAT(trained(row(asked + ", " + said) + large), Contains("rows.jsonl:2: the conversation is"));
  CHECK_THAT(trained(row(asked + ", " + said) + large, plain, {{"too_long", "cut"}}),
             Contains("rows.jsonl:2: the row trains no token: its answers begin behind the 121 tokens"));
  CHECK(trained(row(asked + ", " + said) + large, plain, {{"too_long", "skip"}}) == wanted);
  CHECK(trained(row(asked + ", " + said) + large, plain, {{"too_long", "cut"}, {"on_empty", "skip"}}) == wanted);
}

TEST_CASE("situation 8: content in parts is text where the template reads parts, and an error by line where not") {
  const std::string in_parts = row(R"({"role": "user", "content": [{"type": "text", "text": "Hi"}]}, )"
                                   R"({"role": "assistant", "content": [{"type": "text", "text": "Yes"}]})");
  CHECK(trained(in_parts, parts) == wanted);
  CHECK_THAT(trained(in_parts, plain), Contains("rows.jsonl:1:"));
  CHECK_THAT(trained(row(asked + R"(, {"role": "assistant", "content": 5})")),
             Contains("message 2 has a content that is a number"));
}

TEST_CASE("situation 9: a template that drops the answer, or an answer of blanks, is no silent row") {
  CHECK_THAT(trained(row(asked + ", " + said),
                     "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}"
                     "{% endfor %}{% if add_generation_prompt %}>{% endif %}"),
             Contains("rows.jsonl:1:"));
  CHECK_THAT(trained(row(asked)), Contains("it has no answer that trains"));
}

TEST_CASE("situation 10: the roles of tools are the template's; the old function_call says what to write") {
  CHECK(trained(row(asked + R"(, {"role": "tool", "name": "t", "content": "5"}, )" + said)) ==
        "<user>Hi</>\n<tool>5</>\n<assistant>[Yes</>]\n");
  CHECK_THAT(
      trained(R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "function_call", "value": "{}"}]})"),
      Contains("Write a call of a tool as a message with tool_calls"));
}

TEST_CASE("situation 11: rows of another kind are told, with what they have") {
  CHECK_THAT(trained("{\"dialog\": [\"Hi\", \"Yes\"]}\n"),
             Contains("this one has dialog") && Contains("names another field"));
  CHECK_THAT(trained(R"({"prompt": "Hi", "chosen": "Yes", "rejected": "No"})"
                     "\n"),
             Contains("neither a completion nor a response"));
  CHECK_THAT(trained("[{\"messages\": []}]\n"), Contains("rows.jsonl:1: the row has no messages"));
  CHECK_THAT(trained("[[{\"messages\": []}]]\n"), Contains("is one JSON array"));
  CHECK_THAT(trained(R"({"messages": []})"
                     "\n"),
             Contains("the row has no messages"));
  CHECK_THAT(trained(R"({"messages": ["Hi", "Yes"]})"
                     "\n"),
             Contains("message 1 is a string"));
}

TEST_CASE("situation 12: text that looks like the template is text, and letters outside of ASCII are whole") {
  CHECK(trained(row(asked + R"(, {"role": "assistant", "content": "{{ messages }} {% endfor %}"})")) ==
        "<user>Hi</>\n<assistant>[{{ messages }} {% endfor %}</>]\n");
  CHECK(trained(row(asked + R"(, {"role": "assistant", "content": "\u00e9 \ud83d\ude00"})")) ==
        "<user>Hi</>\n<assistant>[\xc3\xa9 \xf0\x9f\x98\x80</>]\n");
  CHECK_THAT(trained(row(asked + R"(, {"role": "assistant", "content": "\ud83d"})")), Contains("rows.jsonl:1:"));
}

}  // namespace chat_rows
