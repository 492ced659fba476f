// SPDX-License-Identifier: Apache-2.0
// YAML, by libyaml's events: objects and lists in one another, anchors, merged keys, texts of several lines.
#include <yaml.h>

#include <algorithm>
#include <map>

#include "core/base/text.hpp"
#include "session/config/spelling.hpp"
#include "session/convert/entries.hpp"

namespace eng::converter {
namespace {

constexpr std::size_t most = 100'000;  // values, those of aliases as often as they are named

class Yaml {
 public:
  Yaml(const std::string& text, const std::string& name) : name_(name) {
    if (!yaml_parser_initialize(&parser_)) throw std::bad_alloc();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Yaml() {
    drop();
    yaml_parser_delete(&parser_);
  }
  Yaml(const Yaml&) = delete;
  Yaml& operator=(const Yaml&) = delete;

  Json read() {
    next();  // the start of the stream
    if (next() == YAML_STREAM_END_EVENT) throw Error(Exit::usage, printable(name_) + " has no keys");
    next();
    if (event_.type != YAML_MAPPING_START_EVENT)
      fail(event_.type == YAML_SEQUENCE_START_EVENT ? "a list without a key" : "not a `key: value` line");
    Json out = value(0);
    next();  // the end of the document
    if (next() != YAML_STREAM_END_EVENT) fail("a second document");
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& why, std::size_t line = 0) const {
    throw Error(Exit::usage, fmt::format("{}:{}: {}", printable(name_), line ? line : this->line(), why));
  }

  std::size_t line() const { return event_.start_mark.line + 1; }

  void drop() {
    if (held_) yaml_event_delete(&event_);
    held_ = false;
  }

  yaml_event_type_t next() {
    drop();
    if (!yaml_parser_parse(&parser_, &event_)) {
      event_ = {};
      const std::string why = parser_.problem ? parser_.problem : "it cannot be read";
      fail("not valid YAML: " + printable(why, 200), parser_.problem_mark.line + 1);
    }
    held_ = true;
    return event_.type;
  }

  static std::string text_of(const yaml_char_t* text) { return text ? reinterpret_cast<const char*>(text) : ""; }

  // The value at this event; afterwards the event is its last one.
  Json value(std::size_t depth) {
    if (depth > deepest) fail("nested too deeply");
    if (++count_ > most) fail("more values than a file of arguments has");
    switch (event_.type) {
      case YAML_SCALAR_EVENT:
        return keep(text_of(event_.data.scalar.anchor), scalar());
      case YAML_SEQUENCE_START_EVENT: {
        const std::string anchor = text_of(event_.data.sequence_start.anchor);
        Json out = Json::array();
        while (next() != YAML_SEQUENCE_END_EVENT) out.push_back(value(depth + 1));
        return keep(anchor, std::move(out));
      }
      case YAML_MAPPING_START_EVENT: {
        const std::string anchor = text_of(event_.data.mapping_start.anchor);
        return keep(anchor, mapping(depth));
      }
      case YAML_ALIAS_EVENT: {
        const std::string anchor = text_of(event_.data.alias.anchor);
        const auto found = anchors_.find(anchor);
        if (found == anchors_.end()) fail("`*" + printable(anchor, 80) + "` names no value");
        count_ += found->second.second;
        if (count_ > most) fail("more values than a file of arguments has");
        return found->second.first;
      }
      default:
        fail("a value is missing");
    }
  }

  Json keep(const std::string& anchor, Json made) {
    if (!anchor.empty()) anchors_[anchor] = {made, size(made)};
    return made;
  }

  static std::size_t size(const Json& json) {
    std::size_t out = 1 + (json.is_string() ? json.text().size() / 64 : 0);
    if (json.is_array())
      for (const Json& item : json.list()) out += size(item);
    if (json.is_object())
      for (const auto& member : json.members()) out += size(member.value);
    return out;
  }

  Json mapping(std::size_t depth) {
    Json out = Json::ordered();
    std::map<std::string, std::size_t> lines;
    std::vector<Json> merged;
    while (next() != YAML_MAPPING_END_EVENT) {
      if (event_.type != YAML_SCALAR_EVENT) fail("a key is not a word");
      const std::string key = text_of(event_.data.scalar.value);
      const bool plain = event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
      if (key.empty()) fail("a key without a name");
      const auto [found, first] = lines.emplace(key, line());
      if (!first) fail(fmt::format("`{}` appears twice, first in line {}", printable(key, 80), found->second));
      next();
      Json made = value(depth + 1);
      if (key == "<<" && plain && made.is_object())
        merged.push_back(std::move(made));
      else if (key == "<<" && plain && made.is_array())
        merged.insert(merged.end(), made.list().begin(), made.list().end());
      else
        out[key] = std::move(made);
    }
    for (const Json& one : merged) {
      if (!one.is_object()) fail("`<<` merges objects alone");
      for (const auto& member : one.members())
        if (!out.contains(member.key)) out[member.key] = member.value;
    }
    return out;
  }

  Json scalar() const {
    const std::string text(reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length);
    const std::string tag = text_of(event_.data.scalar.tag), core = "tag:yaml.org,2002:";
    if (!tag.empty() && (!tag.starts_with(core) || tag.find_first_of("/.", core.size()) != std::string::npos))
      fail("a kind of value that is not read here: " + printable(tag, 80));
    const bool plain = event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (tag == core + "str" || (!plain && tag.empty())) return text;
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
    const std::string small = lower_case(text);
    for (const char* none : {".nan", ".inf", "-.inf", "+.inf", "nan", "inf", "-inf"})
      if (small == none) fail(printable(text) + " is not a number that can be used");
    return json_of(value_of_word(text));
  }

  static Json json_of(const Value& value) {
    if (const auto* flag = std::get_if<bool>(&value)) return *flag;
    if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
    if (const auto* number = std::get_if<double>(&value)) return *number;
    return as_text(value);
  }

  const std::string& name_;
  yaml_parser_t parser_ = {};
  yaml_event_t event_ = {};
  bool held_ = false;
  std::size_t count_ = 0;
  std::map<std::string, std::pair<Json, std::size_t>> anchors_;  // and the number of its values
};

}  // namespace

Json read_yaml(const std::string& text, const std::string& name) {
  return Yaml(text, name).read();
}

}  // namespace eng::converter
