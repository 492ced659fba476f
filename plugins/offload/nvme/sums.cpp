// SPDX-License-Identifier: Apache-2.0
#include "sums.hpp"

#include <xxhash.h>

namespace nvme {

namespace {

// Never 0, which stands for a block that was never written.
uint32_t sum_of(const char* data, uint64_t block) {
  const auto low = static_cast<uint32_t>(XXH3_64bits_withSeed(data, page, block));
  return low ? low : 1;
}

bool all_zero(const char* data) {
  return data[0] == 0 && std::memcmp(data, data + 1, page - 1) == 0;
}

}  // namespace

void Sums::set(uint64_t block, const char* data, uint64_t count) {
  for (uint64_t k = 0; k < count; ++k) at(block + k) = sum_of(data + k * page, block + k);
}

uint64_t Sums::first_wrong(uint64_t block, const char* data, uint64_t count) const {
  for (uint64_t k = 0; k < count; ++k) {
    const char* const here = data + k * page;
    const uint32_t sum = at(block + k);
    if (sum ? sum != sum_of(here, block + k) : !all_zero(here)) return k;
  }
  return count;
}

}  // namespace nvme
