// SPDX-License-Identifier: Apache-2.0
// Recognises kinds of text: encodings, JSON, pages.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "sniff.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

using namespace std::literals;
using nlohmann::json;
using Kind = Content::Kind;

// ---- encodings ----

uint32_t unit(std::string_view text, std::size_t at, std::size_t width, bool big) {
  uint32_t value = 0;
  for (std::size_t i = 0; i < width; ++i)
    value = value << 8 | static_cast<unsigned char>(text[at + (big ? i : width - 1 - i)]);
  return value;
}

bool character(uint32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || c == '\f' || (c >= 0x20 && c < 0xd800 && c != 0x7f) ||
         (c >= 0xe000 && c < 0x110000 && (c & 0xfffe) != 0xfffe);
}

// True if the text can have this encoding and has ASCII characters, whose other bytes are zero.
bool wide(std::string_view head, std::size_t width, bool big) {
  std::size_t ascii = 0, count = 0;
  for (std::size_t at = 0; at + width <= head.size(); at += width, ++count) {
    const uint32_t c = unit(head, at, width, big);
    if (width == 2 && c >= 0xd800 && c < 0xdc00) {
      if (at + 4 > head.size()) break;
      const uint32_t low = unit(head, at += 2, width, big);
      if (low < 0xdc00 || low >= 0xe000) return false;
      continue;
    }
    if (!character(c)) return false;
    ascii += c < 0x80;
  }
  return count >= 4 && ascii > 0;
}

struct Encoding {
  std::string_view mark, what, command;
  std::size_t width;
  bool big;
};
constexpr Encoding encodings[] = {
    {"\xff\xfe\0\0"sv, "text in UTF-32", "iconv -f UTF-32 -t UTF-8", 0, false},
    {"\0\0\xfe\xff"sv, "text in UTF-32", "iconv -f UTF-32 -t UTF-8", 0, false},
    {"\xff\xfe"sv, "text in UTF-16", "iconv -f UTF-16 -t UTF-8", 0, false},
    {"\xfe\xff"sv, "text in UTF-16", "iconv -f UTF-16 -t UTF-8", 0, false},
    {"", "text in UTF-32, little-endian and without a mark", "iconv -f UTF-32LE -t UTF-8", 4, false},
    {"", "text in UTF-32, big-endian and without a mark", "iconv -f UTF-32BE -t UTF-8", 4, true},
    {"", "text in UTF-16, little-endian and without a mark", "iconv -f UTF-16LE -t UTF-8", 2, false},
    {"", "text in UTF-16, big-endian and without a mark", "iconv -f UTF-16BE -t UTF-8", 2, true},
};

// ---- JSON ----

constexpr std::string_view blanks = " \t\r\n";

// The end of the object or array at text[0]; npos: not in `text`.
std::size_t value_end(std::string_view text) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

// Takes any value, and remembers where it stopped being JSON.
struct Grammar {
  std::size_t error = 0;
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(json::number_integer_t) { return true; }
  bool number_unsigned(json::number_unsigned_t) { return true; }
  bool number_float(json::number_float_t, const json::string_t&) { return true; }
  bool string(json::string_t&) { return true; }
  bool binary(json::binary_t&) { return true; }
  bool start_object(std::size_t) { return true; }
  bool end_object() { return true; }
  bool start_array(std::size_t) { return true; }
  bool end_array() { return true; }
  bool key(json::string_t&) { return true; }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) {
    error = position;
    return false;
  }
};

// {"name": ...: enough for an object, because rows of JSON Lines may hold what JSON does not have (NaN, halves of
// pairs).
bool begins_object(std::string_view text) {
  const auto skip = [&](std::size_t n) { text.remove_prefix(std::min(n, text.size())); };
  skip(1);
  skip(text.find_first_not_of(blanks));
  if (text.substr(0, 1) != "\"" && text.substr(0, 1) != "'") return false;
  std::size_t end = 1;
  while (end < text.size() && text[end] != text[0]) end += text[end] == '\\' ? 2 : 1;
  skip(end + 1);
  skip(text.find_first_not_of(blanks));
  return text.substr(0, 1) == ":";
}

bool is_json(std::string_view text) {
  Grammar grammar;
  return json::sax_parse(text.begin(), text.end(), &grammar);
}

// The beginning of JSON: nothing is wrong with it but that it ends.
bool begins_json(std::string_view text) {
  Grammar grammar;
  return json::sax_parse(text.begin(), text.end(), &grammar) || grammar.error > text.size();
}

constexpr Content json_lines = {.kind = Kind::json_lines, .what = "JSON Lines"};
constexpr std::string_view one_each = "Make JSON Lines of it, with one object on each line";
constexpr Content json_objects = {.kind = Kind::json,
                                  .what = "JSON whose objects do not stand on a line each",
                                  .advice = one_each,
                                  .command = "jq -c .",
                                  .ending = ".jsonl"};
constexpr Content json_array = {
    .kind = Kind::json, .what = "one JSON array", .advice = one_each, .command = "jq -c '.[]'", .ending = ".jsonl"};
constexpr Content json_rows = [] {
  Content content = json_array;
  content.rows = true;
  return content;
}();
constexpr Content json_arrays = {.kind = Kind::json,
                                 .what = "JSON with an array on each line",
                                 .advice = one_each,
                                 .command = "jq -c '{text: .[0]}'",
                                 .ending = ".jsonl"};

// True for an array whose first element is an object.
bool of_objects(std::string_view array) {
  const std::size_t first = array.find_first_not_of(blanks, 1);
  return first != std::string_view::npos && array[first] == '{';
}

}  // namespace

Content sniff_encoding(std::string_view head, bool) {
  for (const Encoding& e : encodings)
    if (e.width ? head.find('\0') != std::string_view::npos && wide(head, e.width, e.big)
                : head.substr(0, e.mark.size()) == e.mark)
      return {.kind = Kind::other,
              .what = e.what,
              .advice = "Convert it to UTF-8 first",
              .command = e.command,
              .ending = "~.utf8"};
  return {};
}

Content sniff_json(std::string_view text, bool whole) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  if (text.empty() || (text[0] != '{' && text[0] != '[')) return {};
  const bool array = text[0] == '[';
  const std::size_t end = value_end(text);
  if (end == std::string_view::npos) {
    if (whole || !(array ? begins_json(text) : begins_object(text))) return {};
    if (array) return of_objects(text) ? json_rows : json_array;
    return text.find('\n') == std::string_view::npos ? json_lines : json_objects;
  }
  const std::string_view value = text.substr(0, end);
  const bool empty = value.find_first_not_of(blanks, 1) + 1 == value.size();  // {} and [] say nothing
  if (empty || !(array ? is_json(value) : begins_object(value))) return {};
  std::string_view rest = text.substr(end);
  const std::size_t next = rest.find_first_not_of(blanks);
  if (next == std::string_view::npos && array) return !whole ? Content() : of_objects(text) ? json_rows : json_array;
  if (next != std::string_view::npos && rest[next] != text[0]) return {};
  const bool same_line = next != std::string_view::npos && rest.substr(0, next).find('\n') == std::string_view::npos;
  const bool lines = value.find('\n') == std::string_view::npos && !same_line;
  if (array) return is_json(rest.substr(next, value_end(rest.substr(next)))) ? json_arrays : Content();
  return lines ? json_lines : json_objects;
}

Content sniff_page(std::string_view text) {
  const auto skip = [&](std::size_t at) { text.remove_prefix(std::min(at, text.size())); };
  skip(text.find_first_not_of(blanks));
  if (text.substr(0, 5) == "<?xml") return {.kind = Kind::page, .what = "XML"};
  while (text.substr(0, 4) == "<!--") {  // comments
    const std::size_t end = text.find("-->");
    if (end == std::string_view::npos) return {};
    skip(end + 3);
    skip(text.find_first_not_of(blanks));
  }
  std::string begin(text.substr(0, 16));
  for (char& c : begin) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto is = [&](std::string_view tag) {
    return begin.compare(0, tag.size(), tag) == 0 && begin.size() > tag.size() &&
           std::strchr("> \t\r\n", begin[tag.size()]) != nullptr;
  };
  if (is("<!doctype html") || is("<html") || is("<head"))
    return {.kind = Kind::page,
            .what = "a web page (HTML)",
            .advice = "Servers send one in place of a file that is missing or needs a login; then download it again"};
  for (const std::string_view tag : {"<svg"sv, "<rss"sv, "<feed"sv, "<mediawiki"sv, "<!doctype"sv})
    if (is(tag)) return {.kind = Kind::page, .what = "XML"};
  return {};
}

bool is_plain_text(std::string_view head) {
  std::size_t good = utf8_prefix(head);
  if (good < head.size()) {
    bool valid = false;
    const std::size_t part = utf8_length(head.substr(good), &valid);
    if (good + part != head.size() || static_cast<unsigned char>(head[good]) < 0xc2) return false;
  }
  return std::none_of(head.begin(), head.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && !std::strchr("\t\n\r\f", c)) || c == '\0' || c == 0x7f;
  });
}

}  // namespace text_data
