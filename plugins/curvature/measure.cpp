// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <cmath>

#include "draw.hpp"
#include "maths/statistics.hpp"

namespace curvature {
namespace {

// Sums over elements, in their order.
struct Sums {
  uint64_t measured = 0;
  double hessian = 0, magnitude = 0, variance = 0, deviation = 0, gradients = 0, weights = 0;

  void add(const Sums& other) {
    measured += other.measured, hessian += other.hessian, magnitude += other.magnitude, variance += other.variance;
    deviation += other.deviation, gradients += other.gradients, weights += other.weights;
  }
};

// The interval of the mean of H over `n` elements. Estimates of one probe depend on each other, so their variances do
// not just add up. Hutchinson: the covariance of two elements is the square of the entry of the Hessian between them,
// and the variance of one is the sum of the squares of its row; so the variance of a sum is at most twice the sum of
// the variances. Fisher: nothing is known, so at most the square of the sum of the deviations.
Interval interval_of(const Job& job, const Sums& s) {
  const auto n = static_cast<double>(s.measured);
  if (s.measured == 0) return {};
  const double one = maths::half_width_factor(job.options.probes, job.options.confidence);
  const double spread = job.options.fisher ? s.deviation : std::sqrt((s.measured > 1 ? 2.0 : 1.0) * s.variance);
  const double middle = s.hessian / n, half = one * spread / n;
  return {middle, middle - half, middle + half};
}

Measures measures_of(const Job& job, const Sums& s) {
  Measures m;
  m.hessian = interval_of(job, s);
  m.elements = s.measured;
  if (s.measured) m.magnitude = s.magnitude / static_cast<double>(s.measured);
  m.gradient_norm = std::sqrt(s.gradients), m.weight_norm = std::sqrt(s.weights);
  return m;
}

// Reads a tensor piece by piece, and adds up its rows.
class TensorReader {
 public:
  TensorReader(const Job& job, Host& host, const eng_parameter& p, double share)
      : job_(job),
        host_(host),
        p_(p),
        limit_(sample_limit(job.rate_of(*p.shape), share)),
        drawing_{static_cast<uint64_t>(job.options.seed), p.number} {}

  void read(bool rows, Tensor& out) {
    const uint64_t n = elements_of(*p_.shape), columns = out.rows ? n / out.rows : 0;
    std::vector<float> room[4];
    for (auto& part : room) part.resize(std::min(n, piece));
    if (rows) out.measured_rows.reserve(out.rows);
    Sums all, row;
    for (uint64_t first = 0; first < n; first += piece) {
      const uint64_t count = std::min(piece, n - first);
      const State from[] = {mean, m2, gradient, base};
      for (size_t k = 0; k < 4; ++k)
        host_.read(ENG_JOB_STATE, from[k], p_.number, first, std::span(room[k].data(), count));
      for (uint64_t i = 0; i < count; ++i) {
        add(row, first + i, room[0][i], room[1][i], room[2][i], room[3][i]);
        if ((first + i + 1) % columns) continue;
        if (rows) out.measured_rows.push_back({(first + i) / columns, measures_of(job_, row)});
        all.add(row), row = {};
      }
    }
    out.measures = measures_of(job_, all);
  }

 private:
  void add(Sums& s, uint64_t e, float h, float squares, float g, float w) {
    s.gradients += double{g} * double{g}, s.weights += double{w} * double{w};
    if (!drawing_.sampled(e, limit_)) return;
    if (!std::isfinite(h) || !std::isfinite(squares))
      throw Error{ENG_INVALID, std::string("the diagonal of ") + p_.name + " is not finite at element " +
                                   std::to_string(e) + ": lower job.step, or look at the model with engine eval"};
    const double variance = double{squares} / (job_.options.probes - 1);
    ++s.measured;
    s.hessian += double{h}, s.magnitude += std::fabs(double{h});
    s.variance += variance, s.deviation += std::sqrt(variance);
  }
  const Job& job_;
  Host& host_;
  const eng_parameter& p_;
  uint64_t limit_;
  Drawing drawing_;
};

}  // namespace

Tensor tensor_of(const eng_parameter& p) {
  Tensor t;
  t.name = p.name;
  t.shape.assign(p.shape->dims, p.shape->dims + p.shape->ndim);
  t.block_number = p.block, t.block = "block " + std::to_string(p.block);
  t.rows = rows_of(*p.shape);
  return t;
}

std::vector<Tensor> measure_tensors(const Job& job, Host& host, double share, bool rows) {
  std::vector<Tensor> out;
  for (const eng_parameter* p : host.parameters) {
    Tensor t = tensor_of(*p);
    TensorReader(job, host, *p, share).read(rows, t);
    out.push_back(std::move(t));
    host.progress("measuring", out.size(), host.parameters.size());
  }
  return out;
}

std::vector<Site> measure_sites(Host& host, uint64_t tokens) {
  std::vector<Site> out;
  for (const eng_job_site* s : host.sites) {
    Site site;
    site.block = s->block, site.block_number = s->block_number, site.op = s->op, site.tokens = tokens;
    const auto n = static_cast<uint64_t>(s->shape->dims[s->shape->ndim - 1]);
    std::vector<int64_t> zeros(n), below(n);
    host.read(ENG_JOB_SITE, 0, s->number, 0, std::span(zeros));
    host.read(ENG_JOB_SITE, 0, s->number, n, std::span(below));
    const auto all = static_cast<double>(tokens);
    double sums[2] = {0, 0};
    for (uint64_t u = 0; u < n; ++u) {
      const double z = static_cast<double>(zeros[u]), b = static_cast<double>(below[u]);
      sums[0] += z, sums[1] += b;
      site.units.push_back({z / all, b / all});
    }
    site.zeros = sums[0] / all / static_cast<double>(n), site.below = sums[1] / all / static_cast<double>(n);
    out.push_back(std::move(site));
  }
  return out;
}

void add_sparsity(const Job& job, const std::vector<Site>& sites, std::vector<Tensor>& tensors) {
  for (Tensor& t : tensors) {
    const auto& names = job.options.unit_tensors;
    const bool of_units = std::any_of(names.begin(), names.end(),
                                      [&](const std::string& part) { return t.name.find(part) != std::string::npos; });
    double zeros = 0, below = 0;
    uint64_t n = 0;
    const Site* own = nullptr;  // whose units are the rows
    for (const Site& s : sites) {
      if (s.block_number != t.block_number) continue;
      t.block = s.block;
      zeros += s.zeros, below += s.below, ++n;
      if (of_units && !own && s.units.size() == t.rows) own = &s;
    }
    if (n == 0) continue;
    t.measures.zeros = own ? own->zeros : zeros / static_cast<double>(n);
    t.measures.below = own ? own->below : below / static_cast<double>(n);
    for (Row& row : t.measured_rows) {
      row.measures.zeros = own ? own->units[row.index].zeros : t.measures.zeros;
      row.measures.below = own ? own->units[row.index].below : t.measures.below;
    }
  }
}

}  // namespace curvature
