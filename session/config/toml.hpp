// SPDX-License-Identifier: Apache-2.0
// Reads TOML into values and schemas: for configurations, the core's own keys and the descriptions of plugins.
#pragma once

#include <toml++/toml.h>
#include <set>

#include "core/base/error.hpp"
#include "session/config/values.hpp"

namespace eng {

// Line and column are counted from 1, columns in characters.
struct BadToml : std::runtime_error {
  BadToml(const std::string& why, std::size_t at_line, std::size_t at_column)
      : std::runtime_error(why), line(at_line), column(at_column) {}
  std::size_t line, column;
};
toml::table parse_toml(const std::string& text);  // throws BadToml

// The value as written. If no Value can hold it, returns none and sets `odd` to what it is: "a date or time".
Value value_of(const toml::node& node, std::string& odd);

// The entries of a table, in the order of the text. Throws std::runtime_error, prefixed with `where`, if it is no
// table.
std::vector<std::pair<std::string, const toml::node*>> entries(const toml::node* node, const std::string& where);
// The values of a table, checked against `schema`; keys in `others` are skipped. Throws std::runtime_error, prefixed
// with `where`.
Preset read_table(const toml::node* node, const Schema& schema, const std::string& where,
                  const std::set<std::string>& others = {});
std::string text_in(const Preset& table, const std::string& key);                // "" if absent
std::vector<std::string> texts_in(const Preset& table, const std::string& key);  // also for one text; {} if absent
// KEY = { type = "int", ... }, as described in engine/plugin.h. Throws like read_table.
Schema read_options(const toml::node* node, const std::string& where);
// True for 1 to 100 characters of a-z, 0-9, _ and `more`.
bool is_word(const std::string& text, const std::string& more = "");

}  // namespace eng
