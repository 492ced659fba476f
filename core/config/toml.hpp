// SPDX-License-Identifier: Apache-2.0
// TOML as values and as schemas: configurations, the core's own keys and the descriptions of plugins are read alike.
#pragma once

#include <toml++/toml.h>
#include <set>

#include "core/base/error.hpp"
#include "core/config/value.hpp"

namespace eng {

// Counted in characters from 1.
struct BadToml : std::runtime_error {
  BadToml(const std::string& why, std::size_t at_line, std::size_t at_column)
      : std::runtime_error(why), line(at_line), column(at_column) {}
  std::size_t line, column;
};
toml::table parse_toml(const std::string& text);  // throws BadToml

// As written; for what no Value can hold, none, and `odd` says what it is: "a date or time".
Value value_of(const toml::node& node, std::string& odd);

// The entries of a table in the order in which they are written.
std::vector<std::pair<std::string, const toml::node*>> entries(const toml::node* node, const std::string& where);
// A table whose values fit the options of `schema`; the keys in `others` are left out. Like `entries` it throws
// std::runtime_error, whose text begins with `where`.
Preset read_table(const toml::node* node, const Schema& schema, const std::string& where,
                  const std::set<std::string>& others = {});
std::string text_in(const Preset& table, const std::string& key);                // "" if it is not there
std::vector<std::string> texts_in(const Preset& table, const std::string& key);  // also of one text; {} if not there
// KEY = { type = "int", ... } as engine/plugin.h describes it.
Schema read_options(const toml::node* node, const std::string& where);
// Made of a-z, 0-9, _ and `more`.
bool is_word(const std::string& text, const std::string& more = "");

}  // namespace eng
