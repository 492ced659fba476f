// SPDX-License-Identifier: Apache-2.0
// Measures how long the messages to and from each other rank have stood still. The deadline is for a rank that does not
// come, or that stopped; it does not limit how long a large transfer takes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mpi {

class Standstill {
 public:
  using Time = std::chrono::steady_clock::duration;  // since the messages were started

  // The next message is to or from `rank`.
  void add(uint32_t rank) {
    const auto it = std::find_if(ranks_.begin(), ranks_.end(), [&](const One& o) { return o.rank == rank; });
    of_.push_back(static_cast<size_t>(it - ranks_.begin()));
    if (it == ranks_.end()) ranks_.push_back({rank, 0, 0, {}});
    ++ranks_[of_.back()].all;
  }
  // All messages are started.
  void begin() {
    for (One& one : ranks_) one.open = one.all, one.moved = Time{};
  }
  // `through(k)` says whether message k has arrived or was taken.
  template <class Through>
  void look(Time now, Through through) {
    for (One& one : ranks_) one.before = one.open, one.open = 0;
    for (size_t k = 0; k < of_.size(); ++k) ranks_[of_[k]].open += !through(k);
    for (One& one : ranks_)
      if (one.open < one.before) one.moved = now;
  }
  // The time of the rank whose messages have stood still longest.
  Time longest(Time now) const {
    Time most{};
    for (const One& one : ranks_)
      if (one.open) most = std::max(most, now - one.moved);
    return most;
  }

 private:
  struct One {
    uint32_t rank;
    size_t all, open;  // messages in all; those that are not complete
    Time moved;
    size_t before = 0;
  };
  std::vector<One> ranks_;
  std::vector<size_t> of_;  // by message: an index into ranks_
};

}  // namespace mpi
