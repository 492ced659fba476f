// SPDX-License-Identifier: Apache-2.0
#include "partition.hpp"

#include <cmath>

#include "maths/statistics.hpp"
#include "ops.hpp"

namespace curvature {
namespace {

// Calls f(measures, parameters) for what the partition divides: tensors or rows.
template <class F>
void each_unit(const Job& job, std::vector<Tensor>& tensors, F&& f) {
  for (Tensor& t : tensors) {
    uint64_t n = 1;
    for (int64_t d : t.shape) n *= static_cast<uint64_t>(d);
    if (!job.options.by_row) {
      f(t.measures, n);
      continue;
    }
    for (Row& row : t.measured_rows) f(row.measures, t.rows ? n / t.rows : 0);
  }
}

// The key's value, or the quantile of what was measured.
Partition::Threshold threshold_of(const Job& job, double given, const std::vector<double>& measured) {
  if (!job.options.quantiles) return {given, none};
  if (measured.empty()) return {none, given};
  return {maths::quantiles(measured, std::span(&given, 1))[0], given};
}

// Unmeasured rows are in neither of the two classes: no comparison with NaN holds.
Class class_of(const Partition& p, const Measures& m) {
  if (m.magnitude > p.functional_hessian.value && m.below < p.functional_sparsity.value) return Class::functional;
  if (m.magnitude < p.sensitive_hessian.value && m.below > p.sensitive_sparsity.value) return Class::sensitive;
  return Class::both;
}

float spread_of(Host& host, const eng_parameter& p) {
  const uint64_t n = elements_of(*p.shape);
  maths::Moments all;
  host.each_piece(p.number, n, [&](uint64_t, std::span<const float> part) {
    for (float w : part) all.add(double{w});
  });
  return n ? static_cast<float>(std::sqrt(all.squares / static_cast<double>(n))) : 0.0f;
}

}  // namespace

Partition make_partition(const Job& job, std::vector<Tensor>& tensors) {
  std::vector<double> hessian, sparsity;
  each_unit(job, tensors, [&](const Measures& m, uint64_t) {
    if (!std::isnan(m.magnitude)) hessian.push_back(m.magnitude);
    if (!std::isnan(m.below)) sparsity.push_back(m.below);
  });
  const Options& o = job.options;
  Partition p;
  p.by = o.by_row ? "row" : "tensor";
  p.functional_hessian = threshold_of(job, o.h_functional, hessian);
  p.functional_sparsity = threshold_of(job, o.sparsity_functional, sparsity);
  p.sensitive_hessian = threshold_of(job, o.h_sensitive, hessian);
  p.sensitive_sparsity = threshold_of(job, o.sparsity_sensitive, sparsity);
  for (Tensor& t : tensors) {
    t.measures.kind = class_of(p, t.measures);
    for (Row& row : t.measured_rows) row.measures.kind = o.by_row ? class_of(p, row.measures) : t.measures.kind;
  }
  each_unit(job, tensors, [&](const Measures& m, uint64_t n) {
    (m.kind == Class::functional ? p.functional : m.kind == Class::sensitive ? p.sensitive : p.both) += n;
  });
  return p;
}

void write_classes(const Job& job, Host& host, const std::vector<Tensor>& tensors) {
  for (size_t k = 0; k < tensors.size(); ++k) {
    const Tensor& t = tensors[k];
    const eng_parameter& p = *host.parameters[k];
    const uint64_t n = elements_of(*p.shape), columns = t.rows ? n / t.rows : 0;
    std::vector<uint8_t> room(std::min(n, piece));
    for (uint64_t first = 0; first < n; first += piece) {
      const uint64_t count = std::min(piece, n - first);
      for (uint64_t i = 0; i < count; ++i)
        room[i] = static_cast<uint8_t>(
            (job.options.by_row ? t.measured_rows[(first + i) / columns].measures : t.measures).kind);
      host.write(ENG_JOB_STATE, kinds, p.number, first, std::span<const uint8_t>(room.data(), count));
    }
    const uint64_t blocks = (n + noise_block - 1) / noise_block;
    const float factor = job.options.noise_relative ? spread_of(host, p) : 1.0f;
    const std::vector<float> factors(std::min(blocks, piece), factor);
    for (uint64_t first = 0; first < blocks; first += piece)
      host.write(ENG_JOB_STATE, scale, p.number, first,
                 std::span<const float>(factors.data(), std::min(piece, blocks - first)));
  }
}

}  // namespace curvature
