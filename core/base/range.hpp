// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace eng {

// Elements [first, first + count).
struct Range {
  uint64_t first = 0, count = 0;
  uint64_t end() const { return first + count; }
  bool operator==(const Range&) const = default;
};
// The least multiple of `to` that is at least n.
inline uint64_t up(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}
// The elements that are in both.
inline Range overlap(const Range& a, const Range& b) {
  const uint64_t first = std::max(a.first, b.first);
  return {first, std::max(first, std::min(a.end(), b.end())) - first};
}

// Half-open ranges of [0, size), each with a value; visiting a range splits those at its borders.
template <class T>
class RangeMap {
 public:
  explicit RangeMap(uint64_t size, T initial = {}) : size_(size) { at_[0] = initial; }

  // Calls visit(T&) for every part of [from, to).
  template <class F>
  void visit(uint64_t from, uint64_t to, F visit) {
    if (to > size_) to = size_;
    if (from >= to) return;
    split(from);
    if (to < size_) split(to);
    for (auto it = at_.find(from); it != at_.end() && it->first < to; ++it) visit(it->second);
  }

 private:
  void split(uint64_t position) {
    auto it = at_.upper_bound(position);
    --it;
    if (it->first != position) at_.emplace_hint(std::next(it), position, it->second);
  }
  uint64_t size_;
  std::map<uint64_t, T> at_;
};

}  // namespace eng
