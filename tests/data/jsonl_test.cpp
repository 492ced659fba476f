// SPDX-License-Identifier: Apache-2.0
// JSON Lines: texts out, and errors that name the line.
#include <catch2/catch.hpp>

#include "harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace {

struct Jsonl {
  Folder folder;

  // The stream that a file of these lines gives, documents joined by "|", or the error.
  std::string read(const std::string& lines, const std::string& field = "text", const std::string& errors = "stop",
                   const std::string& missing = "stop") {
    folder.write("a.jsonl", lines);
    Settings settings{.paths = {"a.jsonl"},
                      .strings = {{"separator", "|"}, {"field", field}, {"errors", errors}, {"missing", missing}},
                      .numbers = {{"validation", 0}},
                      .length = 1};
    Source once(folder, settings);
    if (once.status() != ENG_OK) {
      CHECK(once.status() == ENG_INVALID);
      CHECK_THAT(once.error(), Contains("a.jsonl"));
      return once.error();
    }
    settings.length = static_cast<int64_t>(once.info().tokens) - 1;
    return Source(folder, settings).text();
  }
};

}  // namespace

TEST_CASE_METHOD(Jsonl, "a line is a document") {
  CHECK(read("{\"text\": \"one\"}\n{\"text\": \"two\"}\n") == "one|two");
  CHECK(read("{\"text\": \"one\"}\n{\"text\": \"two\"}") == "one|two");
  CHECK(read("{\"text\": \"one\"}\r\n{\"text\": \"two\"}\r\n") == "one|two");
  CHECK(read("\n\n{\"text\": \"one\"}\n \t\r\n\n{\"text\": \"two\"}\n\n") == "one|two");
  CHECK(read("{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two\"}\n") == "one|two");
  CHECK(read("\xef\xbb\xbf{\"text\": \"one\"}\n{\"text\": \"two\"}\n") == "one|two");
}

TEST_CASE_METHOD(Jsonl, "escapes are decoded to UTF-8") {
  CHECK(read(R"({"text": "a\nb\t\"\\\/ \u00e9 \u20ac \ud83d\ude00 é€😀"})") == "a\nb\t\"\\/ é € 😀 é€😀");
  CHECK(read(R"({"text": "a\u0000b"})") == std::string("a\0b", 3));
  CHECK(read(R"({"te\u0078t": "by another spelling"})") == "by another spelling");
}

TEST_CASE_METHOD(Jsonl, "the field is that of the outermost object") {
  CHECK(read(R"({"meta": {"text": "inner"}, "list": [{"text": "deep"}], "text": "outer", "n": 1.5})") == "outer");
  CHECK(read(R"({"text": "outer", "meta": {"text": "inner"}})") == "outer");
  CHECK(read(R"({"text": "outer", "body": "the body"})", "body") == "the body");
  CHECK(read(R"({"text": "first", "text": "last"})") == "last");
  CHECK_THAT(read(R"({"text": "first", "text": 3})"), Contains("a.jsonl:1: field \"text\" is a number"));
}

TEST_CASE_METHOD(Jsonl, "a bad line is named") {
  const std::string good = "{\"text\": \"one\"}\n";
  CHECK_THAT(read(good + "\n{\"text\": \"two\"\n"), Contains("a.jsonl:3:") && Contains("not valid JSON"));
  CHECK_THAT(read(good + "{\"text\": oops}\n"), Contains("a.jsonl:2:10: not valid JSON"));
  CHECK_THAT(read("plain text\n"), Contains("a.jsonl:1:") && Contains("not valid JSON"));
  CHECK_THAT(read(good + "{\"text\": \"two\"} {\"text\": \"three\"}\n"), Contains("a.jsonl:2:"));
  CHECK_THAT(read("{\"text\": \"\\ud800\"}\n"), Contains("a.jsonl:1:") && Contains("not valid JSON"));
  CHECK_THAT(read("{\"text\": \"\xff\xfe\"}\n"), Contains("a.jsonl:1:") && Contains("not valid JSON"));
  CHECK_THAT(read(std::string("\0\0\0\n", 4)), Contains("a.jsonl:1:"));
}

TEST_CASE_METHOD(Jsonl, "rows of chats and instructions are told what is read") {
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]})";
  CHECK_THAT(
      read(chat),
      Contains(
          "a.jsonl:1: no field \"text\"; the line has \"messages\". Chat data are read by [data] plugin = \"chat\"") &&
          Contains("apply_chat_template") && Contains("{\"text\": \"...\"}") && !Contains("set [data] field"));
  CHECK_THAT(read(chat, "messages"),
             Contains("field \"messages\" is an array, not a string. Chat data are read by [data] plugin = \"chat\""));
  CHECK_THAT(read(R"({"conversations": [{"from": "human", "value": "Hi"}]})"),
             Contains("Chat data are read by [data] plugin = \"chat\""));
  CHECK_THAT(read(R"({"instruction": "Add", "input": "1 2", "output": "3"})"),
             Contains("Instruction data in several fields are read by [data] plugin") && !Contains("set [data] field"));
  CHECK_THAT(read(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"), Contains("Pairs of preferred answers"));
  // One field of such a row can be the text.
  CHECK(read(R"({"instruction": "Add", "output": "33"})", "output") == "33");
  CHECK_THAT(read(R"({"body": "x"})"), Contains("set [data] field to the one that holds the text"));
}

TEST_CASE_METHOD(Jsonl, "what is no character stops, or is replaced where that is asked for") {
  const std::string half = R"({"text": "a\ud83dz \\ud83d \ude00\ud83d\ude00"})",
                    bytes = "{\"text\": \"b\xff\xe2\x82 c\"}";
  CHECK_THAT(read(half),
             Contains("a.jsonl:1:") && Contains("not valid JSON") && Contains("[data] errors = \"replace\""));
  CHECK_THAT(read(bytes), Contains("a.jsonl:1:") && Contains("[data] errors = \"replace\""));
  CHECK(read(half + "\n" + bytes, "text", "replace") == "a\ufffdz \\ud83d \ufffd\U0001f600|b\ufffd\ufffd c");
  CHECK(read(R"({"text": "\ud83d\u0041\ud83d"})", "text", "replace") == "\ufffdA\ufffd");
  // A row that is wrong for another reason stays an error, with its own place and without that advice.
  const std::string broken = read(R"({"text": "\ud83d", oops})", "text", "replace");
  CHECK_THAT(broken, Contains("a.jsonl:1:") && Contains("not valid JSON") && !Contains("replace"));
  CHECK_THAT(read("{\"text\": oops}", "text", "replace"), Contains("a.jsonl:1:10: not valid JSON"));
  CHECK_THAT(read(R"({"text": "\ud8"})", "text", "replace"), Contains("not valid JSON"));
}

TEST_CASE_METHOD(Jsonl, "a missing or wrong field is named, with what is there") {
  CHECK_THAT(read("{\"text\": \"one\"}\n{\"body\": \"two\", \"id\": 3}\n"),
             Contains("a.jsonl:2: no field \"text\"; the line has \"body\", \"id\"") && Contains("[data] field"));
  CHECK_THAT(read("{}\n"), Contains("a.jsonl:1: no field \"text\"; the line has no fields"));
  CHECK_THAT(read("{\"text\": null}\n"), Contains("a.jsonl:1: field \"text\" is null, not a string"));
  CHECK_THAT(read("{\"text\": [\"one\"]}\n"), Contains("field \"text\" is an array, not a string"));
  CHECK_THAT(read("{\"text\": {\"text\": \"one\"}}\n"), Contains("field \"text\" is an object, not a string"));
  CHECK_THAT(read("3\n[\"text\"]\n"), Contains("a.jsonl:1: the line is a number, not an object"));
  CHECK_THAT(read("{\"text\": \"\"}\n[\"text\"]\n"), Contains("a.jsonl:2: the line is an array, not an object"));
  CHECK_THAT(read("\"text\"\n"), Contains("a.jsonl:1: the line is a string, not an object"));
  std::string many;
  for (int i = 0; i < 100; ++i) many += (i ? ", \"key" : "\"key") + std::to_string(i) + "\": 0";
  CHECK_THAT(read("{" + many + "}"), Contains("(100 in all)"));
  CHECK(read("{\"" + std::string(100000, 'k') + "\": 0}").size() < 1000);
}

TEST_CASE_METHOD(Jsonl, "a field may be inside of others") {
  CHECK(read(R"({"data": {"text": "aa", "id": 1}, "text": "no"})", "data.text") == "aa");
  CHECK(read(R"({"id": {"text": "no"}, "data": {"x": {"text": "no"}, "text": "aa"}})", "data.text") == "aa");
  CHECK(read(R"({"a": {"b": {"c": "deep"}, "c": "no"}})", "a.b.c") == "deep");
  CHECK(read(R"({"data.text": "whole", "data": {"text": "inner"}})", "data.text") == "whole");
  CHECK(read(R"({"data": {"text": "inner"}, "data.text": "whole"})", "data.text") == "whole");
  CHECK(read(R"({"data": {"text": "first"}, "data": {"text": "last"}})", "data.text") == "last");
  CHECK_THAT(read(R"({"data": [{"text": "in a list"}]})", "data.text"), Contains("a.jsonl:1: no field \"data.text\""));
  CHECK_THAT(read(R"({"data": "text"})", "data.text"), Contains("no field \"data.text\"; the line has \"data\""));
  CHECK_THAT(read(R"({"data": {"text": 3}})", "data.text"), Contains("field \"data.text\" is a number"));
  CHECK_THAT(read(R"({"data": {"text": null}})", "data.text"), Contains("field \"data.text\" is null"));
  CHECK_THAT(read(R"({"data": {"text": {"text": "aa"}}})", "data.text"), Contains("field \"data.text\" is an object"));
  // The field in which it is found is proposed.
  CHECK_THAT(read(R"({"id": 3, "data": {"text": "aa"}})"), Contains("set [data] field = \"data.text\""));
  CHECK_THAT(read(R"({"data": [{"text": "aa"}]})"), !Contains("data.text"));
}

TEST_CASE_METHOD(Jsonl, "rows without a text are left out where that is asked for, and counted") {
  const std::string good = "{\"text\": \"one\"}\n", null = "{\"text\": null}\n", other = "{\"body\": 3}\n";
  CHECK_THAT(read(good + null), Contains("a.jsonl:2: field \"text\" is null") && Contains("missing = \"skip\""));
  CHECK_THAT(read(good + good + other), Contains("a.jsonl:3: no field") && Contains("missing = \"skip\""));
  logged();
  CHECK(read(null + good + other + null + "{}\n" + good, "text", "stop", "skip") == "one|one");
  CHECK(logged() == "[data] missing = \"skip\": rows without a text that are left out: 4\n");
  CHECK(read("{\"data\": {}}\n{\"data\": {\"text\": \"aa\"}}\n{\"data\": {\"text\": null}}\n", "data.text", "stop",
             "skip") == "aa");
  // A row that is wrong otherwise stays an error, and so does a field that no row has.
  CHECK_THAT(read(good + "{\"text\": 3}\n", "text", "stop", "skip"), Contains("a.jsonl:2: field \"text\" is a number"));
  CHECK_THAT(read(good + "[]\n", "text", "stop", "skip"), Contains("a.jsonl:2: the line is an array"));
  CHECK_THAT(read(null + other, "text", "stop", "skip"),
             Contains("none of its 2 rows has a text in the field \"text\""));
  CHECK_THAT(read(good, "body", "stop", "skip"), Contains("none of its 1 rows has a text in the field \"body\""));
}

TEST_CASE_METHOD(Jsonl, "a line may be longer than any buffer, or deeply nested") {
  const std::string text(5 << 20, 'x');
  CHECK(read("{\"text\": \"a\"}\n{\"text\": \"" + text + "\"}\n{\"text\": \"b\"}\n") == "a|" + text + "|b");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  CHECK(read("{\"deep\": " + deep + ", \"text\": \"found\"}\n") == "found");
  CHECK_THAT(read("{\"deep\": " + deep + "}\n"), Contains("no field"));
}

TEST_CASE_METHOD(Jsonl, "a line beyond the limit is named") {
  const std::string limit(64 << 20, ' ');
  CHECK(read("{\"text\": \"a\"}\n" + limit + "\n{\"text\": \"b\"}\n") == "a|b");
  CHECK_THAT(read("{\"text\": \"a\"}\n" + limit + " \n{\"text\": \"b\"}\n"),
             Contains("a.jsonl:2: the line is longer than 64 MiB") && Contains("split"));
}

TEST_CASE("JSON Lines and plain files mix") {
  Folder folder;
  folder.write("a.txt", "plain");
  folder.write("b.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  folder.write("c.md", "{}");
  Settings settings{.paths = {"*"}, .numbers = {{"validation", 0}}, .length = 15};
  CHECK(Source(folder, settings).text() == "plain\none\ntwo\n{}");
  settings.paths = {"b.jsonl"};
  settings.length = 6;
  CHECK(Source(folder, settings).text() == "one\ntwo");
}
