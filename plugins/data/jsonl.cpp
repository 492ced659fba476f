// SPDX-License-Identifier: Apache-2.0
#include "jsonl.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "failure.hpp"
#include "json_text.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

using nlohmann::json;

// Keeps only the wanted string and builds no tree, because a line may hold much more than its text.
class FieldHandler {
 public:
  explicit FieldHandler(const std::string& field) : field_(field) {}

  bool found = false;
  std::string text;
  std::string error;
  std::size_t column = 0;

  void take(FieldHandler& other) {
    found = other.found;
    text = std::move(other.text);
  }
  bool null() { return other(); }
  bool boolean(bool) { return other(); }
  bool number_integer(json::number_integer_t) { return other(); }
  bool number_unsigned(json::number_unsigned_t) { return other(); }
  bool number_float(json::number_float_t, const json::string_t&) { return other(); }
  bool binary(json::binary_t&) { return other(); }
  bool string(json::string_t& value) {
    if (wanted()) {
      text = std::move(value);
      found = true;
    }
    return true;
  }
  bool start_object(std::size_t) {
    other();
    if (depth_++ == 0) object_ = true;
    return true;
  }
  bool end_object() { return --depth_, true; }
  bool start_array(std::size_t) {
    other();
    ++depth_;
    return true;
  }
  bool end_array() { return --depth_, true; }
  bool key(json::string_t& name) {
    if (depth_ == 1) matches_ = name == field_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception& exception) {
    column = position;
    error = exception.what();
    return false;
  }

 private:
  bool wanted() const { return depth_ == 1 && object_ && matches_; }
  // If a field occurs twice, the last one counts, as in every common reader.
  bool other() {
    if (wanted()) found = false;
    return true;
  }

  const std::string& field_;
  int64_t depth_ = 0;
  bool object_ = false;
  bool matches_ = false;
};

constexpr std::size_t longest_line = std::size_t{1} << 30;

// The value of the four hexadecimal digits at text[at]; -1 if there are no such digits.
int hex_unit(std::string_view text, std::size_t at) {
  int value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    const char c = i < text.size() ? text[i] : '?';
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// The line with U+FFFD in place of bytes that are not UTF-8 and of escapes of one half of a surrogate pair.
std::string repaired(std::string_view line) {
  std::string kept, out;
  line = valid_utf8(line, kept);
  for (std::size_t at = 0; at < line.size();) {
    std::size_t length = line[at] == '\\' ? 2 : 1;
    const bool escape = length == 2 && at + 1 < line.size() && line[at + 1] == 'u';
    const int unit = escape ? hex_unit(line, at + 2) : -1;
    if (unit >= 0xd800 && unit < 0xe000) {
      const bool more = unit < 0xdc00 && line.substr(std::min(at + 6, line.size()), 2) == "\\u";
      const int other = more ? hex_unit(line, at + 8) : -1;
      const bool pair = other >= 0xdc00 && other < 0xe000;
      if (!pair) {
        out += "\\ufffd";
        at += 6;
        continue;
      }
      length = 12;
    }
    out += line.substr(at, length);
    at += length;
  }
  return out;
}

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string quoted(const std::string& name) {
  std::string text = json(name).dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "...\"" : text;
}

std::string with_article(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array";
    case json::value_t::string:
      return "a string";
    case json::value_t::boolean:
      return "a boolean";
    default:
      return "a number";
  }
}

}  // namespace

JsonlReader::JsonlReader(std::string name, std::string field, bool replace,
                         std::function<void(std::string_view)> document)
    : name_(std::move(name)), field_(std::move(field)), replace_(replace), document_(std::move(document)) {}

void JsonlReader::feed(std::string_view piece) {
  while (true) {
    std::size_t end = piece.find('\n');
    if (end == std::string_view::npos) break;
    if (rest_.empty()) {
      line(piece.substr(0, end));
    } else {
      rest_.append(piece.substr(0, end));
      std::string whole = std::move(rest_);
      rest_.clear();
      line(whole);
    }
    piece.remove_prefix(end + 1);
  }
  rest_.append(piece);
  if (rest_.size() > longest_line) {
    ++line_;
    fail("the line is longer than 1 GiB, the limit for JSON Lines");
  }
}

void JsonlReader::finish() {
  if (!rest_.empty()) line(rest_);
  rest_.clear();
}

void JsonlReader::line(std::string_view text) {
  ++line_;
  if (blank(text)) return;
  FieldHandler handler(field_);
  std::string better;
  if (!json::sax_parse(text.begin(), text.end(), &handler)) {
    better = repaired(text);
    FieldHandler second(field_);
    const bool repairs = json::sax_parse(better.begin(), better.end(), &second);
    if (!repairs || !replace_) {
      throw Failure(ENG_INVALID, name_ + ":" + std::to_string(line_) + ":" + std::to_string(handler.column) +
                                     ": not valid JSON: " + json_reason(handler.error) +
                                     (repairs ? "; with [data] errors = \"replace\" it is read as U+FFFD" : ""));
    }
    handler.take(second);
    text = better;
  }
  if (!handler.found) fail_field(text);
  document_(handler.text);
}

void JsonlReader::fail(const std::string& what) const {
  throw Failure(ENG_INVALID, name_ + ":" + std::to_string(line_) + ": " + what);
}

void JsonlReader::fail_field(std::string_view text) const {
  json value = json::parse(text.begin(), text.end());
  if (!value.is_object()) fail("the line is " + with_article(value) + ", not an object with a field " + quoted(field_));
  auto at = value.find(field_);
  if (at != value.end()) fail("field " + quoted(field_) + " is " + with_article(*at) + ", not a string");
  std::string names;
  std::size_t listed = 0;
  for (const auto& item : value.items()) {
    if (listed++ == 10) {
      names += ", ... (" + std::to_string(value.size()) + " in all)";
      break;
    }
    names += (names.empty() ? "" : ", ") + quoted(item.key());
  }
  fail("no field " + quoted(field_) + "; the line has " + (names.empty() ? "no fields" : names) +
       ": set [data] field to the one that holds the text");
}

}  // namespace text_data
