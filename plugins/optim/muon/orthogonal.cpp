// SPDX-License-Identifier: Apache-2.0
#include "orthogonal.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "engine/ops.h"
#include "muon.hpp"

namespace muon {
namespace {

// A step: x -> a x + b x^3 + c x^5 on each singular value.
struct Quintic {
  double a, b, c;
};

// Jordan et al. 2024, chosen for its slope at 0: singular values from 0.003 to 1 are between 0.68 and 1.21 after five
// steps.
constexpr Quintic jordan = {3.4445, -4.7750, 2.0315};

// Amsel et al. 2025 (arXiv:2505.16932), algorithm 1: each is the best one for where the steps before leave what began
// between 0.001 and 1. After five steps these values are between 0.84 and 1.13. All but the last are flattened by
// `safety`, against values that rounding brings above 1, and more steps repeat the last.
constexpr Quintic polar_express[] = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                     {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                     {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                     {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                     {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
                                     {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
                                     {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
                                     {1.875, -1.25, 0.375}};
constexpr double safety = 1.01;

constexpr double eps = 1e-7;  // beside the norm

Quintic step_of(Coefficients which, int64_t k) {
  if (which == Coefficients::jordan) return jordan;
  constexpr int64_t last = std::size(polar_express) - 1;
  const Quintic p = polar_express[std::min(k, last)];
  if (k >= last) return p;
  return {p.a / safety, p.b / std::pow(safety, 3), p.c / std::pow(safety, 5)};
}

// Emits a sequence of ops. The builder keeps the first error.
struct Steps {
  eng_build* build;
  bool tall;  // x^T x is smaller than x x^T

  eng_id emit(const char* op, const eng_id* in, uint32_t n_in, const eng_attr* attrs, uint32_t n_attrs,
              eng_id out = 0) {
    build->api->emit(build, op, in, n_in, &out, 1, attrs, n_attrs, nullptr);
    return out;
  }
  eng_id normalize(eng_id x, double eps, eng_id out = 0) {
    const eng_attr attr = {.key = "eps", .i = 0, .f = eps};
    return emit(MUON_OP_NORMALIZE, &x, 1, &attr, 1, out);
  }
  eng_id scale(eng_id x, double by, eng_id out = 0) {
    const eng_attr attr = {.key = "factor", .i = 0, .f = by};
    return emit(ENG_OP_SCALE, &x, 1, &attr, 1, out);
  }
  eng_id cast(eng_id x, int32_t dtype, eng_id out = 0) {
    const eng_attr attr = {.key = "dtype", .i = dtype, .f = 0};
    return emit(ENG_OP_CAST, &x, 1, &attr, 1, out);
  }
  // x y + plus, in the memory of `plus` if it is given.
  eng_id product(eng_id x, bool x_turned, eng_id y, bool y_turned, eng_id plus = 0) {
    const eng_id in[3] = {x, y, plus};
    const eng_attr attrs[2] = {{"ta", x_turned, 0}, {"tb", y_turned, 0}};
    return emit(ENG_OP_MATMUL, in, 3, attrs, 2, plus);
  }
  eng_id square(eng_id x) { return product(x, tall, x, !tall); }
  // (s s + s_factor s) x + x_factor x, with s = square(x). With x^T x: x (s s + s_factor s) + x_factor x.
  eng_id polynomial(eng_id x, double s_factor, double x_factor) {
    const eng_id s = square(x);
    const eng_id p = product(s, false, s, false, scale(s, s_factor));
    const eng_id start = scale(x, x_factor);
    return tall ? product(x, false, p, false, start) : product(p, false, x, false, start);
  }
};

// All in f32, each step scaled at its end: c ((a/c) x + (s s + (b/c) s) x).
void jordan_in_f32(Steps& steps, int64_t count, double factor, eng_id grad) {
  const auto [a, b, c] = jordan;
  eng_id x = steps.normalize(grad, eps);
  for (int64_t k = 0; k < count; ++k) {
    const eng_id y = steps.polynomial(x, b / c, a / c);
    x = steps.scale(y, c, y);
  }
  steps.scale(x, factor, grad);
}

// No step is scaled: z = t x is iterated instead of x, with another t for each step. With s = z z^T,
//   (s s + (b t^2/c) s) z + (a t^4/c) z = (t^5/c) (a x + b x^3 + c x^5),
// so the next t is t^5/c. They are chosen from the last one, which is what z is to be scaled by at the end.
void scaled_once(const Orthogonal& how, Steps& steps, double factor, eng_id grad) {
  std::vector<double> t(static_cast<size_t>(how.steps) + 1);
  t.back() = how.f32 ? 1 : factor;
  for (int64_t k = how.steps - 1; k >= 0; --k) t[k] = std::pow(step_of(how.coefficients, k).c * t[k + 1], 0.2);
  // The norm times `most` + eps is what the matrix is divided by.
  const double most = how.coefficients == Coefficients::polar_express ? safety : 1;
  eng_id z = steps.normalize(grad, eps / most, grad);
  z = steps.scale(z, t[0] / most, z);
  if (!how.f32) z = steps.cast(z, ENG_BF16);
  for (int64_t k = 0; k < how.steps; ++k) {
    const auto [a, b, c] = step_of(how.coefficients, k);
    z = steps.polynomial(z, b * std::pow(t[k], 2) / c, a * std::pow(t[k], 4) / c);
  }
  if (how.f32)
    steps.scale(z, factor, grad);
  else
    steps.cast(z, ENG_F32, grad);
}

}  // namespace

eng_status orthogonalize(const Orthogonal& how, double factor, eng_build* build, eng_id grad, const eng_desc& shape,
                         eng_error* error) {
  Steps steps{build, shape.dims[0] > shape.dims[1]};
  if (how.f32 && how.coefficients == Coefficients::jordan)
    jordan_in_f32(steps, how.steps, factor, grad);
  else
    scaled_once(how, steps, factor, grad);
  return build->api->status(build, error);
}

}  // namespace muon
