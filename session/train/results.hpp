// SPDX-License-Identifier: Apache-2.0
// From the values that a step leaves for the host to the numbers of its metrics.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace eng {

struct Named {
  std::string name;
  double value = 0;
  bool on_line = false;  // on the progress line
};

// The losses of a step, summed over its micro-batches and all ranks: one per term, or that of a model without terms.
// `values`: those of all ranks (Plan::losses, Plan::all_losses), rank by rank.
std::vector<double> loss_sums(const Plan& plan, const float* values);
// The sum of the terms with their weights.
double weighted(const Plan& plan, const std::vector<double>& sums);
// The terms as means over `labels`; none for a model without terms.
std::vector<Named> term_means(const Plan& plan, const std::vector<double>& sums, double labels);
// The results of the observer with that number.
std::vector<Named> observed(const Plan& plan, uint32_t observer, const float* values);

}  // namespace eng
