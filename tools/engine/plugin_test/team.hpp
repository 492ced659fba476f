// SPDX-License-Identifier: Apache-2.0
// Runs the plans of all ranks in one process and one thread, in list order, with the collectives done here.
#pragma once

#include "core/plan/plan.hpp"
#include "tools/engine/plugin_test/calls.hpp"

namespace eng::plugin_test {

class Team {
 public:
  // The plans of ranks 0, 1, ...; they must outlive this. Throws Untested for a device with memory of its own.
  Team(const std::vector<Plan>& plans, Machine& machine);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // On all ranks. Throws Broken if the ranks wait for each other.
  void run(const std::string& program);
  uint8_t* address(size_t rank, const View& view);
  size_t size() const { return ranks_.size(); }
  const Plan& plan(size_t rank) const { return *ranks_[rank].plan; }
  // Hears of each call of rank 0, with its inputs, before it is launched.
  std::function<void(const Call& call, const std::function<Array(size_t)>& input)> observe;

 private:
  struct Bound {
    const Action* action;
    const Call* call;
    const eng_kernel* kernel = nullptr;  // none: a collective
    void* record = nullptr;
  };
  struct Rank {
    const Plan* plan = nullptr;
    std::vector<Bytes> arenas;
    std::vector<void*> states;  // per call
    std::vector<std::vector<std::vector<Bound>>> programs;
  };
  void bind(Rank& rank, Bound& bound);
  void launch(size_t rank, const Bound& bound);
  bool collect(size_t program, size_t segment, std::vector<size_t>& at);
  void exchange(const std::vector<uint32_t>& group, const std::vector<const Bound*>& bound);

  Machine& machine_;
  std::vector<Rank> ranks_;
};

}  // namespace eng::plugin_test
