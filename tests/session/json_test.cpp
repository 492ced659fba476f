// SPDX-License-Identifier: Apache-2.0
// Json against the library below it, and what differs: depth, keys given twice, errors.
#include "session/json.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"

namespace {

using eng::Json;
using eng::JsonError;

const char* const texts[] = {"null", "true", "0", "-0", "-7", "18446744073709551615", "-9223372036854775808",
                             "18446744073709551616", "1e3", "1.0", "-0.0", "0.1", "1e-320", "123456789.123456789",
                             "\"\"", R"("a\u00e9\ud83d\ude00\n\u0001\"\\\/")", "[]", "{}", "[[], {}, [1, [2.5, null]]]",
                             R"({"b": 1, "a": {"d": [true, false], "c": "x"}, "B": null, "": -1})",
                             R"({"z": 1, "a": 2, "z": 3, "m": 4, "a": {"k": 1, "k": []}})", " \t\n[1 , 2]\r ",
                             // not JSON
                             "", "nul", "[1,]", "{\"a\"}", "{a: 1}", "01", "1.", "1e999", "[1] 2", "\"\x80\"",
                             "\"\xc3\"", "\"\\ud800\"", "// x\n1", "[1", "NaN", "'a'", "\"\n\""};

std::string refused(const std::string& text, size_t deepest) {
  try {
    eng::parse_json(text, "here", deepest);
  } catch (const eng::Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("json: of values with one name the last stays, where the first was") {
  const Json ordered = Json::parse_or_null(R"({"b":1,"a":2,"b":{"x":1,"x":[]},"c":3,"a":4})", true);
  CHECK(ordered.dump() == R"({"b":{"x":[]},"a":4,"c":3})");
  std::string many = "{";
  for (int k = 0; k < 200000; ++k) many += "\"n" + std::to_string(k) + "\":0,";
  CHECK(Json::parse_or_null(many + "\"n7\":1}", true).size() == 200000);  // in no time
}

TEST_CASE("json: reads and writes the bytes that the library does") {
  for (const std::string text : texts)
    for (const int indent : {-1, 0, 2}) {
      INFO(text);
      const auto sorted = nlohmann::json::parse(text, nullptr, false);
      const auto ordered = nlohmann::ordered_json::parse(text, nullptr, false);
      CHECK(Json::parse_or_null(text).dump(indent) == (sorted.is_discarded() ? "null" : sorted.dump(indent)));
      CHECK(Json::parse_or_null(text, true).dump(indent) == (ordered.is_discarded() ? "null" : ordered.dump(indent)));
      if (sorted.is_discarded())
        CHECK_THROWS_AS(Json::parse(text), JsonError);
      else
        CHECK(Json::parse(text) == Json::parse_or_null(text, true));
    }
}

TEST_CASE("json: text that is not UTF-8 is replaced or refused") {
  const std::string text = "a\xff\xc3(\xe2\x82";
  CHECK(Json(text).dump(-1, true) ==
        nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  CHECK_THROWS_AS(Json(text).dump(), JsonError);
  CHECK_THROWS_AS(Json::object({{"k", Json::array({text})}}).dump(2), JsonError);
}

TEST_CASE("json: values made in the source") {
  Json all = Json::object({{"b", 1}, {"a", Json::ordered({{"z", true}, {"y", nullptr}})}});
  all["c"]["d"] = std::vector<int64_t>{-1, 2};
  all["list"].push_back(2.0);
  all["nan"] = std::nan("");
  all["map"] = std::map<std::string, uint64_t>{{"x", UINT64_MAX}};
  const Json copy = all;
  all.erase("b");
  CHECK(copy.dump() == R"({"a":{"z":true,"y":null},"b":1,"c":{"d":[-1,2]},"list":[2.0],)"
                       R"("map":{"x":18446744073709551615},"nan":null})");
  CHECK(all != copy);
  all["b"] = 1.0;
  all["nan"] = nullptr;
  CHECK(all == Json::parse(copy.dump()));
  CHECK(copy.get("a").get("z").boolean());
  CHECK(copy.get("b").get("z").is_null());
  CHECK(copy.text_at("none").empty());
}

TEST_CASE("json: a value that is not what its reader expects") {
  const Json all = Json::parse(R"({"text": "x", "less": -1, "half": 0.5, "list": [1]})");
  CHECK_THROWS_AS(all.at("none"), JsonError);
  CHECK_THROWS_AS(all.at("text").integer(), JsonError);
  CHECK_THROWS_AS(all.at("less").whole(), JsonError);
  CHECK_THROWS_AS(all.at("half").integer(), JsonError);
  CHECK_THROWS_AS(all.at("half").text(), JsonError);
  CHECK_THROWS_AS(all.at("list")[1], JsonError);
  CHECK_THROWS_AS(all.at("list").at("x"), JsonError);
  CHECK_THROWS_AS(all.at("list").members(), JsonError);
  CHECK_THROWS_AS(all.list(), JsonError);
  CHECK_THROWS_AS(all.text_at("half"), JsonError);
  CHECK(all.at("list")[0].integer() == 1);
}

TEST_CASE("json: strict reading") {
  CHECK(refused(R"({"a": [1]})", 2).empty());
  CHECK(refused(R"({"a": [1]})", 1) == "here: nested too deeply");
  CHECK(refused("[[]]", 1).empty());
  CHECK(refused("[[[]]]", 1) == "here: nested too deeply");
  CHECK(refused(R"({"b": {"a": 1}, "a": {"b": 1}})", 4).empty());
  CHECK(refused(R"([{"b": 1, "a": 2, "b": 1}])", 4) == "here: `b` appears twice");
  CHECK(refused("[1", 4) == "here: is not valid JSON");
  CHECK_THROWS_AS(eng::parse_strictly(R"({"a": -1})", "here"), eng::Error);
  CHECK_THROWS_AS(eng::parse_strictly(R"({"a": [1.5]})", "here"), eng::Error);
  CHECK_THROWS_AS(eng::parse_strictly(R"({"a": null})", "here"), eng::Error);
  CHECK(eng::parse_strictly(R"({"a": 1.5})", "here", "a").at("a").number() == 1.5);
  // However deep, no more than the stack holds.
  const std::string deep(1'000'000, '[');
  CHECK(Json::parse_or_null(deep + std::string(deep.size(), ']')).is_null());
  CHECK_FALSE(Json::parse_or_null(std::string(400, '[') + std::string(400, ']')).is_null());
}
