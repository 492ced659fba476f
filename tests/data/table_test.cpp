// SPDX-License-Identifier: Apache-2.0
// Rows that are no JSON Lines: arrays of JSON, tables, and the folders of saved data sets.
#include <catch2/catch.hpp>

#include "harness.hpp"
#include "tokenizer_harness.hpp"

using namespace data_test;
using Catch::Contains;

namespace table_test {
namespace {

struct Tables {
  Folder folder;
  Settings settings{.paths = {}, .strings = {{"separator", "|"}}, .numbers = {{"validation", 0}}, .length = 1};

  // The stream that a file of this content gives, documents joined by "|", or the error.
  std::string read(const std::string& name, const std::string& content) {
    folder.write(name, content);
    settings.paths = {name};
    settings.length = 1;
    Source once(folder, settings);
    if (once.status() != ENG_OK) return once.error();
    settings.length = static_cast<int64_t>(once.info().tokens) - 1;
    return Source(folder, settings).text();
  }
};

std::string times(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE_METHOD(Tables, "each object of an array is a row, wherever its lines end") {
  CHECK(read("a.json", R"([{"text": "one"}, {"text": "two"}])") == "one|two");
  CHECK(read("a.json", "\xef\xbb\xbf [\r\n{\"text\":\n \"one\"}\n,{\"n\": [{}, \"]}\"],\"text\": \"t\\\"}wo\"}\n]\n") ==
        "one|t\"}wo");
  CHECK(read("a.json.gz", gzip(R"([{"text": "one"}, {"text": "two"}])")) == "one|two");
  settings.strings["field"] = "data.text";
  CHECK(read("a.json", R"([{"data": {"text": "one"}}, {"data": {"text": "two"}}])") == "one|two");
  settings.strings["field"] = "text";
  // Rows that cross the pieces of 1 MiB in which a file is read.
  const std::string row = R"({"text": "\\\" )" + std::string(997, 'a') + "\"}", text = "\\\" " + std::string(997, 'a');
  CHECK(read("a.json", "[" + times(row + ",\n", 2999) + row + "]") == times(text + "|", 2999) + text);
  const std::string long_one(3 << 20, 'x');
  CHECK(read("a.json", R"([{"text": "a"},{"text": ")" + long_one + R"("},{"text": "b"}])") == "a|" + long_one + "|b");
  settings.strings["format"] = "json";
  CHECK_THAT(read("a.txt", "text"), Contains("a.txt:1:1: the file does not begin with ["));
  CHECK_THAT(read("a.txt", "[]"), Contains("no tokens") || Contains("empty"));
}

TEST_CASE_METHOD(Tables, "a bad row of an array is named by its line and column") {
  const std::string good = "[{\"text\": \"one\"},\n ";
  CHECK_THAT(read("a.json", good + "{\"text\": two}]"), Contains("\"json\" for one array of objects"));
  CHECK_THAT(read("a.json", good + "{\"body\": \"b\"}]"),
             Contains("a.json:2: no field \"text\"; the row has \"body\""));
  CHECK_THAT(read("a.json", good + "{\"text\": null}]"), Contains("a.json:2: field \"text\" is null"));
  settings.strings["missing"] = "skip";
  CHECK(read("a.json", good + "{\"text\": null}]") == "one");
  CHECK_THAT(read("a.json", "[{\"text\": null}]"), Contains("none of its 1 rows has a text"));
  settings.strings["missing"] = "stop";
  settings.strings["format"] = "json";
  CHECK_THAT(read("a.json", good + "{\"text\": two}]"), Contains("a.json:2:12: not valid JSON"));
  CHECK_THAT(read("a.json", good + "{\n  \"text\": two}]"), Contains("a.json:3:12: not valid JSON"));
  CHECK_THAT(read("a.json", good + "\"two\"]"), Contains("a.json:2:2: row 2 of the array is not an object"));
  CHECK_THAT(read("a.json", good + "{\"text\": \"two\"}"),
             Contains("a.json:2: the file is cut short: its array is not"));
  CHECK_THAT(read("a.json", good + "{\"text\": \"tw"), Contains("the file is cut short"));
  CHECK_THAT(read("a.json", "[{\"text\": \"one\"} {}]"), Contains("a.json:1:18: a , or ] is missing behind row 1"));
  CHECK_THAT(read("a.json", "[{\"text\": \"one\"},]"), Contains("a.json:1:18: row 2 of the array is not an object"));
  CHECK_THAT(read("a.json", "[{\"text\": \"one\"}]\n[]"), Contains("a.json:2:1: something follows the ]"));
  CHECK_THAT(read("a.json", "[{\"text\": \"caf\xe9\"}]"), Contains("a.json:1:") && Contains("not valid JSON"));
  settings.strings["errors"] = "replace";
  CHECK(read("a.json", "[{\"text\": \"caf\xe9\"}]") == "caf\xef\xbf\xbd");
}

TEST_CASE_METHOD(Tables, "a column of a table is read by its name") {
  CHECK(read("a.csv", "text,n\none,1\ntwo,2\n") == "one|two");
  CHECK(read("a.csv", "n,text\r\n1,one\r\n2,two") == "one|two");
  CHECK(read("a.csv", "\xef\xbb\xbftext\none\n\n\"\"\ntwo\n") == "one|two");
  CHECK(read("a.csv", "n,\"text\"\n1,\"one, \"\"two\"\"\nthree\r\nfour\"\n2,five\n") ==
        "one, \"two\"\nthree\r\nfour|five");
  CHECK(read("a.csv", "text,n\n ' one ' ,1\n") == " ' one ' ");
  CHECK(read("a.tsv", "n\ttext\n1\tone, two\n2\t\"a\tb\"\n") == "one, two|a\tb");
  CHECK(read("A.TSV.GZ", gzip("n\ttext\n1\tone, two\n")) == "one, two");
  settings.strings["field"] = "body.text";
  CHECK(read("a.csv", "body.text,text\none,1\n") == "one");
  settings.strings["field"] = "text";
  settings.strings["format"] = "csv";
  CHECK(read("a.txt", "text,n\none,1\n") == "one");
  settings.strings["format"] = "text";
  CHECK(read("a.csv", "text,n\none,1\n") == "text,n\none,1\n");
}

TEST_CASE_METHOD(Tables, "cells cross the pieces in which a file is read") {
  const std::string cell = std::string(500, 'a') + "\"\"\r\n," + std::string(497, 'b');
  const std::string text = std::string(500, 'a') + "\"\r\n," + std::string(497, 'b');
  CHECK(read("a.csv", "n,text\r\n" + times("1,\"" + cell + "\"\r\n", 3000)) == times(text + "|", 2999) + text);
}

TEST_CASE_METHOD(Tables, "a table that is none is refused with its line") {
  CHECK_THAT(read("a.csv", "body,n\none,1\n"), Contains("a.csv:1: no column \"text\"; the header has \"body\", \"n\""));
  CHECK_THAT(read("a.csv", "text;n\none;1\n"), Contains("\"text;n\": cells are separated by commas"));
  CHECK_THAT(read("a.csv", "text,text\none,1\n"), Contains("several columns have the name \"text\""));
  CHECK_THAT(read("a.csv", "text,n\n\"one\n\",1\ntwo\n"), Contains("a.csv:4: the row has 1 cells, and the header 2"));
  CHECK_THAT(read("a.csv", "text,n\none, and two,1\n"), Contains("a.csv:2: the row has more cells than the 2"));
  CHECK_THAT(read("a.csv", "text,n\none,1\n5\" pipe,1\n"), Contains("a.csv:3: a quote inside of a cell"));
  CHECK_THAT(read("a.csv", "text,n\n\"one\"two,1\n"), Contains("a.csv:2: text follows the quote"));
  CHECK_THAT(read("a.csv", "text,n\none,1\n\"two,1\nthree,2\n"),
             Contains("a.csv:3: a quote of this row is not closed"));
  CHECK_THAT(read("a.csv", "text,n\rone,1\r"), Contains("a.csv:1: a carriage return stands alone"));
  CHECK_THAT(read("a.csv", "text,n\n" + times("caf\xe9,1\n", 100)), Contains("is not text in UTF-8"));
}

TEST_CASE_METHOD(Tables, "chats and pairs are rows of arrays and tables, too") {
  settings = {
      .paths = {"p"}, .strings = {}, .numbers = {{"validation", 0}, {"eot", 1}}, .length = 12, .source = "pairs"};
  const auto sample = [&](const std::string& name, const std::string& content) {
    folder.write(name, content);
    settings.paths = {name};
    Source source(folder, settings);
    return source.error().empty() ? source.read(0, 1) : Sample();
  };
  const Sample wanted = sample("a.jsonl", R"({"prompt": "0?", "chosen": "+\n\"0", "rejected": "-0"})");
  REQUIRE(wanted.tokens.size() == 12);
  CHECK(sample("a.json", R"([{"prompt": "0?", "chosen": "+\n\"0", "rejected": "-0"}])") == wanted);
  CHECK(sample("a.csv", "chosen,prompt,rejected\n\"+\n\"\"0\",0?,-0\n") == wanted);
  folder.write("bad.csv", "prompt,chosen\n0?,+\n\n1?,+\n");
  settings.paths = {"bad.csv"};
  CHECK_THAT(Source(folder, settings).error(), Contains("bad.csv:2: no field \"rejected\""));
  folder.write("t.jinja",
               "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}");
  settings = {.paths = {},
              .strings = {{"chat_template", "t.jinja"}},
              .numbers = {{"validation", 0}},
              .length = 60,
              .source = "chat"};
  const auto chat = [&](const std::string& name, const std::string& content) {
    folder.write(name, content);
    settings.paths = {name};
    Source source(folder, settings);
    INFO(source.error());
    return source.error().empty() ? source.read(0, 0) : Sample();
  };
  const Sample said = chat("c.jsonl", R"({"prompt": "2 + 2?", "completion": "4, \"four\""})");
  REQUIRE(said.tokens.size() == 60);
  CHECK(chat("c.json", R"([{"prompt": "2 + 2?", "completion": "4, \"four\""}])") == said);
  CHECK(chat("c.csv", "prompt,completion\n2 + 2?,\"4, \"\"four\"\"\"\n") == said);
}

TEST_CASE_METHOD(Tables, "a folder of save_to_disk stands for its files") {
  folder.write("set/data-00000-of-00002.arrow", "one");
  folder.write("set/data-00001-of-00002.arrow", "two");
  folder.write("set/cache-1.arrow", "left out");
  folder.write("set/state.json", R"({"_data_files": [{"filename": "data-00000-of-00002.arrow"},
    {"filename": "data-00001-of-00002.arrow"}], "_split": "train"})");
  settings.paths = {"set"};
  settings.length = 6;
  CHECK(Source(folder, settings).text() == "one|two");
  folder.write("set/state.json", R"({"_data_files": [{"filename": "data-00002-of-00003.arrow"}]})");
  CHECK_THAT(Source(folder, settings).error(),
             Contains("state.json names the file data-00002-of-00003.arrow, which is"));
  folder.write("set/state.json", R"({"_data_files": [{"filename": "../set/cache-1.arrow"}]})");
  CHECK_THAT(Source(folder, settings).error(), Contains("which is not in the folder"));
  folder.write("set/state.json", R"({"_data_files": [{"filename": "cache-1.arrow"}], "_indices_data_files": [{}]})");
  CHECK_THAT(Source(folder, settings).error(), Contains("flatten_indices()"));
  folder.write("set/state.json", "{");
  CHECK_THAT(Source(folder, settings).error(), Contains("state.json: not valid JSON"));
  folder.write("all/dataset_dict.json", R"({"splits": ["train", "test"]})");
  settings.paths = {"all"};
  CHECK_THAT(Source(folder, settings).error(), Contains("is a data set with the splits train, test"));
}

}  // namespace table_test
