// SPDX-License-Identifier: Apache-2.0
// Option schemas and resolved values, shared by the configuration and by plugin descriptions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace eng {

enum class Type { boolean, integer, number, string, bytes, strings, numbers };

// monostate: no value (an optional key without default). `bytes` values are int64_t.
using Value =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<std::string>, std::vector<double>>;

// One key of a section.
struct Option {
  std::string key;
  Type type = Type::string;
  Value fallback;                    // the default
  std::optional<double> min, max;    // inclusive
  std::vector<std::string> choices;  // of a string
  std::string help;
  bool required = false;
  bool above_min = false;  // `min` itself is refused
};

using Schema = std::vector<Option>;
using Preset = std::map<std::string, Value>;

// Where a resolved value comes from, for people: "default", "config.toml:12", "command line", "preset 7b", "derived".
struct Setting {
  Value value;
  std::string origin;
  bool given = false;  // by the user or a preset
};

// "integer", "list of strings": of a schema's type.
const char* type_name(Type type);
// "integer, at least 1", "string: "linear" or "log"": what a key accepts.
std::string describe(const Option& option);
// Brings a value as written (in TOML, a preset or a default) to the option's type: an integer becomes the
// number that is wanted, "64MiB" the bytes. Returns "" or what is wrong, such as "must be at least 1, not 0".
std::string fit(const Option& option, Value& value);
// A value as TOML; "" for none.
std::string toml_text(const Value& value);
std::string toml_text(const std::string& text);  // quoted and escaped

}  // namespace eng
