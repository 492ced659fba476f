// SPDX-License-Identifier: Apache-2.0
// Computes the tokens of sample i of a split, and the order in which an epoch visits the samples. Only integers are
// used, so the result is the same on every machine; nothing is stored per sample.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace text_data {

// Cuts a stream of tokens into windows of T + 1 tokens (T inputs and the label of the last). Neighbouring windows of
// one split share one token: the last label of the first is the first input of the second. So every token is predicted.
// The held-out windows form a few stretches of equal length (or one window more), spread evenly over the stream so that
// they represent all of it. At the edges of a stretch nothing is shared: each change of split starts one token later.
// With R stretches:
//   [train ...][held out ...] [train ...][held out ...] ...   R times, (A + B) T + 2 R tokens
class Windows {
 public:
  static constexpr uint64_t max_stretches = 16;

  Windows() = default;
  Windows(uint64_t tokens, uint64_t length, double held_out) : length_(length) {
    if (held_out <= 0) {
      count_[0] = tokens > 0 ? (tokens - 1) / length : 0;
      return;
    }
    for (uint64_t stretches = max_stretches; stretches > 0; --stretches) {
      uint64_t total = tokens > 2 * stretches ? (tokens - 2 * stretches) / length : 0;
      // 0.29 of 100 windows must give 29, although the product in doubles is slightly smaller: hence the small summand.
      auto share = static_cast<uint64_t>(std::floor(held_out * static_cast<double>(total) + 1e-9));
      uint64_t held = std::max<uint64_t>(1, share);
      if (held < stretches || total < held + stretches) continue;
      stretches_ = stretches;
      count_[0] = total - held;
      count_[1] = held;
      return;
    }
  }

  // Samples of split 0 (training) or 1 (validation).
  uint64_t count(int split) const { return count_[split]; }

  // The first token of sample `i` of `split`, i < count(split).
  uint64_t start(int split, uint64_t i) const {
    if (stretches_ == 0) return i * length_;
    uint64_t r = ((i + 1) * stretches_ - 1) / count_[split];
    uint64_t base = (before(0, r) + before(1, r)) * length_ + 2 * r;
    uint64_t inside = (i - before(split, r)) * length_;
    if (split == 0) return base + inside;
    return base + (before(0, r + 1) - before(0, r)) * length_ + 1 + inside;
  }

 private:
  // Samples of `split` before stretch r.
  uint64_t before(int split, uint64_t r) const { return r * count_[split] / stretches_; }

  uint64_t length_ = 1;
  uint64_t stretches_ = 0;
  uint64_t count_[2] = {0, 0};
};

// Every output bit depends on every input bit; a bijection (each step can be undone).
constexpr uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 29;
  x *= 0x9e3779b97f4a7c15u;
  x ^= x >> 32;
  return x;
}

// A permutation of 0 .. n-1 chosen by (seed, epoch, stream) and computed one element at a time. It is a Feistel network
// on the smallest power of two that is at least n, and at least 64, applied again until the result is below n (from n =
// 33 on, less than twice on average).
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t stream) : n_(n) {
    key_ = mix(mix(mix(seed + golden) ^ (epoch + 2 * golden)) ^ (stream + 3 * golden));
    int bits = std::max(smallest_bits, static_cast<int>(std::bit_width(n - 1)));
    low_bits_ = (bits + 1) / 2;
    low_mask_ = (uint64_t{1} << low_bits_) - 1;
    high_mask_ = (uint64_t{1} << (bits - low_bits_)) - 1;
  }

  uint64_t operator()(uint64_t i) const {
    if (n_ == 1) return 0;
    do i = encrypt(i);
    while (i >= n_);
    return i;
  }

 private:
  static constexpr uint64_t golden = 0x9e3779b97f4a7c15u;
  static constexpr uint64_t rounds = 10;
  // Halves of one or two bits mix badly: neighbours were visibly related. A tiny n therefore uses 64 places and takes
  // more rounds.
  static constexpr int smallest_bits = 6;

  uint64_t encrypt(uint64_t x) const {
    uint64_t low = x & low_mask_;
    uint64_t high = x >> low_bits_;
    for (uint64_t r = 0; r < rounds; r += 2) {
      high ^= mix(key_ + (r + 1) * golden + mix(low)) & high_mask_;
      low ^= mix(key_ + (r + 2) * golden + mix(high)) & low_mask_;
    }
    return high << low_bits_ | low;
  }

  uint64_t n_;
  uint64_t key_ = 0;
  int low_bits_ = 1;
  uint64_t low_mask_ = 1;
  uint64_t high_mask_ = 1;
};

}  // namespace text_data
