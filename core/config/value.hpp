// SPDX-License-Identifier: Apache-2.0
// Options and their values, shared by the configuration and by plugin descriptions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace eng {

enum class Type { boolean, integer, number, string, bytes, strings, numbers, duration, tables };

struct Table;
// monostate: no value (an optional key without default). Type::bytes is an int64_t; Type::duration a double, in
// seconds.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<std::string>,
                           std::vector<double>, std::vector<Table>>;
// One table of a list such as [[optimizer.groups]].
struct Table {
  std::map<std::string, Value> values;
  bool operator==(const Table& other) const;
};
using Tables = std::vector<Table>;

// One key of a section.
struct Option {
  std::string key = {};
  Type type = Type::string;
  Value fallback = {};                       // the default
  std::optional<double> min = {}, max = {};  // inclusive
  std::vector<std::string> choices = {};     // for a string: the allowed values
  std::string help = {};
  bool required = false;
  bool above_min = false;  // `min` itself is refused
  bool late = false;       // names a plugin; the default one is looked up only when a run needs it
  // For models. `json`: paths in config.json; export writes the first. `json_none`: the text there that means "not
  // given". `json_multiple`: path of a number; the value is rounded up to a multiple of it. `adjustable`: [model] may
  // differ from the config.json of the weights.
  std::vector<std::string> json = {};
  std::string json_none = {}, json_multiple = {};
  bool adjustable = false;
  bool per_group = false;   // for an optimizer: [[optimizer.groups]] may set another value for some parameters
  std::string resume = {};  // what a resumed run does with another value: free, note or refuse; "": as its section says
  std::string names = {};   // a kind: the value may name a provision of it, whose options are then keys of the section
};

using Schema = std::vector<Option>;
using Preset = std::map<std::string, Value>;

// A resolved value and its origin, as text: "default", "config.toml:12", "command line", "preset 7b", "derived".
struct Setting {
  Value value;
  std::string origin;
  bool given = false;  // set by the user or a preset
};

const char* kind_of(const Value& value);  // "boolean", "list of strings"
// 67108864 -> "64.0 MiB".
std::string format_bytes(double bytes);

}  // namespace eng
