// SPDX-License-Identifier: Apache-2.0
#include "response.hpp"

#include <cmath>
#include <numeric>

#include "maths/statistics.hpp"

namespace curvature {
namespace {

constexpr uint32_t at_a_time = 16;  // micro-batches between two looks at signals

// Adds the losses of windows 0 .. windows - 1 of a split to the sums, and gives the mean of each micro-batch.
std::vector<double> losses_of(const Job& job, Host& host, uint32_t split, uint32_t windows, double& sum,
                              int64_t& count) {
  const uint32_t n = windows / job.options.micro_batch;
  std::vector<double> sums(n), out;
  std::vector<int64_t> labels(n);
  for (uint32_t first = 0; first < n; first += at_a_time) {
    const uint32_t some = std::min(at_a_time, n - first);
    host.losses(split, uint64_t{first} * job.options.micro_batch, false, std::span(sums).subspan(first, some),
                std::span(labels).subspan(first, some));
  }
  for (uint32_t k = 0; k < n; ++k) {
    sum += sums[k], count += labels[k];
    if (labels[k] > 0) out.push_back(sums[k] / static_cast<double>(labels[k]));
  }
  return out;
}

// The interval over values that need not be finite: then there is none.
Interval interval_over(const std::vector<double>& values, double level) {
  maths::Moments all;
  for (double x : values) {
    if (!std::isfinite(x)) return {};
    all.add(x);
  }
  if (all.n < 2) return {all.mean, none, none};
  const maths::Interval i = maths::mean_interval(all, level);
  return {i.mean, i.low, i.high};
}

}  // namespace

Progress Progress::read(Host& host) {
  int64_t words[2] = {};
  host.read(ENG_JOB_VALUE, 0, value_progress, 0, std::span<int64_t>(words));
  return {words[0], words[1]};
}

void Progress::write(Host& host) const {
  const int64_t words[2] = {probes, cells};
  host.write(ENG_JOB_VALUE, 0, value_progress, 0, std::span<const int64_t>(words));
}

Losses measure_losses(const Job& job, Host& host) {
  Losses out;
  double sum = 0, unused = 0;
  int64_t labels = 0, unused_labels = 0;
  out.held = losses_of(job, host, ENG_JOB_HELD, job.options.held_windows, sum, labels);
  out.train = losses_of(job, host, ENG_JOB_TRAIN, job.options.train_windows, unused, unused_labels);
  if (labels > 0) out.perplexity = std::exp(sum / static_cast<double>(labels));
  const auto finite = [](const std::vector<double>& all) {
    return !all.empty() && std::all_of(all.begin(), all.end(), [](double x) { return std::isfinite(x); });
  };
  if (finite(out.held) && finite(out.train)) out.auc = maths::auc(out.held, out.train);
  return out;
}

ResponseMap measure_responses(const Job& job, Host& host, const Losses& before, Progress& progress) {
  const Options& o = job.options;
  const uint32_t seeds = o.noise_seeds, cells = job.cells();
  std::vector<double> values(size_t{2} * cells);
  host.read(ENG_JOB_VALUE, 0, value_responses, 0, std::span(values));
  for (auto cell = static_cast<uint32_t>(progress.cells); cell < cells; ++cell) {
    const double sigma = o.noise[cell / (3 * seeds)];
    host.program(program_noise, {static_cast<float>(sigma), static_cast<float>(cell / seeds % 3)}, cell % seeds);
    const Losses with = measure_losses(job, host);
    values[2 * cell] = with.perplexity, values[2 * cell + 1] = with.auc;
    host.write(ENG_JOB_VALUE, 0, value_responses, 2 * cell, std::span<const double>(&values[2 * cell], 2));
    progress.cells = cell + 1, progress.write(host);
    if ((cell + 1) % o.save_every == 0 || cell + 1 == cells) host.save();
    host.progress("response", cell + 1, cells);
  }
  host.program(program_restore);

  ResponseMap map;
  map.relative = o.noise_relative, map.base_perplexity = before.perplexity, map.base_auc = before.auc;
  for (uint32_t cell = 0; cell < cells; cell += seeds) {
    Response r;
    r.kind = classes[cell / seeds % 3], r.sigma = o.noise[cell / (3 * seeds)];
    std::vector<double> changes, aucs;
    for (uint32_t s = 0; s < seeds; ++s) {
      changes.push_back(values[2 * (cell + s)] - before.perplexity), aucs.push_back(values[2 * (cell + s) + 1]);
      r.trials.push_back({s, changes.back(), aucs.back()});
    }
    r.perplexity_change = interval_over(changes, o.confidence), r.auc = interval_over(aucs, o.confidence);
    map.responses.push_back(std::move(r));
  }
  return map;
}

}  // namespace curvature
