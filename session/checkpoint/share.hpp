// SPDX-License-Identifier: Apache-2.0
// The ranks that save and load together. They make the same decisions and fail together. Also, which part of the
// logical tensors each rank holds.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "core/base/range.hpp"
#include "session/checkpoint/manifest.hpp"
#include "session/ranks/exchange.hpp"

namespace eng {

struct Peers {
  uint32_t rank = 0, size = 1;
  Exchange exchange = {};  // not needed with one rank
  double timeout = 0;      // seconds that an exchange waits for a rank: [comm] timeout

  // Every rank does its part of the work and returns a text; all ranks get all texts. If a part throws, all ranks throw
  // the Error of the first rank that failed, with "rank K: " before its text (unchanged with a single rank).
  // `waits_for` goes before the text of an exchange that took too long: "rank 0 was still saving step-00000400".
  using Work = std::function<std::string()>;
  std::vector<std::string> agree(const std::string& waits_for, const Work& work) const;
  std::vector<std::string> agree(const Work& work) const { return agree("", work); }
  // Like `agree`, if only rank 0 has something to do.
  std::string lead(const std::string& waits_for, const Work& work) const;
  std::string lead(const Work& work) const { return lead("", work); }

 private:
  std::vector<std::string> meet(const std::string& mine, const std::string& waits_for) const;
};

inline constexpr const char* kParameterRole = "parameter";
inline constexpr const char* kPolicyRole = "policy";  // what a policy keeps of its own

// A tensor as a rank holds it. All ranks list the same tensors in the same order, including those of which they hold
// nothing.
struct TensorShare : TensorSpec {
  std::vector<Range> ranges = {};  // ascending, apart; of the part `columns`
  // The number of ranks that hold exactly these ranges of all tensors that are like this one in `copies` and `divided`.
  // This rank is number `copy` of them, and each writes a part. The Saver determines `copy`.
  uint32_t copies = 1, copy = 0;
  bool divided = false;   // as Tensor::divided: other ranks hold these than hold others with as many copies
  bool optional = false;  // weights that are read need not have it
  Columns columns = {};   // of which part it is
  // Calls use(range) for each range of the tensor that it holds.
  template <class Use>
  void each_range(Use use) const {
    for (const Range& r : ranges) columns.pieces(r, [&](uint64_t, const Range& piece) { use(piece); });
  }
};

// Every rank holds all of every tensor.
std::vector<TensorShare> whole(const std::vector<TensorSpec>& tensors, const Peers& peers = {});

// Elements of a tensor on their way to or from `host`.
using Read = std::function<void(const TensorSpec& tensor, uint64_t first, uint64_t count, void* host)>;
using Fill = std::function<void(const TensorSpec& tensor, uint64_t first, uint64_t count, const void* host)>;

// Processes elements a tile at a time: hashed, then written while still in the cache.
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
  static constexpr uint64_t kTile = 512u << 10;
  std::vector<char> memory_;
  std::span<char> tile_;
};

// The ranges that this rank writes of the parts it holds, by tensor: together all ranks write everything once.
std::vector<std::vector<Range>> written_ranges(const std::vector<TensorShare>& tensors);
// The bytes of that: the host memory of an asynchronous save.
uint64_t snapshot_bytes(const std::vector<TensorShare>& tensors);

}  // namespace eng
