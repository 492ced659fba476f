// SPDX-License-Identifier: Apache-2.0
// Decides whether ranks that failed are started again, and how many. Starts nothing itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session/ranks/cause.hpp"

namespace eng {

struct RestartPolicy {
  uint32_t most = 0;             // restarts
  uint32_t ranks = 1;            // at the start
  uint32_t min_ranks = 1;        // the fewest to start again with
  int64_t batch = 1, micro = 1;  // sequences of a step of all ranks, and of a micro-batch of one
  uint32_t same = 1;             // ranks that read the same samples
  // True if n ranks make the same batch.
  bool keeps(uint32_t n) const { return n % same == 0 && batch % (micro * int64_t{n / same}) == 0; }
};

// Throws Error(Exit::usage), with the numbers of ranks that work, unless 1 <= min_ranks <= ranks and there is a smaller
// number of ranks than at the start where one is allowed.
void check_restarts(const RestartPolicy& policy);

class Restarts {
 public:
  explicit Restarts(const RestartPolicy& policy);
  // After a failure. `started`: the ranks had planned, read their weights and gone to work. `step`: the one that was
  // not completed. Returns why they are not started again; "" if they are: ranks() many, at places().
  std::string after(const Cause& cause, bool started, int64_t step);
  uint32_t made() const { return made_; }
  uint32_t ranks() const { return static_cast<uint32_t>(places_.size()); }
  // For each rank its number at the start, when no rank was lost. The place of a lost rank is used again only if
  // min_ranks demands it.
  const std::vector<uint32_t>& places() const { return places_; }

 private:
  struct Failed {
    int exit, signal;
    int64_t step;
    std::string error;
  };
  void choose();
  const RestartPolicy policy_;
  uint32_t made_ = 0;
  std::vector<uint32_t> places_, lost_;
  std::vector<Failed> before_;  // those that may happen again with the same data and weights
};

}  // namespace eng
