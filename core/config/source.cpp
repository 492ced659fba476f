// SPDX-License-Identifier: Apache-2.0
#include "core/config/source.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

namespace eng {
namespace {

// The parser and its tables recurse once per part of a dotted key; sections need two.
constexpr std::size_t most_parts = 32;

Place place_of(const toml::source_region& region) {
  const auto &begin = region.begin, &end = region.end;
  const bool wide = end.line == begin.line && end.column > begin.column;
  return {begin.line, begin.column, wide ? end.column - begin.column : 1u, -1};
}

void take_array(const toml::array& array, Given& given) {
  std::vector<std::string> texts;
  std::vector<double> numbers;
  for (const auto& node : array) {
    if (const auto* text = node.as_string()) texts.push_back(**text);
    if (node.is_number())
      numbers.push_back(node.is_integer() ? static_cast<double>(**node.as_integer()) : **node.as_floating_point());
  }
  if (texts.size() == array.size())
    given.value = std::move(texts);
  else if (numbers.size() == array.size())
    given.value = std::move(numbers);
  else
    given.odd = "a list of mixed or nested values";
}

Given take(const toml::key& key, const toml::node& node) {
  Given given;
  given.key = place_of(key.source());
  given.place = place_of(node.source());
  node.visit([&](const auto& n) {
    using T = std::decay_t<decltype(n)>;
    if constexpr (toml::is_array<T>)
      take_array(n, given);
    else if constexpr (toml::is_string<T> || toml::is_boolean<T> || toml::is_number<T>)
      given.value = *n;
    else
      given.odd = toml::is_table<T> ? "a table" : "a date or time";
  });
  return given;
}

void take_table(const toml::table& table, Document& document, Problems& problems) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    Place at = place_of(key.source());
    at.length = std::max(at.length, printable(name).size());
    if (node.is_array_of_tables()) {
      problems.add({"E0102", fmt::format("`[[{}]]` is a list of sections", printable(name)), at,
                    fmt::format("write [{}], with single brackets", printable(name))});
    } else if (const toml::table* section = node.as_table()) {
      auto& part = document.parts[name];
      part.header = at;
      for (const auto& [inner, value] : *section) part.keys[std::string(inner.str())] = take(inner, value);
    } else {
      document.loose[name] = take(key, node);
    }
  }
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

Problem syntax_problem(const toml::parse_error& error, const std::string& line) {
  Problem problem{"E0101", fmt::format("not valid TOML: {}", printable(std::string(error.description()))),
                  place_of(error.source())};
  const auto equals = line.find('=');
  const std::string value =
      equals == std::string::npos ? "" : trimmed(line.substr(equals + 1, line.find('#') - equals - 1));
  if (!value.empty() && value.size() < 80 && value.find_first_of("\"'[]{},\t") == std::string::npos)
    problem.help =
        "text and sizes need quotes: " + printable(line.substr(0, equals + 1)) + " " + toml_text(printable(value));
  return problem;
}

// One value as TOML; what is none is a text. `wrong` says so of what must be TOML: lists, tables, quoted text.
Given read_value(const std::string& text, std::string& wrong) {
  Given given;
  given.value = text;
  if (text.find_first_of("\r\n") == std::string::npos && !forbidden_toml("v = " + text)) {
    try {
      const toml::table table = toml::parse("v = " + text + "\n");
      given = take(table.begin()->first, table.begin()->second);
    } catch (const toml::parse_error& error) {
      if (std::string("[{\"'").find(text[0]) != std::string::npos) wrong = printable(std::string(error.description()));
    }
  }
  given.text = text;
  return given;
}

void take_override(const std::string& text, const Place& at, Document& document, Problems& problems) {
  const auto equals = std::min(text.find('='), text.size());
  const std::string left = trimmed(text.substr(0, equals));
  const std::string right = trimmed(text.substr(std::min(equals + 1, text.size())));
  const auto dot = left.find('.');
  const std::string section = left.substr(0, dot), key = dot == std::string::npos ? "" : left.substr(dot + 1);
  std::string wrong = right.empty() ? "no value" : "";
  Given given = read_value(right, wrong);
  given.key = given.place = at;
  if (equals == text.size() || section.empty() || key.find('.') != std::string::npos || left.back() == '.')
    problems.add({"E0114", "an override is section.key=value", at, "for example train.steps=10"});
  else if (!wrong.empty())
    problems.add(
        {"E0114", "not valid TOML: " + wrong, at, "the shell takes one pair of quotes: '" + printable(text) + "'"});
  else
    (key.empty() ? document.loose[left] : document.parts[section].keys[key]) = std::move(given);
  document.defaults.erase(left);
}

// Takes [resolved] out; anything else in it is of a section that there is not.
void take_defaults(Document& document) {
  const Given* given = document.find("resolved", "defaults");
  const auto* list = given ? std::get_if<std::vector<std::string>>(&given->value) : nullptr;
  if (!list) return;
  document.defaults.insert(list->begin(), list->end());
  if (document.parts["resolved"].keys.size() == 1) document.parts.erase("resolved");
}

}  // namespace

std::optional<Problem> forbidden_toml(const std::string& text) {
  std::size_t parts = 1, i = text.compare(0, 3, "\xef\xbb\xbf") == 0 ? 3 : 0;
  const auto refuse = [&, mark = i](const std::string& message, const char* help) {
    Place at{1, 1, 1, -1};
    for (std::size_t k = mark; k < i; ++k) {
      at.column = text[k] == '\n' ? 1 : at.column + ((static_cast<unsigned char>(text[k]) & 0xc0) != 0x80 ? 1 : 0);
      at.line += text[k] == '\n' ? 1 : 0;
    }
    return Problem{"E0101", message, at, help};
  };
  std::string quote;  // what ends the string we are in; one that does not end is the parser's to tell
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (!quote.empty()) {
      if (c == '\\' && quote[0] == '"') {
        ++i;
      } else if (text.compare(i, quote.size(), quote) == 0) {
        i += quote.size() - 1;
        // Up to two quotes may stand before the closing three.
        for (int extra = 0; quote.size() == 3 && extra < 2 && i + 1 < text.size() && text[i + 1] == c; ++extra) ++i;
        quote.clear();
      }
    } else if (c == '"' || c == '\'') {
      quote = text.compare(i, 3, std::string(3, c)) == 0 ? std::string(3, c) : std::string(1, c);
      i += quote.size() - 1;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '.' && ++parts > most_parts) {
      return refuse(fmt::format("a key of more than {} parts", most_parts),
                    "sections have one level: [train], then steps = 10");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      return refuse("not valid TOML: a character outside ASCII, or not UTF-8, outside of quotes",
                    "text needs quotes: \"...\"");
    } else if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) {
      parts = 1;
    }
  }
  return std::nullopt;
}

const Document::Part* Document::find(const std::string& section) const {
  const auto part = parts.find(section);
  return part == parts.end() ? nullptr : &part->second;
}

const Given* Document::find(const std::string& section, const std::string& key) const {
  const Part* part = find(section);
  return part && part->keys.count(key) ? &part->keys.at(key) : nullptr;
}

Document read_document(const std::string& text, const std::vector<std::string>& overrides, Problems& problems) {
  Document document;
  std::optional<Problem> problem = forbidden_toml(text);
  if (text.size() > max_config_bytes) problem = Problem{"E0116", "too large for a configuration"};
  try {
    if (!problem) take_table(toml::parse(text), document, problems);
  } catch (const toml::parse_error& error) {
    problem = syntax_problem(error, problems.line(error.source().begin.line));
  }
  if (problem) {
    problems.add(std::move(*problem));
    return document;
  }
  take_defaults(document);
  for (std::size_t i = 0; i < overrides.size(); ++i)
    take_override(overrides[i], {0, 0, 1, static_cast<int>(i)}, document, problems);
  return document;
}

}  // namespace eng
