// SPDX-License-Identifier: Apache-2.0
// XXH3 with 128 bits, of the content of a file or of a stream of tokens.
#pragma once

#include <xxhash.h>

#include <array>
#include <memory>
#include <new>
#include <string>
#include <string_view>

namespace text_data {

using Digest = std::array<unsigned char, 16>;

inline std::string hexadecimal(const Digest& digest) {
  std::string text;
  for (unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void add(const void* data, std::size_t size) { XXH3_128bits_update(state_.get(), data, size); }
  void add(std::string_view text) { add(text.data(), text.size()); }
  // Adds a text with its length, so that neighbouring texts of a list cannot be confused.
  void add_field(std::string_view text) {
    add(std::to_string(text.size()) + ":");
    add(text);
  }
  Digest digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    return std::to_array(canonical.digest);
  }
  std::string text() const { return hexadecimal(digest()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace text_data
