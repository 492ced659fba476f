// SPDX-License-Identifier: Apache-2.0
// The leases that the passes over the blocks need, and their acquisition ahead of the passes.
#pragma once

#include <set>

#include "core/plan/blocks.hpp"
#include "core/plan/homes.hpp"
#include "core/plan/leases.hpp"

namespace eng {

// The needs of the passes of a segment, in their order.
class Demand {
 public:
  Demand(const Model& model, const Homes& homes, const std::vector<BlockEmitter::Reads>& passes);
  size_t passes() const { return weights_.size(); }
  // Units whose weights pass k reads from a lease.
  const std::set<size_t>& weights(size_t k) const { return weights_[k]; }
  // The first pass from `from` on that reads the weights of unit u from a lease; passes() if there is none.
  size_t next_use(size_t u, size_t from) const;
  // The bytes of a weight or a gradient of unit u in the type that the model computes with.
  uint64_t bytes(size_t u) const { return bytes_[u]; }
  // The bytes of the weights of passes [from, to] together.
  uint64_t weight_bytes(size_t from, size_t to) const;
  // The most bytes of the weights of any `ahead` + 1 passes in a row.
  uint64_t most_weights(int64_t ahead) const;
  // Per pass: the bytes of fresh gradients that are there at a time. Each is from its first contribution to its
  // reduction; of the blocks whose gradients are reduced, the last `turns` - 1 are still there.
  std::vector<uint64_t> gradients(size_t turns) const;
  // True if in every pass its weights and those gradients are at most `limit` bytes.
  bool fits(uint64_t limit, size_t turns) const;

 private:
  std::vector<std::set<size_t>> weights_;  // per pass
  std::vector<std::vector<size_t>> uses_;  // per unit: passes
  std::vector<uint64_t> bytes_;            // per unit
  struct Gradients {
    uint64_t here = 0;      // bytes
    uint64_t released = 0;  // bytes that go after this pass
    bool backward = false;
  };
  std::vector<Gradients> gradients_;  // per pass
};

// Leases the weights of the passes of a segment, ahead of their uses where there is room.
class Prefetch {
 public:
  // `room`: bytes for weights during each pass; each holds what that pass needs. `fill` acquires a unit's lease and
  // makes it whole.
  Prefetch(Leases& leases, Demand demand, std::vector<uint64_t> room, int64_t ahead,
           std::function<void(size_t unit)> fill)
      : leases_(leases), demand_(std::move(demand)), room_(std::move(room)), ahead_(ahead), fill_(std::move(fill)) {}
  // Leases what pass k needs, then what the next passes need as far as there is room.
  void before(size_t k);

 private:
  bool make_room(uint64_t bytes, size_t from, size_t to);
  Leases& leases_;
  Demand demand_;
  std::vector<uint64_t> room_;
  int64_t ahead_;
  std::function<void(size_t)> fill_;
  std::set<size_t> live_;
  uint64_t held_ = 0;  // bytes of live_
};

}  // namespace eng
