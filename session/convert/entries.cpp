// SPDX-License-Identifier: Apache-2.0
#include "session/convert/entries.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/base/text.hpp"
#include "session/config/spelling.hpp"

namespace eng::converter {
namespace {

Entry entry_of(const Json& json, const std::string& origin) {
  Entry out{{}, "", origin};
  if (json.is_boolean()) {
    out.value = json.boolean();
  } else if (json.is_integer()) {
    if (json.is_unsigned() && json.whole() > uint64_t{INT64_MAX})
      out.odd = "a whole number of 2^63 or more";
    else
      out.value = json.integer();
  } else if (json.is_number()) {
    out.value = json.number();
  } else if (json.is_string()) {
    out.value = json.text();
  } else if (json.is_array()) {
    std::vector<std::string> texts;
    std::vector<double> numbers;
    for (const Json& item : json.list()) {
      if (item.is_string()) texts.push_back(item.text());
      if (item.is_number()) numbers.push_back(item.number());
    }
    if (texts.size() == json.size())
      out.value = std::move(texts);
    else if (numbers.size() == json.size())
      out.value = std::move(numbers);
    else
      out.odd = "a list of mixed or nested values";
  }
  return out;
}

}  // namespace

const Entry* Entries::find(const std::string& name) const {
  const auto found = all.find(name);
  const bool there = found != all.end() && (found->second.value.index() || !found->second.odd.empty());
  return there ? &found->second : nullptr;
}

const Entry* Entries::take(const std::string& name) {
  const auto found = all.find(name);
  if (found != all.end()) found->second.used = true;
  return find(name);
}

bool Entries::has_section(const std::string& name) const {
  const auto next = all.lower_bound(name + ".");
  return next != all.end() && next->first.starts_with(name + ".");
}

std::optional<bool> Entries::flag(const std::string& name) {
  const Entry* entry = find(name);
  return entry ? as_flag(entry->value) : std::nullopt;
}

void flatten(const Json& value, const std::string& name, Entries& out) {
  const std::string below = name.empty() ? "" : name + ".";
  const auto nested = [](const Json& item) { return item.is_object() || item.is_array(); };
  if (value.is_object()) {
    for (const auto& member : value.members()) flatten(member.value, below + member.key, out);
    if (value.size() == 0 && !name.empty()) out.all[name] = Entry{{}, "", name};
  } else if (value.is_array() && std::any_of(value.list().begin(), value.list().end(), nested)) {
    for (std::size_t k = 0; k < value.size(); ++k) flatten(value[k], below + std::to_string(k), out);
  } else {
    out.all[name] = entry_of(value, name);
  }
}

bool Entries::drop(const std::string& name) {
  bool any = all.erase(name) > 0;
  for (auto next = all.lower_bound(name + "."); next != all.end() && next->first.starts_with(name + ".");) {
    next = all.erase(next);
    any = true;
  }
  return any;
}

Value value_of_word(const std::string& word) {
  const std::string small = lower_case(word);
  if (small == "true" || small == "false") return small == "true";
  if (word.find_first_of("0123456789") > 2) return word;  // also "nan" and "inf", which are no numbers here
  // Python's numbers may have a plus, and _ between digits.
  std::string digits = word[0] == '+' ? word.substr(1) : word;
  for (std::size_t k = 1; k + 1 < digits.size(); ++k)
    if (digits[k] == '_' && std::isdigit(static_cast<unsigned char>(digits[k - 1])) &&
        std::isdigit(static_cast<unsigned char>(digits[k + 1])))
      digits.erase(k--, 1);
  const char *begin = digits.data(), *end = begin + digits.size();
  int64_t whole = 0;
  double number = 0;
  if (const auto [stop, error] = std::from_chars(begin, end, whole); error == std::errc() && stop == end) return whole;
  if (const auto [stop, error] = std::from_chars(begin, end, number);
      error == std::errc() && stop == end && std::isfinite(number))
    return number;
  return word;
}

std::string shown(const Entry& entry) {
  if (!entry.odd.empty()) return entry.odd;
  return entry.value.index() ? printable(toml_text(entry.value), 100) : "null";
}

std::optional<bool> as_flag(const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  const std::string word = lower_case(as_text(value));
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::optional<int64_t> as_whole(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  const auto* number = std::get_if<double>(&value);
  if (number && std::abs(*number) < 0x1p62 && std::floor(*number) == *number) return static_cast<int64_t>(*number);
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

std::string as_text(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text ? *text : "";
}

}  // namespace eng::converter
