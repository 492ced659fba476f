// SPDX-License-Identifier: Apache-2.0
// The engine of chat templates, beside Jinja: tests/data/golden/jinja.json is made by tools/goldens/chat_templates.py.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "plugins/data/jinja/template.hpp"

using Catch::Contains;

namespace jinja_test {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Value;

Value value_of(const Json& json) {
  if (json.is_null()) return jinja::None();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json) items.push_back(value_of(item));
    return jinja::make_list(std::move(items));
  }
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, item] : json.items()) dict->put(Value(key), value_of(item));
  return dict;
}

std::string error_of(const std::string& text, const jinja::Limits& limits = {}) {
  try {
    jinja::Template(text).render({}, jinja::read_date("2024-02-29"), limits);
  } catch (const jinja::Error& error) {
    return error.what();
  }
  return "no error";
}

std::string rendered(const std::string& text) {
  return jinja::Template(text).render({}, jinja::read_date("2024-02-09")).text;
}

}  // namespace

TEST_CASE("templates give the text and the marks that Jinja gives") {
  const Json golden = Json::parse(std::ifstream(std::string(ENGINE_SOURCE_DIR) + "/tests/data/golden/jinja.json"));
  std::vector<std::pair<std::string, Value>> variables;
  for (const auto& [name, value] : golden["variables"].items()) variables.emplace_back(name, value_of(value));
  std::size_t checked = 0, errors = 0;
  for (const Json& one : golden["cases"]) {
    const std::string text = one["template"];
    INFO(text);
    try {
      const jinja::Rendered got = jinja::Template(text).render(variables);
      REQUIRE(one.contains("text"));
      CHECK(got.text == one["text"].get<std::string>());
      CHECK(got.generated == one["spans"].get<std::vector<std::pair<std::size_t, std::size_t>>>());
      ++checked;
    } catch (const jinja::Error& error) {
      INFO(error.what());
      CHECK(one.contains("error"));
      ++errors;
    }
  }
  CHECK(checked > 60);
  CHECK(errors > 15);
}

TEST_CASE("an error of a template says line and column") {
  CHECK_THAT(error_of("a\n{{ 1 + }}"), Contains("line 2, column 8: here must be a value, not the end of the tag"));
  CHECK_THAT(error_of("{% if x %}"), Contains("line 1, column 11: the template ends before {% endif %}"));
  CHECK_THAT(error_of("\n\n  {{ x.y }}"), Contains("line 3, column 7: `x` is undefined and has no attribute `y`"));
  CHECK_THAT(error_of("{{ 'a'|nope }}"), Contains("line 1, column 8: there is no filter `nope`"));
  CHECK_THAT(error_of("{{ raise_exception('no system') }}"), Contains("the template refuses: no system"));
  CHECK_THAT(error_of("{% include 'x' %}"), Contains("a chat template is one text"));
  CHECK_THAT(error_of("{{ [].append(1) }}"), Contains("a chat template cannot do: use namespace()"));
  CHECK_THAT(error_of("{{ x(*[1]) }}"), Contains("arguments from a list or a dict are not supported"));
  CHECK_THAT(error_of("{% macro f() %}{% generation %}a{% endgeneration %}{% endmacro %}{{ f() }}"),
             Contains("{% generation %} inside of a macro"));
  CHECK_THAT(error_of("{{ 9223372036854775807 + 1 }}"), Contains("a whole number is too large"));
  CHECK_THAT(error_of("{% macro f(a) %}{% endmacro %}{{ f(b=1) }}"), Contains("`f` has no parameter `b`"));
}

TEST_CASE("a template is bounded in steps, text and depth, and reads no clock") {
  jinja::Limits few;
  few.steps = 1000, few.text_bytes = 100;
  CHECK_THAT(error_of("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", few),
             Contains("more than 1000 steps"));
  CHECK_THAT(error_of("{{ 'abc' * 1000 }}", few), Contains("a text is too long"));
  CHECK_THAT(error_of("{% set x = 'abcdefgh' %}{% for i in range(60) %}{% set x = x + x %}{{ x }}{% endfor %}", few),
             Contains("the text is longer than 100 bytes"));
  CHECK_THAT(error_of("{{ range(1000000) }}"), Contains("more than 100000 numbers"));
  CHECK_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), Contains("nested too deeply"));
  CHECK_THAT(error_of("{{ " + std::string(2000, '(') + "1" + std::string(2000, ')') + " }}"),
             Contains("nested too deeply"));
  std::string sum = "1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  CHECK_THAT(error_of("{{ " + sum + " }}"), Contains("nested too deeply"));
  CHECK_THAT(error_of("{% set ns = namespace(x=1) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
             Contains("a value is nested too deeply"));
  CHECK_THAT(error_of("{% set a = namespace() %}{% set a.self = a %}{{ a.self.self is defined }}"),
             Contains("no error"));
  CHECK_THAT(error_of(std::string((std::size_t{1} << 20) + 1, 'a')), Contains("longer than 1 MiB"));
  CHECK(rendered("{{ strftime_now('%d %b %Y, %A %B %-d, 100%%') }}") == "09 Feb 2024, Friday February 9, 100%");
  CHECK_FALSE(jinja::read_date("2023-02-29"));
  CHECK_FALSE(jinja::read_date("2023-13-01"));
  CHECK_FALSE(jinja::read_date("today"));
  try {
    jinja::Template("{{ strftime_now('%Y') }}").render({});
    FAIL("a date without one");
  } catch (const jinja::Error& error) {
    CHECK_THAT(error.what(), Contains("set [data] date"));
  }
}

}  // namespace jinja_test
