// SPDX-License-Identifier: Apache-2.0
#include "session/config/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace eng {
namespace {

constexpr std::pair<std::string_view, int64_t> byte_units[] = {
    {"", 1},      {"B", 1},     {"KiB", 1LL << 10}, {"MiB", 1LL << 20}, {"GiB", 1LL << 30},   {"TiB", 1LL << 40},
    {"kB", 1000}, {"KB", 1000}, {"MB", 1000000},    {"GB", 1000000000}, {"TB", 1000000000000}};

// Per Type: its name, and its index in Value.
constexpr const char* type_names[] = {"boolean",
                                      "integer",
                                      "number",
                                      "string",
                                      "size like \"64MiB\" or \"24GB\"",
                                      "list of strings",
                                      "list of numbers",
                                      "duration like \"90s\" or \"10min\"",
                                      "list of tables"};
constexpr std::size_t value_indices[] = {1, 2, 3, 4, 2, 5, 6, 3, 7};

std::size_t value_index(Type type) {
  return value_indices[static_cast<std::size_t>(type)];
}

const char* type_name(Type type) {
  return type_names[static_cast<std::size_t>(type)];
}

std::string range_text(const Option& option) {
  const auto limit = [&](double n) { return option.type == Type::bytes ? format_bytes(n) : fmt::format("{:.16g}", n); };
  if (!option.min) return option.max ? "at most " + limit(*option.max) : "";
  return (option.above_min ? "above " : "at least ") + limit(*option.min) +
         (option.max ? ", at most " + limit(*option.max) : "");
}

std::vector<double> numbers_in(const Value& value) {
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return *list;
  if (const auto* number = std::get_if<double>(&value)) return {*number};
  if (const auto* whole = std::get_if<int64_t>(&value)) return {static_cast<double>(*whole)};
  return {};
}

std::string toml_number(double number) {
  const std::string text = fmt::format("{}", number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // 1e+100, nan, inf
}

}  // namespace

const Option* find_option(const Schema& schema, const std::string& key) {
  const auto found = std::find_if(schema.begin(), schema.end(), [&](const Option& o) { return o.key == key; });
  return found == schema.end() ? nullptr : &*found;
}

// The type, with the words that may stand in place of an amount.
static std::string type_text(const Option& option) {
  std::string text = type_name(option.type);
  if (option.type == Type::bytes)
    for (const std::string& word : option.choices) text += ", or " + toml_text(word);
  return text;
}

std::string describe(const Option& option) {
  std::string text = type_text(option);
  if (option.type != Type::bytes)
    for (const std::string& choice : option.choices)
      text += (&choice == &option.choices.front() ? ": " : ", ") + toml_text(choice);
  const std::string range = range_text(option);
  return text + (range.empty() ? "" : ", " + range);
}

Misfit fit(const Option& option, Value& value) {
  if (value.index() == 0) return {};
  const bool list = value.index() >= value_index(Type::strings);
  const std::string written = kind_of(value) + (list ? "" : " " + toml_text(value));
  const auto* text = std::get_if<std::string>(&value);
  const Type type = option.type;
  if (text && type == Type::bytes && std::count(option.choices.begin(), option.choices.end(), *text)) return {};
  const bool real = type == Type::number || type == Type::duration;
  if (const auto* whole = std::get_if<int64_t>(&value); whole && real) value = double(*whole);
  if (const auto bytes = text && type == Type::bytes ? parse_bytes(*text) : std::nullopt) value = *bytes;
  if (const auto seconds = text && type == Type::duration ? parse_duration(*text) : std::nullopt) value = *seconds;
  // An empty list has no element type of its own.
  if (type == Type::numbers && value == Value(std::vector<std::string>{})) value = std::vector<double>{};
  if (type == Type::tables && value == Value(std::vector<std::string>{})) value = Tables{};
  if (value.index() != value_index(type))
    return {"E0104", fmt::format("must be of type {}, not {}", type_text(option), written)};
  for (const double number : numbers_in(value)) {
    const bool low = option.min && (option.above_min ? number <= *option.min : number < *option.min);
    const bool high = option.max && number > *option.max, negative = type == Type::bytes && number < 0;
    const std::string be = !std::isfinite(number) ? "finite" : negative ? "at least 0" : range_text(option);
    if (low || high || negative || !std::isfinite(number))
      return {"E0106", fmt::format("must be {}, not {}", be, written)};
  }
  // Plugins get C strings: everything after a zero byte would be lost silently.
  text = std::get_if<std::string>(&value);  // again: a size or a duration is no text any more
  const auto* texts = std::get_if<std::vector<std::string>>(&value);
  const auto cut = [](const std::string& one) { return one.find('\0') != std::string::npos; };
  if ((text && cut(*text)) || (texts && std::any_of(texts->begin(), texts->end(), cut)))
    return {"E0104", fmt::format("must not contain the character U+0000, but {} does", toml_text(value))};
  const auto& choices = option.choices;
  if (type == Type::string && !choices.empty() && std::count(choices.begin(), choices.end(), *text) == 0)
    return {"E0107", fmt::format("must be one of its choices, not {}", written)};
  return {};
}

std::string toml_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += c == '\n' ? "\\n" : fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return "\"" + out + "\"";
}

std::string toml_text(const Value& value) {
  std::vector<std::string> items;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&value)) return toml_number(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return toml_text(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value))
    for (const std::string& text : *list) items.push_back(toml_text(text));
  for (const double number : numbers_in(value)) items.push_back(toml_number(number));
  if (const auto* tables = std::get_if<Tables>(&value))
    for (const Table& table : *tables) {
      std::vector<std::string> keys;
      for (const auto& [key, one] : table.values) keys.push_back(fmt::format("{} = {}", key, toml_text(one)));
      items.push_back(fmt::format("{{{}}}", fmt::join(keys, ", ")));
    }
  return value.index() == 0 ? "" : fmt::format("[{}]", fmt::join(items, ", "));
}

std::optional<int64_t> parse_bytes(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  int64_t exact = 0;
  const bool integer = std::from_chars(text.data(), text.data() + end, exact).ptr == text.data() + end;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + end, number, std::chars_format::fixed);
  const bool digits = error == std::errc() && stop == text.data() + end && text[0] != '.' && text[end - 1] != '.';
  const std::string unit = text.substr(end + (text[end] == ' ' ? 1 : 0));
  for (const auto& [name, bytes] : byte_units) {
    const double all = number * static_cast<double>(bytes);
    const bool whole = bytes > 1 || std::floor(number) == number;  // no "0.3B"
    if (digits && whole && unit == name && all < 0x1p63) return integer ? exact * bytes : std::llround(all);
  }
  return std::nullopt;
}

std::optional<double> parse_duration(const std::string& text) {
  static constexpr std::pair<std::string_view, double> spans[] = {
      {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"m", 60}, {"h", 3600}, {"d", 86400.0}, {"", 1}};
  double total = 0, number = 0;
  std::string_view left = text;
  while (!left.empty()) {
    const auto [next, error] =
        std::from_chars(left.data(), left.data() + left.size(), number, std::chars_format::fixed);
    if (error != std::errc() || !(number >= 0) || !std::isfinite(number)) return std::nullopt;
    left.remove_prefix(static_cast<std::size_t>(next - left.data()));
    const std::size_t end = std::min(left.find_first_of("0123456789"), left.size());
    const auto* span =
        std::find_if(std::begin(spans), std::end(spans), [&](const auto& s) { return s.first == left.substr(0, end); });
    if (span == std::end(spans)) return std::nullopt;
    total += number * span->second;
    left.remove_prefix(end);
  }
  return text.empty() || !std::isfinite(total) ? std::nullopt : std::optional(total);
}

}  // namespace eng
