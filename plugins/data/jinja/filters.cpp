// SPDX-License-Identifier: Apache-2.0
// Filters of texts and of single values.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "run.hpp"
#include "text.hpp"

namespace jinja {
namespace {

Value trim(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "trim", {"chars"});
  const std::string text = to_text(value);
  const bool given = arguments.find(0) && !arguments.find(0)->none();
  return run.made(std::string(stripped(text, true, true, given ? &arguments.text(0) : nullptr)));
}

Value replaced(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "replace", {"old", "new", "count"});
  const std::string text = to_text(value), from = to_text(arguments.need(0)), to = to_text(arguments.need(1));
  int64_t most = arguments.find(2) && !arguments.find(2)->none() ? arguments.integer(2, -1) : -1;
  if (most < 0) most = static_cast<int64_t>(text.size()) + 1;
  const uint64_t longest = Limits().text_bytes;
  std::string out;
  std::size_t at = 0;
  run.steps(text.size() / 32);
  if (from.empty()) {  // before each character, and at the end
    while (most-- > 0) {
      run.steps(to.size() / 32 + 1);
      if ((out += to).size() > longest) throw BadValue("a text is too long");
      if (at >= text.size()) break;
      const std::string_view one = character_at(text, at);
      out += one;
      at += one.size();
    }
    if (at < text.size()) out.append(text, at);
    return run.made(std::move(out));
  }
  while (most-- > 0) {
    const std::size_t found = text.find(from, at);
    if (found == std::string::npos) break;
    run.steps(to.size() / 32 + 1);
    out.append(text, at, found - at) += to;
    if (out.size() > longest) throw BadValue("a text is too long");
    at = found + from.size();
  }
  out.append(text, at);
  return run.made(std::move(out));
}

template <std::string (*change)(std::string_view)>
Value in_case(Run& run, const Value& value, const Call& call) {
  const Arguments none(call, "upper", {});
  return run.made(change(to_text(value)));
}

// Each word begins in upper case. Words are parted by white space, -, (, {, [ and <.
std::string title_of(std::string_view text) {
  std::string out;
  bool begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view one = character_at(text, at);
    out += begins ? upper(one) : lower(one);
    begins = is_space(one) || (one.size() == 1 && std::string_view("-({[<").find(one[0]) != std::string_view::npos);
    at += one.size();
  }
  return out;
}

Value json_of(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = arguments.flag(0, false);
  if (arguments.find(1) && !arguments.find(1)->none()) style.indent = std::min<int64_t>(arguments.integer(1, -1), 64);
  if (style.indent >= 0) style.between = ",";
  if (arguments.find(2) && !arguments.find(2)->none()) {
    const std::vector<Value> two = run.items(*arguments.find(2));
    if (two.size() != 2 || !two[0].text() || !two[1].text()) throw BadValue("`separators` must be two strings");
    style.between = *two[0].text(), style.after_key = *two[1].text();
  }
  style.sorted = arguments.flag(3, false);
  return run.made(to_json(value, style));
}

Value fallback(Run&, const Value& value, const Call& call) {
  const Arguments arguments(call, "default", {"default_value", "boolean"});
  if (!value.undefined() && !(arguments.flag(1, false) && !truth(value))) return value;
  return arguments.find(0) ? *arguments.find(0) : Value("");
}

Value string_of(Run& run, const Value& value, const Call& call) {
  const Arguments none(call, "string", {});
  return run.made(to_text(value));
}

Value same(Run&, const Value& value, const Call&) {
  return value.undefined() ? Value("") : value;
}

bool parsed_real(std::string text, double* out) {
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  if (text.size() > 1 && text[0] == '+') text.erase(0, 1);
  const auto read = std::from_chars(text.data(), text.data() + text.size(), *out);
  return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size();
}

Value whole_of(Run&, const Value& value, const Call& call) {
  const Arguments arguments(call, "int", {"default", "base"});
  if (arguments.integer(1, 10) != 10) throw BadValue("`int` with another base than 10 is not supported");
  int64_t whole = 0;
  double real = 0;
  if (as_integer(value, &whole)) return whole;
  const std::string text = value.text() ? std::string(stripped(*value.text(), true, true)) : "";
  std::string digits = text;
  if (digits.size() > 1 && digits[0] == '+') digits.erase(0, 1);
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
  if (!digits.empty() && read.ec == std::errc() && read.ptr == digits.data() + digits.size()) return whole;
  const bool number = value.text() ? parsed_real(text, &real) : as_real(value, &real);
  if (number && std::abs(real) < 9e18) return static_cast<int64_t>(real);
  return arguments.find(0) ? *arguments.find(0) : Value(int64_t{0});
}

Value real_of(Run&, const Value& value, const Call& call) {
  const Arguments arguments(call, "float", {"default"});
  double real = 0;
  if (as_real(value, &real)) return real;
  if (value.text() && parsed_real(std::string(stripped(*value.text(), true, true)), &real)) return real;
  return arguments.find(0) ? *arguments.find(0) : Value(0.0);
}

Value rounded(Run&, const Value& value, const Call& call) {
  const Arguments arguments(call, "round", {"precision", "method"});
  const int64_t precision = arguments.integer(0, 0);
  const std::string method = arguments.find(1) ? arguments.text(1) : "common";
  double real = 0;
  int64_t whole = 0;
  if (!as_real(value, &real)) throw BadValue("`round` is for numbers, not " + type_name(value));
  if (precision < 0 || precision > 15) throw BadValue("`round` takes a precision from 0 to 15");
  if (as_integer(value, &whole) && method == "common") return whole;
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(real * scale) / scale;
  if (method == "floor") return std::floor(real * scale) / scale;
  if (method != "common") throw BadValue("`round` takes common, ceil or floor, not " + method.substr(0, 20));
  // As Python: the decimal text of the number, which is exact, is rounded half to even.
  char text[400];
  const auto end =
      std::to_chars(text, text + sizeof(text), real, std::chars_format::fixed, static_cast<int>(precision));
  if (end.ec == std::errc()) std::from_chars(text, end.ptr, real);
  return real;
}

Value absolute(Run&, const Value& value, const Call& call) {
  const Arguments none(call, "abs", {});
  int64_t whole = 0;
  double real = 0;
  if (as_integer(value, &whole) && whole != INT64_MIN) return whole < 0 ? -whole : whole;
  if (!as_real(value, &real)) throw BadValue("`abs` is for numbers, not " + type_name(value));
  return std::abs(real);
}

Value indented(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "indent", {"width", "first", "blank"});
  if (!value.text()) throw BadValue("`indent` is for a string, not " + type_name(value));
  const Value* const width = arguments.find(0);
  const int64_t n = std::clamp<int64_t>(width && width->text() ? 0 : arguments.integer(0, 4), 0, 1000);
  const std::string by = width && width->text() ? *width->text() : std::string(static_cast<std::size_t>(n), ' ');
  std::string out;
  std::string_view rest = *value.text();
  for (bool first = true;; first = false) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (first ? arguments.flag(1, false) : arguments.flag(2, false) || !line.empty()) out += by;
    out += line;
    run.steps(by.size() / 32 + 1);
    if (out.size() > Limits().text_bytes) throw BadValue("a text is too long");
    if (end == std::string_view::npos) break;
    out += '\n';
    rest.remove_prefix(end + 1);
  }
  return run.made(std::move(out));
}

Value length(Run& run, const Value& value, const Call& call) {
  const Arguments none(call, "length", {});
  if (value.text()) run.steps(value.text()->size() / 32);
  return length_of(value);
}

constexpr std::pair<std::string_view, Filter> filters[] = {{"trim", trim},
                                                           {"replace", replaced},
                                                           {"upper", in_case<upper>},
                                                           {"lower", in_case<lower>},
                                                           {"title", in_case<title_of>},
                                                           {"capitalize", in_case<capitalised>},
                                                           {"tojson", json_of},
                                                           {"default", fallback},
                                                           {"d", fallback},
                                                           {"string", string_of},
                                                           {"safe", same},
                                                           {"int", whole_of},
                                                           {"float", real_of},
                                                           {"round", rounded},
                                                           {"abs", absolute},
                                                           {"indent", indented},
                                                           {"length", length},
                                                           {"count", length}};

}  // namespace

Filter text_filter(std::string_view name) {
  for (const auto& [known, filter] : filters)
    if (known == name) return filter;
  return nullptr;
}

Value Run::filter(const std::string& name, const Value& subject, const Call& call) {
  Filter found = text_filter(name);
  if (!found) found = list_filter(name);
  if (!found) throw BadValue("there is no filter `" + name + "`");
  return found(*this, subject, call);
}

}  // namespace jinja
