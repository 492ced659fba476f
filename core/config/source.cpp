// SPDX-License-Identifier: Apache-2.0
#include "core/config/source.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "core/config/config.hpp"
#include "core/config/names.hpp"

namespace eng {
namespace {

// The parser and its tables recurse once per part of a dotted key; sections need two.
constexpr std::size_t most_parts = 32;

Place place_of(const toml::source_region& region) {
  Place place{region.begin.line, region.begin.column, 1, -1};
  if (region.end.line == region.begin.line && region.end.column > region.begin.column)
    place.length = region.end.column - region.begin.column;
  return place;
}

void take_array(const toml::array& array, Given& given) {
  const auto all = [&](auto is) { return std::all_of(array.begin(), array.end(), is); };
  if (all([](const toml::node& node) { return node.is_string(); })) {
    std::vector<std::string> list;
    for (const auto& node : array) list.push_back(**node.as_string());
    given.value = std::move(list);
  } else if (all([](const toml::node& node) { return node.is_number(); })) {
    std::vector<double> list;
    for (const auto& node : array) list.push_back(node.value<double>().value_or(0));
    given.value = std::move(list);
  } else {
    given.odd = "a list of mixed or nested values";
  }
}

Given take(const toml::key& key, const toml::node& node) {
  Given given;
  given.key = place_of(key.source());
  given.place = place_of(node.source());
  if (const auto* flag = node.as_boolean())
    given.value = **flag;
  else if (const auto* whole = node.as_integer())
    given.value = **whole;
  else if (const auto* number = node.as_floating_point())
    given.value = **number;
  else if (const auto* text = node.as_string())
    given.value = **text;
  else if (const auto* array = node.as_array())
    take_array(*array, given);
  else
    given.odd = node.is_table() ? "a table" : "a date or time";
  return given;
}

void take_table(const toml::table& table, Document& document, Problems& problems) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const toml::table* section = node.as_table();
    if (!section) {
      if (node.is_array_of_tables()) {
        Place at = place_of(key.source());
        at.length = printable(name).size();
        problems.add({"E0102", fmt::format("`[[{0}]]` is a list of sections", printable(name)), at, "",
                      fmt::format("write [{}], with single brackets", printable(name)), ""});
        continue;
      }
      document.loose[name] = take(key, node);
      continue;
    }
    auto& part = document.parts[name];
    part.header = place_of(key.source());
    if (part.header.length == 1) part.header.length = name.size();
    for (const auto& [inner, value] : *section) part.keys[std::string(inner.str())] = take(inner, value);
  }
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

void tell_syntax(const toml::parse_error& error, Problems& problems) {
  Problem problem{"E0101", "", place_of(error.source()), "", "", ""};
  const std::string text(error.description());
  const std::string line = problems.line(problem.at.line);
  const auto equals = line.find('=');
  const std::string key = equals == std::string::npos ? "" : trimmed(line.substr(0, equals));
  const std::string value = equals == std::string::npos ? "" : trimmed(line.substr(equals + 1));
  if (const auto at = text.find("cannot redefine existing"); at != std::string::npos) {
    problem.code = "E0109";
    const auto quote = text.find('\'', at);
    const std::string name =
        printable(quote == std::string::npos ? key : text.substr(quote + 1, text.rfind('\'') - quote - 1));
    const bool header = text.find("table header") != std::string::npos;
    problem.message =
        header ? fmt::format("section [{}] is there twice", name) : fmt::format("`{}` is there twice", name);
    problem.help = header ? "merge the two sections" : "remove one of the two lines";
    if (const auto first = line.find_first_not_of(" \t"); first != std::string::npos) {
      problem.at.column = first + 1;
      problem.at.length = header ? trimmed(line).size() : std::max<std::size_t>(key.size(), 1);
    }
  } else {
    problem.message = "not valid TOML: " + printable(text);
    const bool bare = !value.empty() && std::string("\"'[{#").find(value[0]) == std::string::npos;
    const bool control = value.find_first_of("\"'[]{},\t") != std::string::npos;
    if (bare && !control && value.size() < 80 && text.find("utf-8") == std::string::npos)
      problem.help = fmt::format("text and sizes need quotes: {} = {}", printable(key),
                                 toml_text(trimmed(value.substr(0, value.find('#')))));
  }
  problems.add(std::move(problem));
}

// The right side of an override. `wrong` says what is wrong with it.
Given override_value(const std::string& text, std::string& wrong) {
  Given given;
  given.text = text;
  if (text.find_first_of("\r\n") == std::string::npos && !forbidden_toml("v = " + text)) {
    try {
      const toml::table table = toml::parse("v = " + text + "\n");
      given = take(table.begin()->first, table.begin()->second);
      given.text = text;
      return given;
    } catch (const toml::parse_error& error) {
      if (std::string("[{\"'").find(text[0]) != std::string::npos) {
        wrong = printable(std::string(error.description()));
        return given;
      }
    }
  }
  given.value = text;
  return given;
}

void take_override(const std::string& text, int index, Document& document, Problems& problems) {
  const Place at{0, 0, 1, index};
  const auto refuse = [&](const std::string& message, const std::string& help) {
    problems.add({"E0114", message, at, "", help, ""});
  };
  const auto equals = text.find('=');
  const std::string left = trimmed(text.substr(0, equals));
  const auto dot = left.find('.');
  if (equals == std::string::npos || left.empty())
    return refuse("an override is section.key=value", "for example train.steps=10");
  if (dot == std::string::npos) {
    std::string owner;
    for (const auto& schema : section_schemas())
      for (const auto& option : schema.options)
        if (option.key == left && owner.empty()) owner = schema.name;
    if (const Foreign* other = foreign_key(left); owner.empty() && other)
      return refuse(fmt::format("override `{}` names no section", printable(left)),
                    fmt::format("did you mean {}={}?", other->here, printable(text.substr(equals + 1))));
    return refuse(fmt::format("override `{}` names no section", printable(left)),
                  fmt::format("write {}.{}={}", owner.empty() ? "SECTION" : owner, printable(left),
                              printable(text.substr(equals + 1))));
  }
  const std::string section = left.substr(0, dot), key = left.substr(dot + 1);
  if (section.empty() || key.empty() || key.find('.') != std::string::npos)
    return refuse("an override is section.key=value", "for example train.steps=10");
  const std::string right = trimmed(text.substr(equals + 1));
  if (right.empty())
    return refuse(fmt::format("`{}` gets no value", printable(left)),
                  fmt::format("for an empty text write {}='\"\"'", printable(left)));
  std::string wrong;
  Given given = override_value(right, wrong);
  if (!wrong.empty())
    return refuse("not valid TOML: " + wrong, "the shell takes one pair of quotes: '" + printable(text) + "'");
  given.key = given.place = at;
  document.parts[section].keys[key] = std::move(given);
  document.defaults.erase(left);
}

// Reads and removes [resolved].
void take_defaults(Document& document, Problems& problems) {
  const auto part = document.parts.find("resolved");
  if (part == document.parts.end()) return;
  for (auto& [key, given] : part->second.keys) {
    const auto* list = std::get_if<std::vector<std::string>>(&given.value);
    const bool empty = std::holds_alternative<std::vector<double>>(given.value);
    if (key == "defaults" && (list || empty)) {
      if (list) document.defaults.insert(list->begin(), list->end());
      continue;
    }
    problems.add({"E0103", fmt::format("unknown key `{}` in [resolved]", printable(key)), given.key, "",
                  "[resolved] is written by the engine and has one key: defaults, a list of \"section.key\"", ""});
  }
  document.parts.erase(part);
}

}  // namespace

std::optional<Problem> forbidden_toml(const std::string& text) {
  const auto refuse = [](std::size_t line, std::size_t column, const std::string& message, const char* help) {
    return Problem{"E0101", message, Place{line, column, 1, -1}, "", help, ""};
  };
  std::size_t parts = 1, line = 1, column = 0;
  char quote = 0;
  bool triple = false;
  const std::size_t mark = text.compare(0, 3, "\xef\xbb\xbf") == 0 ? 3 : 0;
  for (std::size_t i = mark; i < text.size(); ++i) {
    const char c = text[i];
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) ++column;
    if (c == '\n') {
      ++line;
      column = 0;
      if (!triple) quote = 0;  // an unfinished string is the parser's to tell
      if (!quote) parts = 1;
      continue;
    }
    const bool three = (c == '"' || c == '\'') && i + 2 < text.size() && text[i + 1] == c && text[i + 2] == c;
    if (quote) {
      if (c == '\\' && quote == '"') {
        if (i + 1 < text.size() && text[i + 1] != '\n') {
          ++i;
          ++column;
        }
      } else if (c == quote && (!triple || three)) {
        if (triple) i += 2, column += 2;
        // Up to two quotes may stand before the closing three.
        for (int extra = 0; triple && extra < 2 && i + 1 < text.size() && text[i + 1] == c; ++extra) ++i, ++column;
        quote = 0;
        triple = false;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      triple = three;
      if (three) i += 2, column += 2;
    } else if (c == '#') {
      const auto end = text.find('\n', i);
      if (end == std::string::npos) break;
      i = end - 1;
    } else if (c == '.') {
      if (++parts > most_parts)
        return refuse(line, column, fmt::format("a key of more than {} parts", most_parts),
                      "sections have one level: [train], then steps = 10");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      return refuse(line, column, "not valid TOML: a character outside ASCII, or not UTF-8, outside of quotes",
                    "text needs quotes: \"...\"");
    } else if (c == '=' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}') {
      parts = 1;
    }
  }
  return std::nullopt;
}

const Given* Document::find(const std::string& section, const std::string& key) const {
  const auto part = parts.find(section);
  if (part == parts.end()) return nullptr;
  const auto found = part->second.keys.find(key);
  return found == part->second.keys.end() ? nullptr : &found->second;
}

Document read_document(const std::string& text, const std::vector<std::string>& overrides, Problems& problems) {
  Document document;
  if (text.size() > max_config_bytes) {
    problems.add({"E0116",
                  fmt::format("{} is too large for a configuration: {}", problems.name(),
                              format_bytes(static_cast<double>(text.size()))),
                  {},
                  "",
                  fmt::format("at most {} are read; is this the right file?", format_bytes(max_config_bytes)),
                  ""});
    return document;
  }
  if (auto problem = forbidden_toml(text)) {
    problems.add(std::move(*problem));
    return document;
  }
  try {
    take_table(toml::parse(text), document, problems);
  } catch (const toml::parse_error& error) {
    tell_syntax(error, problems);
    return document;
  }
  take_defaults(document, problems);
  for (std::size_t i = 0; i < overrides.size(); ++i)
    take_override(overrides[i], static_cast<int>(i), document, problems);
  return document;
}

}  // namespace eng
