// SPDX-License-Identifier: Apache-2.0
// Values of a JSON file, with errors that name the file and the place in it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "json_text.hpp"

namespace text_data {

using nlohmann::json;

class JsonReader {
 public:
  explicit JsonReader(std::string file) : file_(std::move(file)) {}
  const std::string& file() const { return file_; }

  [[noreturn]] void refuse(const std::string& place, const std::string& what, eng_status status = ENG_INVALID) const {
    throw Failure(status, file_ + ": " + place + " " + what);
  }
  [[noreturn]] void unsupported(const std::string& place, const json& value, const std::string& instead) const {
    refuse(place,
           "is " + printable(value.dump(-1, ' ', true, json::error_handler_t::replace), 60) +
               ", which is not supported: " + instead,
           ENG_UNSUPPORTED);
  }
  const json& at(const json& object, const char* key, const std::string& place, json::value_t type) const {
    const auto found = object.find(key);
    if (found == object.end()) refuse(place, "is missing");
    if (found->type() != type)
      refuse(place, std::string("is a ") + found->type_name() + ", not " + json(type).type_name());
    return *found;
  }
  std::string text(const json& object, const char* key, const std::string& place) const {
    return at(object, key, place + "." + key, json::value_t::string).get<std::string>();
  }
  std::string type_of(const json& object, const std::string& place) const {
    if (!object.is_object()) refuse(place, std::string("is a ") + object.type_name() + ", not an object");
    return text(object, "type", place);
  }
  bool flag(const json& object, const char* key, const std::string& place, bool fallback) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return fallback;
    if (!found->is_boolean()) refuse(place + (place.empty() ? "" : ".") + key, "is not true or false");
    return found->get<bool>();
  }
  int32_t id_of(const json& value, const std::string& place) const {
    if (!value.is_number_integer()) refuse(place, "is not a whole number");
    if (value.is_number_unsigned() ? value.get<uint64_t>() >= uint64_t{most_ids} : true)
      refuse(place, "is out of range: ids are from 0 to " + std::to_string(most_ids - 1));
    return value.get<int32_t>();
  }
  // Far above any vocabulary; a table has a row for each id.
  static constexpr int64_t most_ids = int64_t{1} << 21;

 private:
  std::string file_;
};

}  // namespace text_data
