// SPDX-License-Identifier: Apache-2.0
// A key that names something of a kind: the options of what it names are keys of its section ([data] format).
#include <catch2/catch.hpp>

#include "support.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

// The usual plugins; the source `text` has a key `format`, and there is a format `table`.
const SchemaSource& with_formats() {
  static const PluginSchema text = [] {
    PluginSchema out = *plugins().find("eng.data/1", "text");
    Option format{"format", Type::string, std::string("auto")};
    format.choices = {"auto", "lines"};
    format.names = "eng.documents/1";
    out.options.push_back(format);
    return out;
  }();
  static const PluginSchema table = [] {
    Option column{"column"}, rows{"rows", Type::integer, int64_t{5}}, field{"field", Type::integer, int64_t{1}};
    column.required = true;
    rows.max = 100;
    return PluginSchema{{column, rows, field}, {}};
  }();
  static const SchemaSource all = [] {
    SchemaSource out = plugins();
    out.find = [](const std::string& kind, const std::string& name) -> const PluginSchema* {
      if (kind == "eng.documents/1") return name == "table" ? &table : nullptr;
      return kind == "eng.data/1" && name == "text" ? &text : plugins().find(kind, name);
    };
    out.names = [](const std::string& kind) {
      return kind == "eng.documents/1" ? std::vector<std::string>{"table"} : plugins().names(kind);
    };
    return out;
  }();
  return all;
}

}  // namespace

TEST_CASE("the options of a format that is named are keys of [data]") {
  const Config config = parse(with("format = \"table\"\ncolumn = \"body\"\nfield = \"x\"\n"), {}, with_formats());
  const Section& data = config.section("data");
  CHECK(data.string("format") == "table");
  CHECK(data.string("column") == "body");
  CHECK(data.given("column"));
  CHECK(data.integer("rows") == 5);
  CHECK(data.string("field") == "x");  // the source has that key itself
  const Section plain = parse(with(""), {}, with_formats()).section("data");
  CHECK(plain.string("format") == "auto");
  CHECK(plain.settings().count("column") == 0);
  CHECK(parse(with(""), {"data.format=table", "data.column=a"}, with_formats()).section("data").string("column") ==
        "a");
}

TEST_CASE("options of formats are checked, and told where they belong") {
  const auto said = [](const std::string& more) { return problems(with(more), {}, with_formats()); };
  CHECK_THAT(said("format = \"table\"\n"), Contains("[data] needs `column`"));
  CHECK_THAT(said("format = \"table\"\ncolumn = \"a\"\nrows = 101\n"), Contains("`rows` must be at most 100"));
  CHECK_THAT(said("format = \"tabel\"\n"), Contains("\"tabel\"") && Contains("did you mean `table`"));
  CHECK_THAT(said("column = \"a\"\n"), Contains("`column` belongs to format `table`: set format = \"table\""));
  CHECK_THAT(said("rowz = 1\n"), Contains("unknown key `rowz`"));
}
