// SPDX-License-Identifier: Apache-2.0
// Kernels for the device `reference`: the formulas of norm_part.hpp as plain loops on one thread, with sums in f64.
#include "norm_part.hpp"

#include "kernels.hpp"
#include "reference_shared.hpp"

namespace mamba {
namespace {

struct GatedSquares {
  static constexpr const char* op = MAMBA_OP_GATED_SQUARES;
  Call c;
  explicit GatedSquares(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, SIZE_MAX); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), z(c, a, 1), sums(c, a, a.n_in);
    const int64_t n = columns(c.in[0]), groups = c.integer("groups");
    for (int64_t row = 0; row < rows(c.in[0]); ++row) {
      double sum = 0;
      for (int64_t i = row * n; i < (row + 1) * n; ++i) sum += std::pow(x[i] * z[i] * sigmoid(z[i]), 2);
      for (int64_t k = 0; k < groups; ++k) sums.set(row * groups + k, k == c.integer("at") ? sum : 0.0);
    }
  }
};

struct GatedSquaresGrad {
  static constexpr const char* op = MAMBA_OP_GATED_SQUARES_GRAD;
  Call c;
  explicit GatedSquaresGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, SIZE_MAX); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), z(c, a, 1), dsums(c, a, 2), dx_acc(c, a, 3), dz_acc(c, a, 4), dx(c, a, a.n_in),
        dz(c, a, a.n_in + 1);
    const int64_t n = columns(c.in[0]), groups = c.integer("groups");
    for (int64_t i = 0; i < elements(c.in[0]); ++i) {
      const double gate = z[i], p = sigmoid(gate), value = x[i];
      const double g = 2 * value * gate * p * dsums[i / n * groups + c.integer("at")];
      const double before = dx_acc ? dx_acc[i] : 0.0, before_z = dz_acc ? dz_acc[i] : 0.0;
      dx.set(i, before + g * gate * p);
      dz.set(i, before_z + g * value * p * (1.0 + gate * (1.0 - p)));
    }
  }
};

struct GatedNormPart {
  static constexpr const char* op = MAMBA_OP_GATED_NORM_PART;
  Call c;
  explicit GatedNormPart(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, SIZE_MAX); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), z(c, a, 1), w(c, a, 2), sums(c, a, 3), y(c, a, a.n_in);
    const int64_t n = columns(c.in[0]), groups = columns(c.in[3]);
    for (int64_t i = 0; i < elements(c.in[0]); ++i) {
      const double mean = sums[i / n * groups + c.integer("at")] / static_cast<double>(c.integer("columns"));
      y.set(i, w[i % n] * x[i] * z[i] * sigmoid(z[i]) / std::sqrt(mean + c.real("eps")));
    }
  }
};

struct GatedNormPartGrad {
  static constexpr const char* op = MAMBA_OP_GATED_NORM_PART_GRAD;
  Call c;
  explicit GatedNormPartGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, SIZE_MAX), cpu::need_sums(c, c.in[3].dtype, {}, {2}); }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(columns(c.in[1])); }
  void run(const Args& a) const {
    const Reals dy(c, a, 0), x(c, a, 1), z(c, a, 2), w(c, a, 3), sums(c, a, 4), dx(c, a, a.n_in), dz(c, a, a.n_in + 1),
        dw(c, a, a.n_in + 2), dsums(c, a, a.n_in + 3);
    const int64_t n = columns(c.in[1]), groups = columns(c.in[4]), at = c.integer("at");
    const auto all = static_cast<double>(c.integer("columns"));
    double* of_w = a.scratch<double>();
    std::fill(of_w, of_w + n, 0.0);
    for (int64_t row = 0; row < rows(c.in[1]); ++row) {
      const double scale = 1.0 / std::sqrt(sums[row * groups + at] / all + c.real("eps"));
      double dot = 0;
      for (int64_t j = 0; j < n; ++j) {
        const int64_t i = row * n + j;
        const double gate = z[i], p = sigmoid(gate), value = x[i], gated = value * gate * p, out = dy[i];
        const double g = scale * out * w[j];
        dot += out * w[j] * gated, of_w[j] += out * gated * scale;
        dx.set(i, g * gate * p);
        dz.set(i, g * value * p * (1.0 + gate * (1.0 - p)));
      }
      for (int64_t k = 0; k < groups; ++k)
        dsums.set(row * groups + k, k == at ? -0.5 * dot * scale * scale * scale / all : 0.0);
    }
    for (int64_t j = 0; j < n; ++j) dw.set(j, of_w[j]);
  }
};

}  // namespace

extern const eng_kernel norm_part_reference_kernels[] = {common::kernel<GatedSquares>, common::kernel<GatedSquaresGrad>,
                                                         common::kernel<GatedNormPart>,
                                                         common::kernel<GatedNormPartGrad>};

}  // namespace mamba
