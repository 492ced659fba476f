// SPDX-License-Identifier: Apache-2.0
#include "session/checksum.hpp"

#include <fmt/core.h>

namespace eng {

std::string Checksum::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string Checksum::of(const std::string& bytes) {
  Checksum sum;
  sum.add(bytes.data(), bytes.size());
  return sum.hex();
}

}  // namespace eng
