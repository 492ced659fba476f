// SPDX-License-Identifier: Apache-2.0
#include "session/train/results.hpp"

#include <cmath>

#include "engine/observer.h"

namespace eng {
namespace {

size_t values_of_rank(const Plan& plan) {
  return size_t{plan.accumulate} * plan.row + plan.once;
}

struct Combined {
  const Observed& rule;
  double value;
  explicit Combined(const Observed& r) : rule(r), value(r.combine == ENG_COMBINE_MAX ? -INFINITY : 0.0) {}
  void add(uint32_t rank, float next) {
    if (rule.combine == ENG_COMBINE_SUM)
      value += double{next};
    else if (rule.combine == ENG_COMBINE_MAX)
      value = std::isnan(value) || std::isnan(next) ? NAN : std::max(value, double{next});
    else if (rank == 0)
      value = double{next};
  }
};

}  // namespace

std::vector<double> loss_sums(const Plan& plan, const float* values) {
  return loss_sums(plan, values, [](uint32_t, uint32_t) { return true; });
}

std::vector<double> loss_sums(const Plan& plan, const float* values,
                              const std::function<bool(uint32_t, uint32_t)>& of) {
  std::vector<double> sums(std::max<size_t>(plan.terms.size(), 1), 0.0);
  const uint32_t ranks = plan.ranks.data_size();
  for (uint32_t r = 0; r < ranks; ++r)
    for (uint32_t a = 0; a < plan.accumulate; ++a)
      for (size_t k = 0; k < sums.size() && of(r, a); ++k)
        sums[k] += double{values[r * values_of_rank(plan) + size_t{a} * plan.row + k]};
  return sums;
}

double weighted(const Plan& plan, const std::vector<double>& sums) {
  if (plan.terms.empty()) return sums[0];
  double out = 0;
  for (size_t k = 0; k < sums.size(); ++k)
    if (plan.terms[k].weight != 0) out += plan.terms[k].weight * sums[k];
  return out;
}

double mean_loss(const Plan& plan, const std::vector<double>& sums, const Counts& counts) {
  if (plan.terms.empty()) return sums[0] / counts.labels;
  double of_labels = 0, others = 0;
  for (size_t k = 0; k < sums.size(); ++k) {
    const Term& term = plan.terms[k];
    if (term.weight == 0) continue;
    if (term.per == ENG_PER_LABEL)
      of_labels += term.weight * sums[k];
    else
      others += term.weight * sums[k] / counts.of(term.per);
  }
  return of_labels / counts.labels + others;
}

std::vector<Named> term_means(const Plan& plan, const std::vector<double>& sums, const Counts& counts) {
  std::vector<Named> out;
  for (size_t k = 0; k < plan.terms.size(); ++k) {
    const Term& term = plan.terms[k];
    out.push_back({term.name, sums[k] / counts.of(term.per), true});
  }
  return out;
}

std::vector<Named> observed(const Plan& plan, uint32_t observer, const float* values) {
  std::vector<Named> out;
  for (const Observed& rule : plan.observed) {
    if (rule.observer != observer) continue;
    Combined all(rule);
    for (uint32_t r = 0; r < plan.ranks.data_size(); ++r) {
      const float* const mine = values + r * values_of_rank(plan);
      for (uint32_t a = 0; a < plan.accumulate; ++a)
        for (uint32_t k : rule.rows) all.add(r, mine[size_t{a} * plan.row + k]);
      for (uint32_t k : rule.once) all.add(r, mine[size_t{plan.accumulate} * plan.row + k]);
    }
    out.push_back({rule.name, rule.flags & ENG_RESULT_SQRT ? std::sqrt(all.value) : all.value});
  }
  return out;
}

}  // namespace eng
