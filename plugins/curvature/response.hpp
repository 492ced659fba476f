// SPDX-License-Identifier: Apache-2.0
// Measures the effect on the loss of noise in the parameters of each class.
#pragma once

#include "host.hpp"
#include "results.hpp"

namespace curvature {

// The progress of the job; kept by eng_job_api.save.
struct Progress {
  int64_t probes = 0, cells = 0;
  static Progress read(Host& host);
  void write(Host& host) const;
};

// Mean losses of a token in micro-batches of held-out and of training windows.
struct Losses {
  std::vector<double> held, train;
  double perplexity = none;  // on the held-out windows
  double auc = none;         // the probability that a held-out loss is above a training loss
};
Losses measure_losses(const Job& job, Host& host);

// Measures the cells that `progress` says are not yet done, saves, and restores the parameters.
ResponseMap measure_responses(const Job& job, Host& host, const Losses& before, Progress& progress);

}  // namespace curvature
