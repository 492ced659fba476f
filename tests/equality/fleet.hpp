// SPDX-License-Identifier: Apache-2.0
// Runs the plans of all ranks in one process and one thread: real kernels out of the planned bytes, in any order of all
// queues of all ranks that the plans allow.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/execute/tier.hpp"
#include "core/plan/plan.hpp"

namespace equality {

using Random = std::mt19937_64;
inline uint64_t below(Random& random, uint64_t n) {
  return random() % n;
}
inline bool chance(Random& random, double p) {
  return static_cast<double>(random() % 1000) < p * 1000;
}

// Chooses among the actions that may go on.
struct Schedule {
  uint64_t seed = 1;
  bool stubborn = false;  // some queues run far ahead of others; else all are equally likely
  // Holds an action back until another one, which might have to wait for it, has ended, or nothing else is left to do.
  struct Reversed {
    std::string program;
    size_t segment;
    uint32_t waiter, awaited;
  };
  std::optional<Reversed> reversed = {};
  bool greedy = false;  // whoever makes a lease or a fresh gradient goes first, whoever ends the use of one last
};

// Planted faults of one rank's queues.
struct Fault {
  bool left_to_right = false;  // folds rows in their order instead of in a tree
  bool keeps_scale = false;    // the loss scale is not taken out of the gradients
  bool flips = false;          // the first bit of what is written to storage
};

// A backward that overflows: the gradient of the last block's input gets an infinity.
struct Overflow {
  uint32_t rank;
  int64_t micro;  // micro-batch
};

// An action is no instant. When it begins, its outputs and its scratch become garbage; when it ends, its kernel runs.
// In between, nobody may touch what it reads or writes. A collective begins on each member by itself; when all members
// have begun it, it may end, on each member by itself. Segments join a rank's queues, not the ranks.
class Fleet {
 public:
  // The plans of ranks 0, 1, ..., all for the device of `kernels`; must outlive this. `tiers`: where those of the plans
  // are from; without it they are plain memory.
  Fleet(const std::vector<eng::Plan>& plans, const eng::Kernels& kernels, const Fault& fault = {},
        eng::Registry* tiers = nullptr);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // On all ranks. True if everything went as planned; else `complaint` says what did not, and nothing runs any more.
  bool run(const std::string& program, const Schedule& schedule = {});
  const std::string& complaint() const { return complaint_; }

  // In the programs that run next. nullopt: none.
  void overflow(const std::optional<Overflow>& where) { overflow_ = where; }

  uint8_t* address(size_t rank, const eng::View& view) const;
  void upload(size_t rank, const eng::View& to, const void* from);
  template <class T>
  std::vector<T> download(size_t rank, const eng::View& from) const {
    std::vector<T> out(static_cast<size_t>(eng::count(from.desc)));
    fetch(rank, from, out.data());
    return out;
  }
  // Bytes that a rank sent to others in collectives so far.
  uint64_t sent(size_t rank) const { return ranks_[rank].sent; }
  // The most bytes of leases and fresh gradients that were in use on a rank at a time: each from the beginning of the
  // first action that uses it to the end of the last one.
  uint64_t most_live(size_t rank) const { return ranks_[rank].most_live; }

 private:
  struct Range {
    uint8_t* data;
    uint64_t n;
  };
  struct Bound {  // an action at its addresses
    const eng::Action* action;
    const eng::Call* call;
    const eng_kernel* kernel = nullptr;  // none: a collective, or the faulty fold
    void* record = nullptr;
    std::vector<Range> in, out, spoiled;  // spoiled: outputs and scratch, without what is read too
    std::set<eng::Id> counted;            // the leases and fresh gradients among them
  };
  struct Running {
    bool begun = false, ended = false;
    uint8_t garbage = 0;
    uint64_t read = 0;    // hash of the inputs when it began
    size_t sequence = 0;  // of a collective: its number in the group
  };
  // For storage there is a copy in memory, of what must come back.
  struct Arena {
    uint8_t* memory = nullptr;
    std::unique_ptr<eng::Tier> tier;
    void* handle = nullptr;  // of storage, or `memory` of the tier
    bool storage = false;
    uint64_t bytes = 0;
  };
  struct Rank {
    const eng::Plan* plan = nullptr;
    std::vector<Arena> arenas;
    uint8_t* address(const eng::View& view) const {
      const eng::Buffer& b = plan->buffer(view.buffer);
      return arenas[b.arena].memory + b.offset + view.offset;
    }
    const Arena& arena_of(const eng::View& view) const { return arenas[plan->buffer(view.buffer).arena]; }
    uint64_t offset_of(const eng::View& view) const { return plan->buffer(view.buffer).offset + view.offset; }
    std::vector<void*> states;                           // per call
    std::vector<std::vector<std::vector<Bound>>> bound;  // per program, segment, action
    std::map<int64_t, size_t> reached;                   // collectives per group
    uint64_t sent = 0;
    // The program that runs.
    size_t program = 0, segment = 0;
    uint32_t repetition = 0;
    std::vector<std::vector<uint32_t>> queues;  // the actions that are left, the next one last
    std::vector<Running> running;               // per action
    std::map<eng::Id, size_t> uses;             // left of each lease and fresh gradient of the segment
    std::set<eng::Id> live;                     // of these, those in use
    uint64_t now_live = 0, most_live = 0;       // bytes
  };
  struct Collective {
    std::string key;
    std::map<uint32_t, std::vector<std::vector<uint8_t>>> given;  // by rank: a copy of its inputs, once all are there
    std::vector<uint32_t> begun;                                  // ranks
    size_t ended = 0;
  };

  void make_arenas(Rank& rank, uint32_t number, eng::Registry* tiers);
  void fetch(size_t rank, const eng::View& from, void* to) const;
  void cross(uint32_t rank, const Bound& bound);
  void bind(Rank& rank, Bound& bound);
  void enter(Rank& rank);
  bool ready(const Rank& rank, size_t queue) const;
  void begin(uint32_t rank, size_t queue);
  void end(uint32_t rank, size_t queue);
  // The change of the bytes in use by the next step of a queue: 1 more, -1 less, 0 neither.
  int changes(const Rank& rank, size_t queue) const;
  void exchange(uint32_t rank, const Bound& bound, const Running& now);
  void spoil(uint32_t rank, const Bound& bound) const;
  void complain(uint32_t rank, const Bound& bound, const std::string& what);
  size_t pick(const std::vector<std::pair<uint32_t, size_t>>& ready, const Schedule& schedule);

  const eng::Kernels& kernels_;
  Fault fault_;
  std::optional<Overflow> overflow_;
  std::vector<Rank> ranks_;
  std::map<int64_t, std::deque<Collective>> collectives_;  // per group, in their order
  Random random_;
  std::vector<uint64_t> favour_;  // per rank and queue, of a stubborn schedule
  std::string complaint_;
};

}  // namespace equality
