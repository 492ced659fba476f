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
  FieldHandler(const std::string& field, const std::vector<std::string>& path) : field_(field), path_(path) {}

  // A field that was looked for: by its whole name, or by the names of a path.
  struct Wanted {
    bool found = false;
    std::string text;
    std::string is;  // of another type than a string
  };
  const Wanted& wanted() const { return named_.found || !named_.is.empty() ? named_ : inner_; }

  std::string error;
  std::size_t column = 0;
  std::string line_is = "an object";  // the outermost value
  std::vector<std::string> names;     // of the first fields
  std::size_t fields = 0;             // all of them
  std::string elsewhere;              // the path of a field of this name inside another one

  bool null() { return other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  bool number_integer(json::number_integer_t) { return other("a number"); }
  bool number_unsigned(json::number_unsigned_t) { return other("a number"); }
  bool number_float(json::number_float_t, const json::string_t&) { return other("a number"); }
  bool binary(json::binary_t&) { return other("binary"); }
  bool string(json::string_t& value) {
    Wanted* const at = here();
    if (!at) return other("a string");
    at->text = std::move(value);
    at->is.clear();
    return at->found = true;
  }
  bool start_object(std::size_t) { return start("an object", true); }
  bool end_object() { return end(); }
  bool start_array(std::size_t) { return start("an array", false); }
  bool end_array() { return end(); }
  bool key(json::string_t& name) {
    whole_ = depth_ == 1 && name == field_;
    part_ = depth_ == inside_ + 1 && inside_ < path_.size() && name == path_[inside_];
    if (depth_ == 1) {
      outer_.assign(name, 0, longest_name);
      if (fields++ < most_names) names.push_back(outer_);
    } else if (depth_ == 2 && objects_ == 2 && elsewhere.empty() && name == field_) {
      elsewhere = outer_ + "." + name;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception& exception) {
    column = position;
    error.assign(exception.what(), strnlen(exception.what(), longest_reason));
    return false;
  }

 private:
  static constexpr std::size_t most_names = 10, longest_name = 100, longest_reason = 1000;

  // The wanted field whose value follows; nullptr: it is not wanted.
  Wanted* here() {
    if (whole_ && depth_ == 1 && objects_ == 1) return &named_;
    return part_ && !path_.empty() && inside_ + 1 == path_.size() && depth_ == path_.size() ? &inner_ : nullptr;
  }
  // If a field occurs twice, the last one counts, as in every common reader.
  bool other(const char* what) {
    if (depth_ == 0) line_is = what;
    if (Wanted* const at = here()) *at = {false, "", what};
    return true;
  }
  bool start(const char* what, bool object) {
    other(what);
    if (object && part_ && inside_ + 1 < path_.size() && depth_ == inside_ + 1) {
      ++inside_;  // of the path
      inner_ = {};
    }
    objects_ += object && objects_ == depth_;
    ++depth_;
    whole_ = part_ = false;
    return true;
  }
  bool end() {
    --depth_;
    objects_ = std::min(objects_, depth_);
    inside_ = std::min<std::size_t>(inside_, depth_ > 0 ? depth_ - 1 : 0);
    whole_ = part_ = false;
    return true;
  }

  const std::string& field_;
  const std::vector<std::string>& path_;
  Wanted named_, inner_;
  std::string outer_;
  std::size_t depth_ = 0, objects_ = 0;  // levels, and how many of the outermost ones are objects
  std::size_t inside_ = 0;               // parts of the path that lead to the object that is read
  bool whole_ = false, part_ = false;    // the value that follows has the wanted name, or that of the path's next part
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

// Advice for rows whose text is in several fields or inside a list, by the names of their fields; "" for others.
std::string of_another_task(const std::vector<std::string>& names) {
  const auto any = [&](std::initializer_list<const char*> some) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& n) { return std::find(some.begin(), some.end(), n) != some.end(); });
  };
  constexpr const char* write =
      " and write it as {\"text\": \"...\"}. A line is read as one text, which is learnt whole";
  if (any({"messages", "conversations", "conversation", "dialog", "dialogue"}))
    return ". Chat data are read by [data] plugin = \"chat\", which trains the answers. To learn all of each "
           "conversation as "
           "a text, make one text of it first, for example by tokenizer.apply_chat_template(messages, tokenize=False) "
           "of "
           "transformers, and write it as {\"text\": \"...\"}";
  if (any({"chosen", "rejected"}))
    return std::string(
               ". Pairs of preferred answers are read by [data] plugin = \"pairs\", with the loss preference; for "
               "plain "
               "training, join prompt and answer to one text") +
           write;
  if (any({"instruction", "prompt", "completion", "response", "question", "answer"}))
    return std::string(
               ". Instruction data in several fields are read by [data] plugin = \"chat\"; for plain training, join "
               "the "
               "fields to one text") +
           write;
  return "";
}

std::string in_quotes(const std::string& name) {
  std::string text = json(name).dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "...\"" : text;
}

}  // namespace

JsonlReader::JsonlReader(std::string name, Options options, std::function<void(std::string_view)> document)
    : name_(std::move(name)), options_(std::move(options)), document_(std::move(document)) {
  const std::string& field = options_.field;
  if (field.find('.') == std::string::npos) return;
  for (std::size_t at = 0, dot = 0; dot != std::string::npos; at = dot + 1) {
    dot = field.find('.', at);
    path_.push_back(field.substr(at, dot - at));
  }
}

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
  if (rows_ == 0 || skipped_ < rows_) return;
  throw Failure(ENG_INVALID, name_ + ": none of its " + std::to_string(rows_) + " rows has a text in the field " +
                                 in_quotes(options_.field) + ", so [data] missing = \"skip\" would leave out all");
}

void JsonlReader::line(std::string_view text) {
  ++line_;
  if (!blank(text)) parse(text);
}

void JsonlReader::row(std::string_view text, uint64_t line, uint64_t column) {
  line_ = line, column_ = column - 1, unit_ = "row";
  parse(text);
}

void JsonlReader::parse(std::string_view text) {
  FieldHandler first(options_.field, path_), second(options_.field, path_);
  if (json::sax_parse(text.begin(), text.end(), &first)) return take(first);
  const std::string better = repaired(text);
  const bool repairs = json::sax_parse(better.begin(), better.end(), &second);
  if (!repairs || !options_.replace) {
    const std::string_view before = text.substr(0, first.column > 0 ? first.column - 1 : 0);
    const std::size_t end = before.rfind('\n');  // only in an array, whose rows may have several lines
    const auto more = static_cast<uint64_t>(std::count(before.begin(), before.end(), '\n'));
    const uint64_t column = more > 0 ? first.column - end - 1 : column_ + first.column;
    throw Failure(ENG_INVALID, name_ + ":" + std::to_string(line_ + more) + ":" + std::to_string(column) +
                                   ": not valid JSON: " + json_reason(first.error) +
                                   (repairs ? "; with [data] errors = \"replace\" it is read as U+FFFD" : ""));
  }
  take(second);
}

void JsonlReader::fail(const std::string& what) const {
  throw Failure(ENG_INVALID, name_ + ":" + std::to_string(line_) + ": " + what);
}

void JsonlReader::take(const FieldHandler& line) {
  const FieldHandler::Wanted& wanted = line.wanted();
  ++rows_;
  if (wanted.found) return document_(wanted.text);
  const std::string& field = options_.field;
  if (line.line_is != "an object")
    fail(std::string("the ") + unit_ + " is " + line.line_is + ", not an object with a field " + in_quotes(field));
  if (options_.skip && (wanted.is.empty() || wanted.is == "null")) {
    ++skipped_;
    return;
  }
  const std::string other = of_another_task(wanted.is.empty() ? line.names : std::vector<std::string>{field});
  const std::string skip = ". With [data] missing = \"skip\" such rows are left out, and counted";
  if (!wanted.is.empty())
    fail("field " + in_quotes(field) + " is " + wanted.is + ", not a string" + other +
         (wanted.is == "null" ? skip : ""));
  std::string names;
  for (const std::string& name : line.names) names += (names.empty() ? "" : ", ") + in_quotes(name);
  if (line.fields > line.names.size()) names += ", ... (" + std::to_string(line.fields) + " in all)";
  const std::string help = !line.elsewhere.empty() ? ": set [data] field = " + in_quotes(line.elsewhere)
                           : other.empty()         ? ": set [data] field to the one that holds the text" + skip
                                                   : other;
  fail("no field " + in_quotes(field) + "; the " + unit_ + " has " + (names.empty() ? "no fields" : names) + help);
}

}  // namespace text_data
