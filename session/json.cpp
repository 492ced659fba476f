// SPDX-License-Identifier: Apache-2.0
#include "session/json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/error.hpp"

namespace eng {
namespace {

using Library = nlohmann::ordered_json;

constexpr size_t kDeepest = 500;  // for text that is not read strictly: values are destroyed by recursion

Library to_library(const Json& json) {
  if (json.is_boolean()) return json.boolean();
  if (json.is_unsigned()) return json.whole();
  if (json.is_integer()) return json.integer();
  if (json.is_number()) return json.number();
  if (json.is_string()) return json.text();
  Library out;
  if (json.is_array()) {
    auto& list = (out = Library::array()).get_ref<Library::array_t&>();
    list.reserve(json.size());
    for (const Json& item : json.list()) list.push_back(to_library(item));
  } else if (json.is_object()) {
    auto& members = (out = Library::object()).get_ref<Library::object_t&>();
    members.reserve(json.size());
    for (const auto& [key, value] : json.members()) members.emplace_back(key, to_library(value));
  }
  return out;
}

// In sorted members: the place of the key, or where it belongs.
template <class Members>
auto lower(Members& members, std::string_view key) {
  return std::lower_bound(members.begin(), members.end(), key,
                          [](const auto& member, std::string_view k) { return member.key < k; });
}

template <class To, class Items>
To converted(const Items& items) {
  To out;
  out.reserve(items.size());
  for (const auto& item : items) out.emplace_back(item);
  return out;
}

}  // namespace

// Makes a value of what the library's parser sees.
class JsonReader {
 public:
  using Look = std::function<void(const std::string&, const Json&)>;
  // `where`: of a strict reader, for `refuse`.
  JsonReader(size_t deepest, bool ordered, const std::string* where = nullptr, const Look* look = nullptr)
      : deepest_(deepest), ordered_(ordered), where_(where), look_(look) {}

  bool read(std::string_view text) { return Library::sax_parse(text.begin(), text.end(), this); }
  Json& result() { return result_; }
  size_t failed_at() const { return failed_at_; }

  bool null() { return leaf(nullptr); }
  bool boolean(bool value) { return leaf(value); }
  bool number_integer(int64_t value) { return leaf(value); }
  bool number_unsigned(uint64_t value) { return leaf(value); }
  bool number_float(double value, const std::string&) { return leaf(value); }
  bool string(std::string& text) { return leaf(std::move(text)); }
  bool binary(Library::binary_t&) { return false; }
  bool start_object(size_t) { return start(ordered_ ? Json::ordered() : Json::object()); }
  bool start_array(size_t) { return start(Json::array()); }
  bool end_array() { return end(); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) {
    failed_at_ = at;
    return false;
  }

  bool key(std::string& text) {
    key_ = text;
    keys_.push_back(std::move(text));
    return true;
  }

  bool end_object() {
    Json::Members& all = std::get<Json::Object>(open_.back().value_).members;
    if (!ordered_) {
      const auto less = [](const Json::Member& a, const Json::Member& b) { return a.key < b.key; };
      std::stable_sort(all.begin(), all.end(), less);
      const auto twice = [](const Json::Member& a, const Json::Member& b) { return a.key == b.key; };
      if (const auto found = std::adjacent_find(all.begin(), all.end(), twice); found != all.end()) {
        if (where_) refuse(*where_, fmt::format("`{}` appears twice", found->key));
        std::reverse(all.begin(), all.end());  // the last one stays
        all.erase(std::unique(all.begin(), all.end(), twice), all.end());
        std::reverse(all.begin(), all.end());
      }
    } else if (std::unordered_set<std::string_view> known;
               !std::all_of(all.begin(), all.end(), [&](const auto& m) { return known.insert(m.key).second; })) {
      Json::Members kept;  // the last value stays, where the first one was
      std::unordered_map<std::string, size_t> place;
      for (Json::Member& m : all)
        if (const auto [at, first] = place.emplace(m.key, kept.size()); first)
          kept.push_back(std::move(m));
        else
          kept[at->second].value = std::move(m.value);
      all = std::move(kept);
    }
    return end();
  }

 private:
  bool shallow() const {
    if (open_.size() <= deepest_) return true;
    if (where_) refuse(*where_, "nested too deeply");
    return false;
  }

  bool leaf(Json value) {
    if (!shallow()) return false;
    if (look_ && *look_) (*look_)(key_, value);
    add(std::move(value));
    return true;
  }

  bool start(Json value) {
    if (!shallow()) return false;
    open_.push_back(std::move(value));
    return true;
  }

  bool end() {
    Json done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done));
    return true;
  }

  void add(Json value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (Json& in = open_.back(); in.is_array()) {
      in.push_back(std::move(value));
    } else {
      std::string name = std::move(keys_.back());
      keys_.pop_back();
      std::get<Json::Object>(in.value_).members.push_back({std::move(name), std::move(value)});
    }
  }

  const size_t deepest_;
  const bool ordered_;
  const std::string* where_;
  const Look* look_;
  Json result_;
  Json::List open_;                // lists and objects that have begun
  std::vector<std::string> keys_;  // of the members that have begun
  std::string key_;                // the latest
  size_t failed_at_ = 0;
};

Json::Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(value) {}
Json::Json(int value) : value_(int64_t{value}) {}
Json::Json(unsigned value) : value_(uint64_t{value}) {}
Json::Json(int64_t value) : value_(value) {}
Json::Json(uint64_t value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(List list) : value_(std::move(list)) {}
Json::Json(const std::vector<std::string>& list) : value_(converted<List>(list)) {}
Json::Json(const std::vector<int64_t>& list) : value_(converted<List>(list)) {}
Json::Json(const std::vector<uint32_t>& list) : value_(converted<List>(list)) {}
Json::Json(const std::map<std::string, std::string>& members) : value_(Object()) {
  for (const auto& [key, value] : members) mutable_object().members.push_back({key, value});
}
Json::Json(const std::map<std::string, uint64_t>& members) : value_(Object()) {
  for (const auto& [key, value] : members) mutable_object().members.push_back({key, value});
}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json Json::array(std::initializer_list<Json> list) {
  return List(list);
}

Json Json::object(std::initializer_list<Entry> members) {
  Json out;
  out.value_ = Object();
  for (const Entry& e : members) out[e.key] = e.value;
  return out;
}

Json Json::ordered(std::initializer_list<Entry> members) {
  Json out;
  out.value_ = Object{{}, true};
  for (const Entry& e : members) out[e.key] = e.value;
  return out;
}

Json Json::parse(std::string_view text) {
  JsonReader reader(kDeepest, false);
  if (!reader.read(text)) throw JsonError("the text is not valid JSON");
  return std::move(reader.result());
}

Json Json::parse_or_null(std::string_view text, bool ordered) {
  JsonReader reader(kDeepest, ordered);
  return reader.read(text) ? std::move(reader.result()) : Json();
}

std::string Json::dump(int indent, bool replace) const {
  const auto wrong = replace ? Library::error_handler_t::replace : Library::error_handler_t::strict;
  try {
    return to_library(*this).dump(indent, ' ', false, wrong);
  } catch (const Library::exception&) {
    throw JsonError("a text is not valid UTF-8");
  }
}

bool Json::is_null() const {
  return std::holds_alternative<std::monostate>(value_);
}
bool Json::is_boolean() const {
  return std::holds_alternative<bool>(value_);
}
bool Json::is_number() const {
  return is_integer() || std::holds_alternative<double>(value_);
}
bool Json::is_integer() const {
  return is_unsigned() || std::holds_alternative<int64_t>(value_);
}
bool Json::is_unsigned() const {
  return std::holds_alternative<uint64_t>(value_);
}
bool Json::is_string() const {
  return std::holds_alternative<std::string>(value_);
}
bool Json::is_array() const {
  return std::holds_alternative<List>(value_);
}
bool Json::is_object() const {
  return std::holds_alternative<Object>(value_);
}

const char* Json::kind() const {
  constexpr const char* names[] = {"null",     "true or false", "a whole number", "a whole number",
                                   "a number", "a text",        "a list",         "an object"};
  return names[value_.index()];
}

[[noreturn]] static void differs(const char* wanted, const char* is) {
  throw JsonError(fmt::format("{} is expected where {} stands", wanted, is));
}

bool Json::boolean() const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  differs("true or false", kind());
}

int64_t Json::integer() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return static_cast<int64_t>(*value);
  differs("a whole number", kind());
}

uint64_t Json::whole() const {
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return *value;
  if (const int64_t* value = std::get_if<int64_t>(&value_); value && *value >= 0) return static_cast<uint64_t>(*value);
  differs("a whole number >= 0", kind());
}

double Json::number() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return static_cast<double>(*value);
  if (const double* value = std::get_if<double>(&value_)) return *value;
  differs("a number", kind());
}

const std::string& Json::text() const {
  if (const std::string* value = std::get_if<std::string>(&value_)) return *value;
  differs("a text", kind());
}

const Json::List& Json::list() const {
  if (const List* value = std::get_if<List>(&value_)) return *value;
  differs("a list", kind());
}

const Json::Members& Json::members() const {
  if (const Object* value = std::get_if<Object>(&value_)) return value->members;
  differs("an object", kind());
}

Json::Object& Json::mutable_object() {
  if (is_null()) value_ = Object();
  if (Object* value = std::get_if<Object>(&value_)) return *value;
  differs("an object", kind());
}

size_t Json::size() const {
  if (is_array()) return list().size();
  return is_object() ? members().size() : !is_null();
}

const Json& Json::operator[](size_t k) const {
  if (k >= list().size()) throw JsonError(fmt::format("a list ends before item {}", k + 1));
  return list()[k];
}

void Json::push_back(Json value) {
  if (is_null()) value_ = List();
  if (!is_array()) differs("a list", kind());
  std::get<List>(value_).push_back(std::move(value));
}

const Json* Json::find(std::string_view key) const {
  const Object* object = std::get_if<Object>(&value_);
  if (!object) return nullptr;
  const Members& all = object->members;
  const auto found = object->ordered
                         ? std::find_if(all.begin(), all.end(), [&](const Member& m) { return m.key == key; })
                         : lower(all, key);
  return found != all.end() && found->key == key ? &found->value : nullptr;
}

const Json& Json::get(std::string_view key) const {
  static const Json null;
  const Json* found = find(key);
  return found ? *found : null;
}

std::string Json::text_at(std::string_view key) const {
  const Json* found = find(key);
  return found ? found->text() : "";
}

bool Json::contains(std::string_view key) const {
  return find(key) != nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) differs("an object", kind());
  if (const Json* found = find(key)) return *found;
  throw JsonError(fmt::format("`{}` is missing", key));
}

Json& Json::operator[](std::string_view key) {
  Object& object = mutable_object();
  if (const Json* found = find(key)) return const_cast<Json&>(*found);
  const auto place = object.ordered ? object.members.end() : lower(object.members, key);
  return object.members.insert(place, {std::string(key), Json()})->value;
}

void Json::erase(std::string_view key) {
  std::erase_if(mutable_object().members, [&](const Member& m) { return m.key == key; });
}

bool Json::operator==(const Json& other) const {
  if (is_number() && other.is_number())
    return is_integer() && other.is_integer() ? integer() == other.integer() : number() == other.number();
  if (value_.index() != other.value_.index()) return false;
  if (is_boolean()) return boolean() == other.boolean();
  if (is_string()) return text() == other.text();
  if (is_array()) return list() == other.list();
  const auto same = [&](const Member& m) {
    const Json* found = other.find(m.key);
    return found && m.value == *found;
  };
  return size() == other.size() && (is_null() || std::all_of(members().begin(), members().end(), same));
}

void refuse(const std::string& where, const std::string& why, const std::string& help) {
  throw Error(Exit::checkpoint, where + ": " + why, help);
}

Json parse_json(std::string_view text, const std::string& where, size_t deepest,
                const std::function<void(const std::string& key, const Json& value)>& look) {
  JsonReader reader(deepest, false, &where, &look);
  if (!reader.read(text)) refuse(where, "is not valid JSON");
  return std::move(reader.result());
}

Json parse_strictly(std::string_view text, const std::string& where, const std::string& fraction) {
  return parse_json(text, where, 6, [&](const std::string& key, const Json& value) {
    if (!value.is_string() && !value.is_unsigned() && key != fraction)
      refuse(where, fmt::format("{} in `{}` is neither a text nor a whole number >= 0", value.dump(), key));
  });
}

size_t json_ends_at(std::string_view text) {
  JsonReader reader(kDeepest, false);
  return reader.read(text) ? std::string_view::npos : std::min(reader.failed_at(), text.size());
}

}  // namespace eng
