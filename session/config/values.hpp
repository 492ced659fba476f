// SPDX-License-Identifier: Apache-2.0
// Values as users write them: checked against their options, and as text.
#pragma once

#include "core/config/value.hpp"

namespace eng {

// An invalid value's error code, and text such as "must be at least 1, not 0". Empty if it fits.
struct Misfit {
  const char* code = nullptr;
  std::string text;
};
// Converts a value as written (in TOML, a preset or a default) to the option's type: an integer to a number where one
// is wanted, "64MiB" to bytes.
Misfit fit(const Option& option, Value& value);
const Option* find_option(const Schema& schema, const std::string& key);  // nullptr if there is none
// The values that a key accepts: "integer, at least 1", "string: "linear", "log"".
std::string describe(const Option& option);
// A value as TOML text; "" for no value.
std::string toml_text(const Value& value);
std::string toml_text(const std::string& text);  // quoted and escaped

// "64MiB" -> 67108864; "24GB" -> 24000000000; plain integers are bytes. nullopt if malformed or too large.
std::optional<int64_t> parse_bytes(const std::string& text);
// "90s", "15m", "10min", "3h50m" -> seconds; a plain number is seconds. nullopt if malformed.
std::optional<double> parse_duration(const std::string& text);

}  // namespace eng
