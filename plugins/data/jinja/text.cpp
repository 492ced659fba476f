// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "../utf8.hpp"

namespace jinja {
namespace {

char32_t code_of(std::string_view character) {
  bool valid = false;
  std::size_t n = text_data::utf8_length(character, &valid);
  return valid ? text_data::utf8_decode(character, &n) : 0xfffd;
}

// One character in another case, as Python has it: some become two.
void put_upper(std::string& out, std::string_view character) {
  const char32_t code = code_of(character);
  if (code == 0xdf)
    out += "SS";
  else if (code == 0xfffd)
    out += character;
  else
    text_data::utf8_append(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
}

void put_lower(std::string& out, std::string_view character) {
  const char32_t code = code_of(character);
  if (code == 0xfffd)
    out += character;
  else
    text_data::utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

template <class Put>
std::string each_character(std::string_view text, const Put& put) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view one = character_at(text, at);
    put(out, one);
    at += one.size();
  }
  return out;
}

// The shortest digits that give the same number, as repr(float).
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::scientific).ptr;
  const std::string_view all(digits, static_cast<std::size_t>(end - digits));
  const std::size_t e = all.find('e');
  const int exponent = std::stoi(std::string(all.substr(e + 1)));
  std::string mantissa(all.substr(0, e));
  const bool negative = mantissa[0] == '-';
  if (negative) mantissa.erase(0, 1);
  mantissa.erase(std::remove(mantissa.begin(), mantissa.end(), '.'), mantissa.end());
  const auto size = static_cast<int>(mantissa.size());
  std::string out;
  if (exponent < -4 || exponent >= 16) {
    out = mantissa.substr(0, 1) + (size > 1 ? "." + mantissa.substr(1) : "");
    char power[16];
    std::snprintf(power, sizeof(power), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    out += power;
  } else if (exponent < 0) {
    out = "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + mantissa;
  } else if (size <= exponent + 1) {
    out = mantissa + std::string(static_cast<std::size_t>(exponent + 1 - size), '0') + ".0";
  } else {
    out = mantissa.substr(0, static_cast<std::size_t>(exponent) + 1) + "." +
          mantissa.substr(static_cast<std::size_t>(exponent) + 1);
  }
  return negative ? "-" + out : out;
}

bool printable_character(char32_t code) {
  if (code == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void put_escape(std::string& out, char32_t code, int digits) {
  char text[16];
  std::snprintf(text, sizeof(text), "%0*x", digits, static_cast<unsigned>(code));
  out += text;
}

std::string quoted(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  out += each_character(text, [quote](std::string& to, std::string_view one) {
    const char c = one[0];
    const char32_t code = code_of(one);
    if (c == quote || c == '\\')
      (to += '\\') += c;
    else if (c == '\n' || c == '\r' || c == '\t')
      (to += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    else if (printable_character(code))
      to += one;
    else if (code < 0x100)
      put_escape(to += "\\x", code, 2);
    else if (code < 0x10000)
      put_escape(to += "\\u", code, 4);
    else
      put_escape(to += "\\U", code, 8);
  });
  return out + quote;
}

std::string json_string(std::string_view text, bool ascii) {
  return '"' +
         each_character(text,
                        [ascii](std::string& to, std::string_view one) {
                          const char c = one[0];
                          const char32_t code = code_of(one);
                          if (c == '"' || c == '\\')
                            (to += '\\') += c;
                          else if (c == '\n' || c == '\r' || c == '\t' || c == '\f' || c == '\b')
                            (to += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c == '\f' ? 'f' : 'b';
                          else if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000))
                            put_escape(to += "\\u", code, 4);
                          else if (ascii && code >= 0x10000)
                            put_escape(to += "\\u", 0xd800 + ((code - 0x10000) >> 10), 4),
                                put_escape(to += "\\u", 0xdc00 + ((code - 0x10000) & 0x3ff), 4);
                          else
                            to += one;
                        }) +
         '"';
}

std::string json_key(const Value& key) {
  if (const std::string* text = key.text()) return *text;
  if (key.none()) return "null";
  if (const auto* flag = key.get<bool>()) return *flag ? "true" : "false";
  if (key.number()) return to_text(key);
  throw BadValue(type_name(key) + " cannot be a key in JSON");
}

void put_json(std::string& out, const Value& value, const JsonStyle& style, int depth) {
  const auto line = [&](int level) {
    if (style.indent < 0) return;
    (out += '\n').append(static_cast<std::size_t>(style.indent) * static_cast<std::size_t>(level), ' ');
  };
  if (value.none()) {
    out += "null";
  } else if (const auto* flag = value.get<bool>()) {
    out += *flag ? "true" : "false";
  } else if (const auto* real = value.get<double>(); real && !std::isfinite(*real)) {
    out += std::isnan(*real) ? "NaN" : *real < 0 ? "-Infinity" : "Infinity";
  } else if (value.number()) {
    out += to_text(value);
  } else if (const std::string* text = value.text()) {
    out += json_string(*text, style.ascii);
  } else if (const auto* list = value.object<Sequence>(); list && list->flavor <= Sequence::Flavor::tuple) {
    out += '[';
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += style.between;
      line(depth + 1);
      put_json(out, list->items[i], style, depth + 1);
    }
    if (!list->items.empty()) line(depth);
    out += ']';
  } else if (const auto* dict = value.object<Dict>()) {
    std::vector<const std::pair<Value, Value>*> all;
    for (const auto& item : dict->items) all.push_back(&item);
    if (style.sorted)
      std::stable_sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return less(a->first, b->first); });
    out += '{';
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i > 0) out += style.between;
      line(depth + 1);
      out += json_string(json_key(all[i]->first), style.ascii) + style.after_key;
      put_json(out, all[i]->second, style, depth + 1);
    }
    if (!all.empty()) line(depth);
    out += '}';
  } else {
    throw BadValue(type_name(value) + " cannot be written as JSON");
  }
}

void put_repr(std::string& out, const Value& value) {
  if (const std::string* text = value.text()) {
    out += quoted(*text);
  } else if (const auto* list = value.object<Sequence>(); list && list->flavor <= Sequence::Flavor::tuple) {
    const bool tuple = list->flavor == Sequence::Flavor::tuple;
    out += tuple ? '(' : '[';
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += ", ";
      put_repr(out, list->items[i]);
    }
    out += tuple ? list->items.size() == 1 ? ",)" : ")" : "]";
  } else if (const auto* dict = value.object<Dict>()) {
    out += '{';
    for (const auto& item : dict->items) {
      if (&item != dict->items.data()) out += ", ";
      put_repr(out, item.first);
      out += ": ";
      put_repr(out, item.second);
    }
    out += '}';
  } else if (value.undefined()) {
    out += "Undefined";
  } else {
    out += to_text(value);
  }
}

}  // namespace

std::string_view character_at(std::string_view text, std::size_t at) {
  bool valid = false;
  const std::size_t n = text_data::utf8_length(text.substr(at), &valid);
  return text.substr(at, valid ? n : 1);
}

int64_t characters(std::string_view text) {
  int64_t n = 0;
  for (std::size_t at = 0; at < text.size(); ++n) at += character_at(text, at).size();
  return n;
}

std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> out;
  for (std::size_t at = 0; at < text.size(); at += character_at(text, at).size()) out.push_back(at);
  out.push_back(text.size());
  return out;
}

bool is_space(std::string_view character) {
  const char32_t c = code_of(character);
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view stripped(std::string_view text, bool left, bool right, const std::string* of) {
  const auto goes = [&](std::string_view one) { return of ? of->find(one) != std::string::npos : is_space(one); };
  while (left && !text.empty()) {
    const std::string_view one = character_at(text, 0);
    if (!goes(one)) break;
    text.remove_prefix(one.size());
  }
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    if (character_at(text, at).size() != text.size() - at) at = text.size() - 1;
    if (!goes(text.substr(at))) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::string upper(std::string_view text) {
  return each_character(text, put_upper);
}

std::string lower(std::string_view text) {
  return each_character(text, put_lower);
}

std::string capitalised(std::string_view text) {
  if (text.empty()) return "";
  std::string out;
  const std::string_view first = character_at(text, 0);
  put_upper(out, first);
  return out + lower(text.substr(first.size()));
}

std::string to_text(const Value& value) {
  if (value.undefined()) return "";
  if (value.none()) return "None";
  if (const auto* flag = value.get<bool>()) return *flag ? "True" : "False";
  if (const auto* whole = value.get<int64_t>()) return std::to_string(*whole);
  if (const auto* real = value.get<double>()) return real_text(*real);
  if (const std::string* text = value.text()) return *text;
  const auto* sequence = value.object<Sequence>();
  if ((sequence && sequence->flavor <= Sequence::Flavor::tuple) || value.object<Dict>()) return to_repr(value);
  throw BadValue(type_name(value) + " cannot be printed");
}

std::string to_repr(const Value& value) {
  std::string out;
  put_repr(out, value);
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  put_json(out, value, style, 0);
  return out;
}

}  // namespace jinja
