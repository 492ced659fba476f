// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace eng {

// Elements pass through here, a tile at a time: hashed, then written while still in the cache.
class Tiles {
 public:
  explicit Tiles(std::span<char> staging) : memory_(staging.empty() ? kTile : 0) {
    tile_ = staging.empty() ? std::span(memory_) : staging.first(std::min<size_t>(staging.size(), kTile));
  }
  // Calls `use` with each (first, count) of `all` elements of `size` bytes.
  template <class Use>
  void each(uint64_t all, uint64_t size, Use use) const {
    const uint64_t most = tile_.size() / size;
    for (uint64_t first = 0; first < all; first += most) use(first, std::min(most, all - first));
  }
  char* data() const { return tile_.data(); }

 private:
  static constexpr uint64_t kTile = 8u << 20;
  std::vector<char> memory_;
  std::span<char> tile_;
};

}  // namespace eng
