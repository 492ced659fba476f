// SPDX-License-Identifier: Apache-2.0
// JSON, and the flat part of YAML that files of arguments use.
#include <algorithm>

#include "core/base/text.hpp"
#include "core/config/names.hpp"
#include "session/convert/entries.hpp"

namespace eng::converter {
namespace {

constexpr std::size_t deepest = 16;  // objects and lists in one another

[[noreturn]] void fail_at(const std::string& name, std::size_t line, const std::string& why, const std::string& help) {
  throw Error(Exit::usage, fmt::format("{}:{}: {}", printable(name), line, why), help);
}

std::string stripped(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// What is most often the matter with a text that is nearly JSON.
std::string hint(const std::string& text, std::size_t at) {
  const std::string near = text.substr(at > 9 ? at - 9 : 0, 18), before = text.substr(0, at ? at - 1 : 0);
  if (near.find("NaN") != std::string::npos || near.find("Infinity") != std::string::npos)
    return "JSON has no NaN and no Infinity: write a number";
  const auto last = before.find_last_not_of(" \t\r\n");
  const char stopped = at ? text[at - 1] : '\0';
  if (stopped == '/' || stopped == '#') return "JSON has no comments: remove them";
  if ((stopped == '}' || stopped == ']') && last != std::string::npos && before[last] == ',')
    return "remove the comma before the closing bracket";
  if (stopped == '\'' || stopped == 'T' || stopped == 'F')
    return "this looks like Python: JSON has double quotes, true, false and null";
  return "";
}

class Yaml {
 public:
  Yaml(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  Entries read() {
    for (std::size_t start = 0; start < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', start), text_.size());
      ++line_;
      take(text_.substr(start, end - start));
      start = end + 1;
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    fail_at(name_, line_, why,
            "`key: value` lines, and lists as [a, b] or as lines `- a`, are read here; give the rest with --args, or "
            "save the arguments as JSON");
  }

  void take(const std::string& raw) {
    const std::string line = stripped(without_comment(raw));
    if (line.empty() || (line == "---" && !begun_)) return;
    begun_ = true;
    const bool indented = raw[0] == ' ' || raw[0] == '\t';
    if (line == "-" || line.starts_with("- ")) {
      if (key_.empty()) fail("a list without a key");
      list_.push_back(scalar(stripped(line.substr(1))));
      return put_list();
    }
    if (indented) fail(key_.empty() ? "a line that is indented" : "`" + printable(key_, 80) + "` is an object");
    if (line == "---" || line == "...") fail("a second document");
    const auto colon = end_of_key(line);
    std::string name = stripped(line.substr(0, colon));
    if (name.size() > 1 && (name[0] == '"' || name[0] == '\'') && name.back() == name[0])
      name = name.substr(1, name.size() - 2);
    if (name.empty() || name.find_first_of(" \t{}[]&*!|>'\"%@`,?") != std::string::npos)
      fail("not a `key: value` line: " + printable(line, 80));
    if (out_.all.count(name))
      fail(fmt::format("`{}` appears twice, first in line {}", printable(name, 80), lines_[name]));
    key_.clear();
    list_.clear();
    lines_[name] = line_;
    const std::string value = stripped(line.substr(colon + 1));
    if (value.empty()) key_ = name;  // null, unless a list follows
    Entry& entry = out_.all[name] = Entry{{}, "", name};
    if (value.starts_with('['))
      entry.value = flow(value);
    else if (!value.empty())
      entry.value = scalar(value);
  }

  std::size_t end_of_key(const std::string& line) const {
    for (std::size_t k = 0; k < line.size(); ++k)
      if (line[k] == ':' && (k + 1 == line.size() || line[k + 1] == ' ' || line[k + 1] == '\t')) return k;
    fail("not a `key: value` line: " + printable(line, 80));
  }

  // '#' begins a comment at the start of a line or after a blank, outside quotes.
  static std::string without_comment(const std::string& line) {
    char quote = 0;
    for (std::size_t k = 0; k < line.size(); ++k) {
      const char c = line[k];
      const bool fresh = k == 0 || std::string_view(" \t:[,-").find(line[k - 1]) != std::string_view::npos;
      if (quote) {
        if (c == quote) quote = 0;
      } else if ((c == '"' || c == '\'') && fresh) {
        quote = c;
      } else if (c == '#' && (k == 0 || line[k - 1] == ' ' || line[k - 1] == '\t')) {
        return line.substr(0, k);
      }
    }
    return line;
  }

  Value scalar(const std::string& text) const {
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return {};
    const char first = text[0];
    if (first == '"' || first == '\'') {
      if (text.size() < 2 || text.find(first, 1) != text.size() - 1)
        fail("a text that does not end with its quote, or has one within: " + printable(text, 80));
      if (text.find('\\') != std::string::npos && first == '"') fail("a text with a backslash: " + printable(text, 80));
      return text.substr(1, text.size() - 2);
    }
    if (std::string_view("&*!|>%@`{}[],?").find(first) != std::string_view::npos)
      fail("a kind of value that is not read here: " + printable(text, 80));
    const std::string small = lower_case(text);
    if (small == ".nan" || small == ".inf" || small == "-.inf" || small == "+.inf" || small == "nan" || small == "inf")
      fail(printable(text) + " is not a number that can be used");
    return value_of_word(text[0] == '+' ? text.substr(1) : text);
  }

  // [a, b]
  Value flow(const std::string& text) const {
    if (text.back() != ']') fail("a list that does not end in its line");
    std::vector<Value> items;
    const std::string inner = stripped(text.substr(1, text.size() - 2));
    char quote = 0;
    std::size_t start = 0;
    for (std::size_t k = 0; k <= inner.size() && !inner.empty(); ++k) {
      const char c = k < inner.size() ? inner[k] : ',';
      if (quote && k < inner.size()) {
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == ',') {
        items.push_back(scalar(stripped(inner.substr(start, k - start))));
        start = k + 1;
      }
    }
    return list_of(items);
  }

  Value list_of(const std::vector<Value>& items) const {
    std::vector<std::string> texts;
    std::vector<double> numbers;
    for (const Value& item : items) {
      if (item.index() == 4) texts.push_back(as_text(item));
      if (const auto number = as_number(item)) numbers.push_back(*number);
    }
    if (texts.size() == items.size()) return texts;
    if (numbers.size() == items.size()) return numbers;
    fail("a list of mixed values");
  }

  void put_list() { out_.all[key_].value = list_of(list_); }

  const std::string& text_;
  const std::string& name_;
  Entries out_;
  std::size_t line_ = 0;
  bool begun_ = false;
  std::string key_;  // that has no value yet, or the list below
  std::vector<Value> list_;
  std::map<std::string, std::size_t> lines_;
};

}  // namespace

Json read_json(const std::string& text, const std::string& name) {
  try {
    Json out = parse_json(text, printable(name), deepest);
    if (!out.is_object()) throw Error(Exit::usage, printable(name) + ": is not a JSON object");
    return out;
  } catch (const Error& e) {
    const std::size_t at = json_ends_at(text);
    if (at == std::string_view::npos)
      throw Error(Exit::usage, e.what());  // JSON, but nested too deeply or with a key twice
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at ? at - 1 : 0), '\n');
    fail_at(name, static_cast<std::size_t>(line), "not valid JSON", hint(text, at));
  }
}

Entries read_yaml(const std::string& text, const std::string& name) {
  return Yaml(text, name).read();
}

}  // namespace eng::converter
