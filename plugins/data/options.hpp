// SPDX-License-Identifier: Apache-2.0
// Reads typed values of [data] through the host's table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "failure.hpp"

namespace text_data {

inline void taken(eng_status status, const char* key) {
  if (status != ENG_OK)
    throw Failure(status, std::string("[data] ") + key + ": the engine did not hand over this option");
}

inline std::string get_string(const eng_options* options, const char* key) {
  const char* value = nullptr;
  taken(options->get_string(options, key, &value, nullptr), key);
  return value;
}

inline double get_float(const eng_options* options, const char* key) {
  double value = 0;
  taken(options->get_float(options, key, &value, nullptr), key);
  return value;
}

inline int64_t get_int(const eng_options* options, const char* key) {
  int64_t value = 0;
  taken(options->get_int(options, key, &value, nullptr), key);
  return value;
}

inline bool get_bool(const eng_options* options, const char* key) {
  int32_t value = 0;
  taken(options->get_bool(options, key, &value, nullptr), key);
  return value != 0;
}

inline std::vector<std::string> get_strings(const eng_options* options, const char* key) {
  uint32_t count = 0;
  taken(options->get_count(options, key, &count, nullptr), key);
  std::vector<std::string> values;
  for (uint32_t i = 0; i < count; ++i) {
    const char* value = nullptr;
    taken(options->get_string_at(options, key, i, &value, nullptr), key);
    values.emplace_back(value);
  }
  return values;
}

}  // namespace text_data
