// SPDX-License-Identifier: Apache-2.0
// Exchanges between all ranks: texts, or records of fixed size as bytes.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/error.hpp"

namespace eng {

// Returns the texts of all ranks, by rank. All ranks call it, outside steps. Empty with one rank. Throws
// Error(Exit::communication).
using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

// Returns the texts of all ranks, by rank, which must have as many bytes as this one's. Throws
// Error(Exit::communication).
inline std::vector<std::string> exchange_bytes(const Exchange& exchange, const void* mine, size_t size,
                                               const char* what) {
  std::vector<std::string> all = exchange(std::string(static_cast<const char*>(mine), size));
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].size() != size)
      throw Error(Exit::communication, fmt::format("{}: rank {} gave {} bytes, not {}", what, r, all[r].size(), size),
                  "its bytes were changed in transit, or it runs another engine");
  return all;
}

// Returns the records of all ranks, by rank. All ranks call it with the same type. `what` names the record in messages:
// "the agreement before a step". Throws Error(Exit::communication) if a rank sends another number of bytes.
template <class Record>
std::vector<Record> exchange_records(const Exchange& exchange, const Record& mine, const char* what) {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % 8 == 0, "fixed size, no padding at the end");
  const std::vector<std::string> all = exchange_bytes(exchange, &mine, sizeof(mine), what);
  std::vector<Record> out(all.size());
  for (size_t r = 0; r < all.size(); ++r) std::memcpy(&out[r], all[r].data(), sizeof(Record));
  return out;
}

// Like exchange_records, for lists of numbers, which have the same length on all ranks.
inline std::vector<std::vector<int64_t>> exchange_numbers(const Exchange& exchange, const std::vector<int64_t>& mine,
                                                          const char* what) {
  const std::vector<std::string> all = exchange_bytes(exchange, mine.data(), mine.size() * sizeof(int64_t), what);
  std::vector<std::vector<int64_t>> out(all.size(), std::vector<int64_t>(mine.size()));
  for (size_t r = 0; r < all.size(); ++r) std::memcpy(out[r].data(), all[r].data(), all[r].size());
  return out;
}

}  // namespace eng
