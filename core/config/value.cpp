// SPDX-License-Identifier: Apache-2.0
#include "core/config/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace eng {
namespace {

constexpr std::pair<std::string_view, int64_t> units[] = {
    {"", 1},      {"B", 1},     {"KiB", 1LL << 10}, {"MiB", 1LL << 20}, {"GiB", 1LL << 30},   {"TiB", 1LL << 40},
    {"kB", 1000}, {"KB", 1000}, {"MB", 1000000},    {"GB", 1000000000}, {"TB", 1000000000000}};

std::string number_text(double number) {
  const std::string text = fmt::format("{}", number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // 1e+100, nan, inf
}

std::string range_text(const Option& option) {
  const auto limit = [&](double n) { return option.type == Type::bytes ? format_bytes(n) : fmt::format("{:.16g}", n); };
  if (!option.min) return option.max ? "at most " + limit(*option.max) : "";
  return (option.above_min ? "above " : "at least ") + limit(*option.min) +
         (option.max ? ", at most " + limit(*option.max) : "");
}

constexpr const char* kinds[] = {"nothing", "boolean",         "integer",         "number",
                                 "string",  "list of strings", "list of numbers", "size like \"64MiB\" or \"24GB\""};
constexpr std::size_t holds[] = {1, 2, 3, 4, 2, 5, 6};  // the index in Value of every Type

const char* type_name(Type type) {
  return kinds[type == Type::bytes ? 7 : holds[static_cast<std::size_t>(type)]];
}

}  // namespace

const char* kind_of(const Value& value) {
  return kinds[value.index()];
}

std::string describe(const Option& option) {
  std::string text = type_name(option.type);
  for (const std::string& choice : option.choices)
    text += (&choice == &option.choices.front() ? ": " : ", ") + toml_text(choice);
  const std::string range = range_text(option);
  return text + (range.empty() ? "" : ", " + range);
}

Misfit fit(const Option& option, Value& value) {
  if (value.index() == 0) return {};
  const std::string written =
      value.index() < 5 ? fmt::format("{} {}", kind_of(value), toml_text(value)) : kind_of(value);
  const Type type = option.type;
  if (const auto* whole = std::get_if<int64_t>(&value); whole && type == Type::number) value = double(*whole);
  if (const auto* text = std::get_if<std::string>(&value); text && type == Type::bytes)
    if (const auto bytes = parse_bytes(*text)) value = *bytes;
  // An empty list has no element type of its own.
  if (type == Type::numbers && value == Value(std::vector<std::string>{})) value = std::vector<double>{};
  if (value.index() != holds[static_cast<std::size_t>(type)])
    return {"E0104", fmt::format("must be of type {}, not {}", type_name(type), written)};
  std::vector<double> numbers;
  if (const auto* list = std::get_if<std::vector<double>>(&value)) numbers = *list;
  if (const auto* number = std::get_if<double>(&value)) numbers = {*number};
  if (const auto* whole = std::get_if<int64_t>(&value)) numbers = {static_cast<double>(*whole)};
  for (const double number : numbers) {
    const bool low = option.min && (option.above_min ? number <= *option.min : number < *option.min);
    const bool high = option.max && number > *option.max, negative = type == Type::bytes && number < 0;
    const std::string be = !std::isfinite(number) ? "finite" : negative ? "at least 0" : range_text(option);
    if (low || high || negative || !std::isfinite(number))
      return {"E0106", fmt::format("must be {}, not {}", be, written)};
  }
  const auto* text = std::get_if<std::string>(&value);
  if (text && !option.choices.empty() &&
      std::find(option.choices.begin(), option.choices.end(), *text) == option.choices.end())
    return {"E0107", fmt::format("must be one of its choices, not {}", written)};
  return {};
}

std::string toml_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return "\"" + out + "\"";
}

std::string toml_text(const Value& value) {
  std::string out;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* number = std::get_if<double>(&value)) return number_text(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return toml_text(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value))
    for (const auto& text : *list) out += (out.empty() ? "" : ", ") + toml_text(text);
  if (const auto* list = std::get_if<std::vector<double>>(&value))
    for (const double number : *list) out += (out.empty() ? "" : ", ") + number_text(number);
  return value.index() == 0 ? "" : "[" + out + "]";
}

std::optional<int64_t> parse_bytes(const std::string& text) {
  __extension__ using Wide = unsigned __int128;
  constexpr auto limit = static_cast<Wide>(std::numeric_limits<int64_t>::max());
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::size_t dot = std::min(text.find('.'), end);
  if (dot == 0 || dot + 1 == end || text.find('.', dot + 1) < end) return std::nullopt;
  Wide mantissa = 0, scale = 1;
  for (std::size_t i = 0; i < end; ++i) {
    if (i == dot) continue;
    mantissa = mantissa * 10 + static_cast<unsigned>(text[i] - '0');
    if (i > dot) scale *= 10;
    if (mantissa > limit || scale > limit) return std::nullopt;
  }
  const std::size_t at = end + (end < text.size() && text[end] == ' ' ? 1 : 0);
  for (const auto& [name, bytes] : units) {
    if (text.substr(at) != name) continue;
    const Wide scaled = mantissa * static_cast<Wide>(bytes);                 // at most 2^63 * 2^40: no overflow
    if (scaled % scale != 0 || scaled / scale > limit) return std::nullopt;  // "0.3B" is no whole number
    return static_cast<int64_t>(scaled / scale);
  }
  return std::nullopt;
}

std::string format_bytes(double bytes) {
  if (std::fabs(bytes) < 1024) return fmt::format("{:.0f} B", bytes);
  const char* prefix = "KMGTPE";
  // 1023.96 would print as 1024.0.
  for (bytes /= 1024; std::fabs(bytes) >= 1023.95 && prefix[1] != '\0'; ++prefix) bytes /= 1024;
  return fmt::format("{:.1f} {}iB", bytes, *prefix);
}

}  // namespace eng
