// SPDX-License-Identifier: Apache-2.0
// A JSON value, read and written by nlohmann's library. Only json.cpp includes that library, whose templates take long
// to compile. Also: JSON that files of others hold, read strictly and refused with the place.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace eng {

// Text that is not JSON, or a value that is not what its reader expects.
struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Json {
 public:
  struct Member;  // of an object: `key` and `value`
  struct Entry;   // the same, as written in source text
  using List = std::vector<Json>;
  using Members = std::vector<Member>;

  Json();  // null
  Json(std::nullptr_t);
  Json(bool value);
  Json(int value);
  Json(unsigned value);
  Json(int64_t value);
  Json(uint64_t value);
  Json(double value);
  Json(const char* text);
  Json(std::string text);
  Json(List list);
  Json(const std::vector<std::string>& list);
  Json(const std::vector<int64_t>& list);
  Json(const std::vector<uint32_t>& list);
  Json(const std::map<std::string, std::string>& members);
  Json(const std::map<std::string, uint64_t>& members);
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  static Json array(std::initializer_list<Json> list = {});
  // Its members are sorted by their keys, or stay in the order in which they are added.
  static Json object(std::initializer_list<Entry> members = {});
  static Json ordered(std::initializer_list<Entry> members = {});

  // If two members have the same key, the last one counts. At most 500 levels deep. Throws JsonError.
  static Json parse(std::string_view text);
  // Like `parse`, but null for text that is not JSON. `ordered`: objects keep the order of the text.
  static Json parse_or_null(std::string_view text, bool ordered = false);
  // `indent`: -1 for one line. Text that is not UTF-8 throws JsonError, or (replace) has its wrong bytes replaced.
  std::string dump(int indent = -1, bool replace = false) const;

  bool is_null() const;
  bool is_boolean() const;
  bool is_number() const;
  bool is_integer() const;   // written without fraction or exponent
  bool is_unsigned() const;  // and without sign
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;

  // Throw JsonError for a value of another kind.
  bool boolean() const;
  int64_t integer() const;  // converted as by static_cast
  uint64_t whole() const;   // of an integer >= 0
  double number() const;
  const std::string& text() const;
  const List& list() const;
  const Members& members() const;

  // Items of a list or members of an object; 0 for null, 1 for any other value.
  size_t size() const;
  const Json& operator[](size_t k) const;  // throws JsonError if there is no such item
  void push_back(Json value);              // null becomes a list

  // nullptr, null or "" if this is no object or has no such member.
  const Json* find(std::string_view key) const;
  const Json& get(std::string_view key) const;
  std::string text_at(std::string_view key) const;  // throws JsonError for a member that is no text
  bool contains(std::string_view key) const;
  const Json& at(std::string_view key) const;  // throws JsonError if there is no such member
  Json& operator[](std::string_view key);      // adds a member; null becomes an object
  void erase(std::string_view key);

  // Compares objects regardless of their order, numbers by their value.
  bool operator==(const Json& other) const;

 private:
  friend class JsonReader;
  struct Object {
    Members members;
    bool ordered = false;
  };
  Object& mutable_object();
  const char* kind() const;

  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, List, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
};
struct Json::Entry {
  const char* key;
  Json value;
};

// Throws Error(Exit::checkpoint, "WHERE: WHY").
[[noreturn]] void refuse(const std::string& where, const std::string& why, const std::string& help = "");
// A document of bounded depth, with no key twice in an object. `look` sees each value that is no object or list, and
// the key it stands at. Throws as `refuse`.
Json parse_json(std::string_view text, const std::string& where, size_t deepest,
                const std::function<void(const std::string& key, const Json& value)>& look = {});
// Like parse_json, for texts and numbers alone; all numbers but that of `fraction` are whole and >= 0, so that 1.5 and
// -1 are never silently made to fit.
Json parse_strictly(std::string_view text, const std::string& where, const std::string& fraction = "");
// For messages: how many bytes were read when the text was seen not to be JSON; npos if it is JSON.
size_t json_ends_at(std::string_view text);

}  // namespace eng
