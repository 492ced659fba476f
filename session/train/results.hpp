// SPDX-License-Identifier: Apache-2.0
// From the values that a step leaves for the host to the numbers of its metrics.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "engine/build.h"

namespace eng {

struct Named {
  std::string name;
  double value = 0;
  bool on_line = false;  // on the progress line
};

// The losses of a step, summed over its micro-batches and all ranks: one per term, or that of a model without terms.
// `values`: those of all ranks (Plan::losses, Plan::all_losses), rank by rank.
std::vector<double> loss_sums(const Plan& plan, const float* values);
// The losses of the micro-batches for which `of`(rank, number of the micro-batch) is true.
std::vector<double> loss_sums(const Plan& plan, const float* values, const std::function<bool(uint32_t, uint32_t)>& of);
// Labels that count and sequences of the batches over which losses are summed.
struct Counts {
  double labels = 1, sequences = 1;
  double of(uint32_t per) const { return per == ENG_PER_LABEL ? labels : sequences / per; }
};
// The sum of the terms with their weights.
double weighted(const Plan& plan, const std::vector<double>& sums);
// The loss: the sum of the terms, each with its weight and divided by what it is a mean over.
double mean_loss(const Plan& plan, const std::vector<double>& sums, const Counts& counts);
// The terms as means; none for a model without terms.
std::vector<Named> term_means(const Plan& plan, const std::vector<double>& sums, const Counts& counts);
// The results of the observer with that number.
std::vector<Named> observed(const Plan& plan, uint32_t observer, const float* values);

}  // namespace eng
