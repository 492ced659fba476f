// SPDX-License-Identifier: Apache-2.0
// Values against their schema, and sizes with units.
#include "core/config/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/config/config.hpp"
#include "core/config/names.hpp"

namespace eng {
namespace {

struct Unit {
  const char* name;
  int64_t bytes;
};
constexpr Unit units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", int64_t{1} << 10},
    {"MiB", int64_t{1} << 20},
    {"GiB", int64_t{1} << 30},
    {"TiB", int64_t{1} << 40},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
};

__extension__ using Wide = unsigned __int128;

bool digit(char c) {
  return c >= '0' && c <= '9';
}

const char* value_kind(const Value& value) {
  static const char* const names[] = {"nothing",  "a boolean",         "an integer",       "a number",
                                      "a string", "a list of strings", "a list of numbers"};
  return names[value.index()];
}

std::string short_text(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value); text && text->size() > 60)
    return fmt::format("a string of {} bytes", text->size());
  if (value.index() >= 5) return value_kind(value);
  return toml_text(value);
}

std::string number_text(double number) {
  std::string text = fmt::format("{}", number);
  if (const auto exponent = text.find('e'); exponent != std::string::npos) {
    // 3e-05 -> 3e-5
    std::size_t at = exponent + 1;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    while (at + 1 < text.size() && text[at] == '0') text.erase(at, 1);
  } else if (text.find_first_of(".n") == std::string::npos) {
    text += ".0";
  }
  return text;
}

// A limit as people write it: 1, not 1.0.
std::string limit_text(double limit, Type type) {
  if (type == Type::bytes && limit >= 1024) return format_bytes(limit);
  if (std::floor(limit) == limit && std::fabs(limit) < 1e16) return fmt::format("{}", static_cast<int64_t>(limit));
  return number_text(limit);
}

// An upper limit that is there only to keep arithmetic from overflowing is told to those who exceed it.
constexpr double technical_limit = 1e9;

std::string range_text(Option option) {
  if (option.min && option.max && *option.max >= technical_limit) option.max.reset();
  const auto low = option.min ? limit_text(*option.min, option.type) : "";
  const auto high = option.max ? limit_text(*option.max, option.type) : "";
  if (option.min && option.max && option.above_min) return "above " + low + " and at most " + high;
  if (option.min && option.max) return "between " + low + " and " + high;
  if (option.min) return (option.above_min ? "above " : "at least ") + low;
  if (option.max) return "at most " + high;
  return "";
}

bool in_range(const Option& option, double number) {
  if (!std::isfinite(number)) return false;
  if (option.min && (option.above_min ? !(number > *option.min) : number < *option.min)) return false;
  return !option.max || number <= *option.max;
}

std::string wrong_type(const Option& option, const Value& value) {
  if (option.type == Type::bytes)
    return "must be a size like \"64MiB\", \"24GB\" or a number of bytes, not " + short_text(value);
  const char* article = option.type == Type::integer ? "an " : "a ";
  std::string got = value.index() >= 5 ? value_kind(value) : fmt::format("{} {}", value_kind(value), short_text(value));
  return fmt::format("must be {}{}, not {}", article, type_name(option.type), got);
}

std::string check_number(const Option& option, double number, const std::string& written) {
  if (!std::isfinite(number)) return "must be a finite number, not " + written;
  if (option.max && number > *option.max && *option.max >= technical_limit)
    return fmt::format("must be at most {}, not {}", limit_text(*option.max, option.type), written);
  if (!in_range(option, number)) return fmt::format("must be {}, not {}", range_text(option), written);
  return "";
}

std::string quoted_choices(const std::vector<std::string>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += toml_text(choices[i]);
  }
  return text;
}

std::string check_choice(const Option& option, const std::string& text) {
  const auto& choices = option.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
  return fmt::format("must be {}, not {}", quoted_choices(choices), short_text(Value(text)));
}

}  // namespace

const char* type_name(Type type) {
  switch (type) {
    case Type::boolean:
      return "boolean";
    case Type::integer:
      return "integer";
    case Type::number:
      return "number";
    case Type::string:
      return "string";
    case Type::bytes:
      return "size";
    case Type::strings:
      return "list of strings";
    case Type::numbers:
      return "list of numbers";
  }
  return "value";
}

std::string describe(const Option& option) {
  std::string text = type_name(option.type);
  if (option.type == Type::boolean) text += ": true or false";
  if (!option.choices.empty()) text += ": " + quoted_choices(option.choices);
  if (const auto range = range_text(option); !range.empty()) text += ", " + range;
  return text;
}

std::string fit(const Option& option, Value& value) {
  if (std::holds_alternative<std::monostate>(value)) return "";
  const std::string mismatch = wrong_type(option, value);
  // An empty list has no element type of its own.
  const auto* texts = std::get_if<std::vector<std::string>>(&value);
  const auto* numbers = std::get_if<std::vector<double>>(&value);
  switch (option.type) {
    case Type::boolean:
      return std::holds_alternative<bool>(value) ? "" : mismatch;
    case Type::integer:
      if (const auto* whole = std::get_if<int64_t>(&value))
        return check_number(option, static_cast<double>(*whole), fmt::format("{}", *whole));
      return mismatch;
    case Type::number:
      if (const auto* whole = std::get_if<int64_t>(&value)) value = static_cast<double>(*whole);
      if (const auto* number = std::get_if<double>(&value)) return check_number(option, *number, number_text(*number));
      return mismatch;
    case Type::string:
      if (const auto* text = std::get_if<std::string>(&value)) return check_choice(option, *text);
      return mismatch;
    case Type::bytes: {
      std::string written = short_text(value);
      if (const auto* text = std::get_if<std::string>(&value)) {
        const auto bytes = parse_bytes(*text);
        if (!bytes) return mismatch;
        value = *bytes;
      }
      const auto* bytes = std::get_if<int64_t>(&value);
      if (!bytes) return mismatch;
      if (*bytes < 0) return "must not be negative";
      return check_number(option, static_cast<double>(*bytes), written);
    }
    case Type::strings:
      if (numbers && numbers->empty()) value = std::vector<std::string>{};
      if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
        for (const auto& text : *list)
          if (auto wrong = check_choice(option, text); !wrong.empty()) return "holds an element that " + wrong;
        return "";
      }
      return mismatch;
    case Type::numbers:
      if (texts && texts->empty()) value = std::vector<double>{};
      if (const auto* list = std::get_if<std::vector<double>>(&value)) {
        for (double number : *list)
          if (auto wrong = check_number(option, number, number_text(number)); !wrong.empty())
            return "holds an element that " + wrong;
        return "";
      }
      return mismatch;
  }
  return mismatch;
}

std::string toml_text(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string toml_text(const Value& value) {
  std::string out;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return fmt::format("{}", *whole);
  if (const auto* number = std::get_if<double>(&value)) return number_text(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return toml_text(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    for (const auto& text : *list) out += (out.empty() ? "" : ", ") + toml_text(text);
    return "[" + out + "]";
  }
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    for (double number : *list) out += (out.empty() ? "" : ", ") + number_text(number);
    return "[" + out + "]";
  }
  return "";
}

std::optional<int64_t> parse_bytes(const std::string& text) {
  constexpr auto limit = static_cast<Wide>(std::numeric_limits<int64_t>::max());
  Wide mantissa = 0, scale = 1;
  std::size_t at = 0;
  bool point = false, digits = false;
  for (; at < text.size() && (digit(text[at]) || text[at] == '.'); ++at) {
    if (text[at] == '.') {
      if (point || !digits) return std::nullopt;
      point = true;
      digits = false;  // one must follow
      continue;
    }
    digits = true;
    mantissa = mantissa * 10 + static_cast<unsigned>(text[at] - '0');
    if (point) scale *= 10;
    if (mantissa > limit || scale > limit) return std::nullopt;
  }
  if (!digits) return std::nullopt;
  if (at < text.size() && text[at] == ' ') ++at;
  const std::string name = text.substr(at);
  for (const Unit& unit : units) {
    if (name != unit.name) continue;
    // "0.3B" is no whole number of bytes. At most 2^63 * 2^40: no overflow.
    const Wide scaled = mantissa * static_cast<Wide>(unit.bytes);
    if (scaled % scale != 0 || scaled / scale > limit) return std::nullopt;
    return static_cast<int64_t>(scaled / scale);
  }
  return std::nullopt;
}

std::string format_bytes(double bytes) {
  static const char* const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (std::fabs(bytes) < 1024) return fmt::format("{:.0f} B", bytes);
  std::size_t unit = 0;
  bytes /= 1024;
  // 1023.96 would print as 1024.0.
  while (std::fabs(bytes) >= 1023.95 && unit + 1 < std::size(names)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", bytes, names[unit]);
}

}  // namespace eng
