// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "support.hpp"

using namespace eng;

TEST_CASE("sizes") {
  CHECK(parse_bytes("64MiB") == int64_t{64} << 20);
  CHECK(parse_bytes("24GB") == 24000000000);
  CHECK(parse_bytes("24 GiB") == int64_t{24} << 30);
  CHECK(parse_bytes("1.5KiB") == 1536);
  CHECK(parse_bytes("2TB") == 2000000000000);
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("17") == 17);
  CHECK(parse_bytes("17B") == 17);
  CHECK(parse_bytes("9007199254740992") == int64_t{1} << 53);
  CHECK(parse_bytes("9007199254740993") == (int64_t{1} << 53) + 1);
  CHECK(parse_bytes("9223372036854774784") == INT64_MAX - 1023);
  CHECK(parse_bytes("9007199254740993KiB") == std::nullopt);
  CHECK(parse_bytes("9007199254740991KiB") == ((int64_t{1} << 53) - 1) << 10);
  CHECK(parse_bytes("1.1GiB") == 1181116006);  // the nearest byte
  for (const char* bad :
       {"", "MiB", "-1MiB", "+1", "1.MiB", ".5MiB", "1.5", "0.3B", "1..5KiB", "64mib", "64M", "64 MiB ", " 64MiB",
        "64  MiB", "1e9", "9223372036854775808", "8388608TiB", "99999999999999999999999999999999999999GB", "1_000"})
    CHECK(parse_bytes(bad) == std::nullopt);
  CHECK(format_bytes(67108864) == "64.0 MiB");
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(1048575) == "1.0 MiB");
  CHECK(format_bytes(17.2 * 1073741824) == "17.2 GiB");
}

TEST_CASE("values as TOML read back as themselves") {
  for (double number : {0.0, 1.0, -1.5, 3e-4, 1e-8, 1e300, 5e-324, 0.1, 1e22, 123456789.0}) {
    Option option;
    option.type = Type::number;
    const Config config = test::parse(test::with("[optimizer]\neps = " + toml_text(Value(number)) + "\n"));
    CHECK(config.section("optimizer").number("eps") == number);
  }
  CHECK(toml_text(Value(1.0)) == "1.0");
  CHECK(toml_text(Value(3e-5)) == "3e-05");
  CHECK(toml_text(Value(1e100)) == "1e+100");
  CHECK(toml_text(std::string("a\"\\\n\x01")) == "\"a\\\"\\\\\\n\\u0001\"");
  CHECK(toml_text(Value()).empty());
}

TEST_CASE("integers for numbers, and numbers for integers") {
  Option option;
  option.type = Type::number;
  Value value = int64_t{3};
  CHECK_FALSE(fit(option, value).code);
  CHECK(value == Value(3.0));
  option.type = Type::integer;
  CHECK(fit(option, value).text == "must be of type integer, not number 3.0");
  option.type = Type::numbers;
  value = std::vector<std::string>{};
  CHECK_FALSE(fit(option, value).code);
  CHECK(value == Value(std::vector<double>{}));
  option.type = Type::bytes;
  option.max = 1024;
  value = std::string("2KiB");
  CHECK(fit(option, value).text == "must be at most 1.0 KiB, not string \"2KiB\"");
  value = int64_t{-1};
  CHECK(fit(option, value).text == "must be at least 0, not integer -1");
}
