// SPDX-License-Identifier: Apache-2.0
#include "core/config/value.hpp"

#include <fmt/format.h>

#include <cmath>

namespace eng {

bool Table::operator==(const Table& other) const {
  return values == other.values;
}

const char* kind_of(const Value& value) {
  static constexpr const char* kinds[] = {"nothing", "boolean",         "integer",         "number",
                                          "string",  "list of strings", "list of numbers", "list of tables"};
  return kinds[value.index()];
}

std::string format_bytes(double bytes) {
  if (std::fabs(bytes) < 1024) return fmt::format("{:.0f} B", bytes);
  const char* prefix = "KMGTPE";
  // 1023.96 would print as 1024.0.
  for (bytes /= 1024; std::fabs(bytes) >= 1023.95 && prefix[1] != '\0'; ++prefix) bytes /= 1024;
  return fmt::format("{:.1f} {}iB", bytes, *prefix);
}

}  // namespace eng
