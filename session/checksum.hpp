// SPDX-License-Identifier: Apache-2.0
// Checksums of bytes, as files and ranks compare them.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <string>

namespace eng {

// Streaming xxh3-128, as 32 lower-case hexadecimal digits.
class Checksum {
 public:
  Checksum() { XXH3_128bits_reset(state_.get()); }
  void add(const void* data, uint64_t bytes) { XXH3_128bits_update(state_.get(), data, size_t(bytes)); }
  std::string hex() const;
  static std::string of(const std::string& bytes);

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_{XXH3_createState(), XXH3_freeState};
};

}  // namespace eng
