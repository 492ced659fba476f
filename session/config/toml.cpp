// SPDX-License-Identifier: Apache-2.0
#include "session/config/toml.hpp"

#include <algorithm>

#include "session/config/spelling.hpp"

namespace eng {
namespace {

// The parser and its tables recurse once per part of a dotted key; a section needs two parts.
constexpr std::size_t most_parts = 32;

const std::map<std::string, Type> option_types = {
    {"bool", Type::boolean},    {"int", Type::integer},    {"float", Type::number},
    {"string", Type::string},   {"bytes", Type::bytes},    {"duration", Type::duration},
    {"strings", Type::strings}, {"floats", Type::numbers}, {"tables", Type::tables}};

// The last position of the string that starts at `at`; the text's size if it does not end, which the parser reports.
std::size_t end_of_string(const std::string& text, std::size_t at) {
  const std::string quote(text.compare(at, 3, std::string(3, text[at])) == 0 ? 3 : 1, text[at]);
  for (std::size_t i = at + quote.size(); i < text.size(); ++i) {
    if (text[i] == '\\' && quote[0] == '"') {
      ++i;
    } else if (text.compare(i, quote.size(), quote) == 0) {
      i += quote.size() - 1;
      // Up to two quotes may stand before the closing three.
      for (int extra = 0; quote.size() == 3 && extra < 2 && text[i + 1] == quote[0]; ++extra) ++i;
      return i;
    }
  }
  return text.size();
}

// Throws BadToml for input on which the parser (3.3) crashes: dotted keys of very many parts, and non-ASCII letters in
// bare keys, which TOML forbids.
void refuse_what_crashes(const std::string& text) {
  std::size_t parts = 1, line = 1, start = text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // start: of the current line
  const auto refuse = [&](std::size_t i, const char* why) {
    const auto letter = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
    for (auto at = text.find('\n', start); at < i; at = text.find('\n', start)) ++line, start = at + 1;
    const auto column = std::count_if(&text[start], &text[i], letter);
    throw BadToml(why, line, static_cast<std::size_t>(column) + 1);
  };
  for (std::size_t i = start; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\'') i = end_of_string(text, i);
    if (c == '#') i = std::min(text.find('\n', i), text.size()) - 1;
    if (c == '.' && ++parts > most_parts) refuse(i, "a key of more than 32 parts");
    if (static_cast<unsigned char>(c) >= 0x80) refuse(i, "a character outside ASCII, or not UTF-8, outside of quotes");
    if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) parts = 1;
  }
}

std::optional<double> limit_in(const Preset& table, const char* key) {
  const auto found = table.find(key);
  if (found == table.end()) return std::nullopt;
  const auto* bytes = std::get_if<int64_t>(&found->second);
  return bytes ? static_cast<double>(*bytes) : std::get<double>(found->second);
}

bool is_true(const Preset& table, const char* key) {
  return table.count(key) && table.at(key) == Value(true);
}

Option read_option(const std::string& key, const toml::node* node, const std::string& where) {
  const auto dot = key.find('.');  // a key of a table in a section
  need(is_word(key.substr(0, dot)) && (dot == key.npos || is_word(key.substr(dot + 1))),
       "{}: a key is made of a-z, 0-9 and _", where);
  const toml::table* table = node->as_table();
  const std::string type = table ? (*table)["type"].value_or(std::string()) : "";
  need(!table || option_types.count(type),
       "{}: 'type' is one of bool, int, float, string, bytes, duration, strings, floats", where);
  Option option{key, table ? option_types.at(type) : Type::string};
  // The description of an option is itself a table of options.
  Schema keys = {{"type"},
                 {"help"},
                 {"required", Type::boolean},
                 {"default", option.type},
                 {"json_none"},
                 {"json_multiple"},
                 {"adjustable", Type::boolean},
                 {"late", Type::boolean},
                 {"per_group", Type::boolean},
                 {"resume", Type::string, {}, {}, {}, {"free", "note", "refuse"}}};
  keys.push_back({"json", table && (*table)["json"].is_string() ? Type::string : Type::strings});
  if (type == "string" || type == "bytes") keys.push_back({"choices", Type::strings});
  if (type == "string") keys.push_back({"names"});
  if (type == "int" || type == "float" || type == "floats" || type == "bytes" || type == "duration")
    for (const char* limit : {"min", "max", "above"})
      keys.push_back({limit, type == "bytes" ? Type::bytes : Type::number});
  const Preset given = read_table(node, keys, where);
  option.help = text_in(given, "help");
  option.required = is_true(given, "required");
  option.json = given.count("json") ? texts_in(given, "json") : std::vector{key};
  option.json_none = text_in(given, "json_none");
  option.json_multiple = text_in(given, "json_multiple");
  option.adjustable = is_true(given, "adjustable");
  option.late = is_true(given, "late");
  option.per_group = is_true(given, "per_group");
  option.resume = text_in(given, "resume");
  option.min = limit_in(given, given.count("above") ? "above" : "min");
  option.above_min = given.count("above") > 0;
  option.max = limit_in(given, "max");
  need(!option.min || !option.max || *option.min <= *option.max, "{}: min is above max", where);
  option.choices = texts_in(given, "choices");
  option.names = text_in(given, "names");
  if (given.count("default")) option.fallback = given.at("default");
  const Misfit wrong = fit(option, option.fallback);
  need(!wrong.code, "{}: 'default' {}", where, wrong.text);
  need(!option.required || option.fallback.index() == 0, "{}: a required option has no default", where);
  return option;
}

}  // namespace

toml::table parse_toml(const std::string& text) {
  refuse_what_crashes(text);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw BadToml(std::string(error.description()), error.source().begin.line, error.source().begin.column);
  }
}

Value value_of(const toml::node& node, std::string& odd) {
  if (const auto* flag = node.as_boolean()) return **flag;
  if (const auto* whole = node.as_integer()) return **whole;
  if (const auto* number = node.as_floating_point()) return **number;
  if (const auto* text = node.as_string()) return **text;
  const toml::array* list = node.as_array();
  std::vector<std::string> texts;
  std::vector<double> numbers;
  Tables tables;
  for (std::size_t k = 0; list && k < list->size(); ++k) {
    if (const toml::table* table = list->get(k)->as_table()) {
      Table& one = tables.emplace_back();
      for (const auto& [key, inner] : *table) {
        one.values[std::string(key.str())] = value_of(inner, odd);
        if (!odd.empty()) {
          odd = fmt::format("a list of tables with {} in `{}`", odd, std::string(key.str()));
          return {};
        }
      }
    }
    if (const auto* text = list->get(k)->as_string()) texts.push_back(**text);
    if (list->get(k)->is_number()) numbers.push_back(list->get(k)->value_or(0.0));
  }
  if (list && texts.size() == list->size()) return texts;
  if (list && numbers.size() == list->size()) return numbers;
  if (list && tables.size() == list->size()) return tables;
  odd = list ? "a list of mixed or nested values" : node.is_table() ? "a table" : "a date or time";
  return {};
}

std::vector<std::pair<std::string, const toml::node*>> entries(const toml::node* node, const std::string& where) {
  need(node, "{} is missing", where);
  need(node->is_table(), "{} must be a table", where);
  std::vector<std::pair<toml::key, const toml::node*>> found;
  for (const auto& [key, value] : *node->as_table()) found.emplace_back(key, &value);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first.source().begin < b.first.source().begin; });
  return {found.begin(), found.end()};
}

Preset read_table(const toml::node* node, const Schema& schema, const std::string& where,
                  const std::set<std::string>& others) {
  Preset out;
  for (const auto& [key, child] : entries(node, where)) {
    if (others.count(key)) continue;
    const Option* option = find_option(schema, key);
    if (!option) {
      std::vector<std::string> known(others.begin(), others.end());
      for (const Option& one : schema) known.push_back(one.key);
      const auto near = nearest(key, known);
      throw std::runtime_error(
          fmt::format("{}: unknown key '{}'{}", where, key,
                      near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "))));
    }
    std::string odd;
    Value value = value_of(*child, odd);
    const Misfit wrong = odd.empty() ? fit(*option, value) : Misfit{"", "cannot be " + odd};
    need(!wrong.code, "{}: '{}' {}", where, key, wrong.text);
    out[key] = std::move(value);
  }
  for (const Option& option : schema) {
    const auto found = out.find(option.key);
    const bool there = found != out.end() && found->second != Value(std::string());
    need(there || !option.required, "{}: '{}' is missing", where, option.key);
  }
  return out;
}

std::string text_in(const Preset& table, const std::string& key) {
  return table.count(key) ? std::get<std::string>(table.at(key)) : "";
}

std::vector<std::string> texts_in(const Preset& table, const std::string& key) {
  const auto found = table.find(key);
  if (found == table.end()) return {};
  const auto* one = std::get_if<std::string>(&found->second);
  return one ? std::vector{*one} : std::get<std::vector<std::string>>(found->second);
}

Schema read_options(const toml::node* node, const std::string& where) {
  Schema out;
  for (const auto& [key, option] : entries(node, where))
    out.push_back(read_option(key, option, fmt::format("{} option '{}'", where, key)));
  return out;
}

bool is_word(const std::string& text, const std::string& more) {
  return !text.empty() && text.size() <= 100 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_" + more) == std::string::npos;
}

}  // namespace eng
