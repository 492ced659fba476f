// SPDX-License-Identifier: Apache-2.0
#include "jsonl.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "failure.hpp"
#include "json_text.hpp"
#include "utf8.hpp"

namespace text_data {

using nlohmann::json;

// Keeps only the wanted string, and the first names for an error. Builds no tree, because a line may hold much more
// than its text.
class JsonlReader::FieldHandler {
 public:
  explicit FieldHandler(const std::string& field) : field_(field) {}

  bool found = false;
  std::string text;
  std::string error;
  std::size_t column = 0;
  std::string line_is = "an object";  // the outermost value
  std::string field_is;               // the wanted field, if it is not a string
  std::vector<std::string> names;     // of the first fields
  std::size_t fields = 0;             // all of them

  bool null() { return other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  bool number_integer(json::number_integer_t) { return other("a number"); }
  bool number_unsigned(json::number_unsigned_t) { return other("a number"); }
  bool number_float(json::number_float_t, const json::string_t&) { return other("a number"); }
  bool binary(json::binary_t&) { return other("binary"); }
  bool string(json::string_t& value) {
    if (!wanted()) return other("a string");
    text = std::move(value);
    return found = true;
  }
  bool start_object(std::size_t) {
    other("an object");
    ++depth_;
    return true;
  }
  bool end_object() { return --depth_, true; }
  bool start_array(std::size_t) {
    other("an array");
    ++depth_;
    return true;
  }
  bool end_array() { return --depth_, true; }
  bool key(json::string_t& name) {
    if (depth_ != 1) return true;
    matches_ = name == field_;
    if (fields++ < most_names) names.push_back(name.substr(0, longest_name));
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception& exception) {
    column = position;
    error.assign(exception.what(), strnlen(exception.what(), longest_reason));
    return false;
  }

 private:
  static constexpr std::size_t most_names = 10, longest_name = 100, longest_reason = 1000;
  bool wanted() const { return depth_ == 1 && line_is == "an object" && matches_; }
  // If a field occurs twice, the last one counts, as in every common reader.
  bool other(const char* what) {
    if (depth_ == 0) line_is = what;
    if (wanted()) found = false, field_is = what;
    return true;
  }

  const std::string& field_;
  int64_t depth_ = 0;
  bool matches_ = false;
};

namespace {

constexpr std::size_t longest_line = std::size_t{64} << 20;

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

// What to do with rows whose text is in several fields or inside a list, by the names of their fields; "" for others.
std::string of_another_task(const std::vector<std::string>& names) {
  const auto any = [&](std::initializer_list<const char*> some) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& n) { return std::find(some.begin(), some.end(), n) != some.end(); });
  };
  constexpr const char* write =
      " and write it as {\"text\": \"...\"}. A line is read as one text, which is learnt whole";
  if (any({"messages", "conversations", "conversation", "dialog", "dialogue"}))
    return std::string(
               ". Chat data are not read yet: make one text of each conversation, for example by "
               "tokenizer.apply_chat_template(messages, tokenize=False) of transformers,") +
           write;
  if (any({"chosen", "rejected"}))
    return std::string(
               ". Pairs of preferred answers are not read yet: for plain training, join prompt and answer to one "
               "text") +
           write;
  if (any({"instruction", "prompt", "completion", "response", "question", "answer"}))
    return std::string(". Instruction data in several fields are not read yet: join the fields to one text") + write;
  return "";
}

std::string quoted(const std::string& name) {
  std::string text = json(name).dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "...\"" : text;
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
      append(piece.substr(0, end));
      std::string whole = std::move(rest_);
      rest_.clear();
      line(whole);
    }
    piece.remove_prefix(end + 1);
  }
  append(piece);
}

// To the start of a line.
void JsonlReader::append(std::string_view piece) {
  if (piece.size() > longest_line - rest_.size()) {
    ++line_;
    fail("the line is longer than 64 MiB, the limit for a line of JSON Lines: split its text over several lines");
  }
  rest_.append(piece);
}

void JsonlReader::finish() {
  if (!rest_.empty()) line(rest_);
  rest_.clear();
}

void JsonlReader::line(std::string_view text) {
  ++line_;
  if (blank(text)) return;
  FieldHandler first(field_), second(field_);
  if (json::sax_parse(text.begin(), text.end(), &first)) return take(first);
  const std::string better = repaired(text);
  const bool repairs = json::sax_parse(better.begin(), better.end(), &second);
  if (!repairs || !replace_)
    throw Failure(ENG_INVALID, name_ + ":" + std::to_string(line_) + ":" + std::to_string(first.column) +
                                   ": not valid JSON: " + json_reason(first.error) +
                                   (repairs ? "; with [data] errors = \"replace\" it is read as U+FFFD" : ""));
  take(second);
}

void JsonlReader::fail(const std::string& what) const {
  throw Failure(ENG_INVALID, name_ + ":" + std::to_string(line_) + ": " + what);
}

void JsonlReader::take(const FieldHandler& line) const {
  if (line.found) return document_(line.text);
  if (line.line_is != "an object")
    fail("the line is " + line.line_is + ", not an object with a field " + quoted(field_));
  const std::string other = of_another_task(line.field_is.empty() ? line.names : std::vector<std::string>{field_});
  if (!line.field_is.empty()) fail("field " + quoted(field_) + " is " + line.field_is + ", not a string" + other);
  std::string names;
  for (const std::string& name : line.names) names += (names.empty() ? "" : ", ") + quoted(name);
  if (line.fields > line.names.size()) names += ", ... (" + std::to_string(line.fields) + " in all)";
  fail("no field " + quoted(field_) + "; the line has " + (names.empty() ? "no fields" : names) +
       (other.empty() ? ": set [data] field to the one that holds the text" : other));
}

}  // namespace text_data
