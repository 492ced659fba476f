// SPDX-License-Identifier: Apache-2.0
// The gradients of scan and convolution against central differences, in f64 on the device `reference`; each check has
// twins with a planted fault.
#include <catch2/catch.hpp>
#include <functional>

#include "mamba_kernels.hpp"

using namespace mamba_test;

namespace {

constexpr double gradient_tolerance = 1e-6;

double inner(const Tensor& a, const Tensor& b) {
  double total = 0;
  for (int64_t i = 0; i < a.size(); ++i) total += a.at(i) * b.at(i);
  return total;
}

// The worst error over the inputs of central differences of `value` against `claimed`.
double worst_error(const Tensors& inputs, const std::function<double(const Tensors&)>& value, const Tensors& claimed) {
  double worst = 0;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].d.dtype) continue;
    Tensors moved = inputs;
    Tensor numeric(inputs[k].d);
    for (int64_t i = 0; i < numeric.size(); ++i) {
      const double x = inputs[k].at(i), step = 1e-5 * std::max(1.0, std::fabs(x));
      moved[k].put(i, x + step);
      const double above = value(moved);
      moved[k].put(i, x - step);
      numeric.put(i, (above - value(moved)) / (2 * step));
      moved[k].put(i, x);
    }
    worst = std::max(worst, error_of(claimed[k], numeric));
  }
  return worst;
}

void check(const Tensors& inputs, const std::function<double(const Tensors&)>& value, const Tensors& claimed) {
  CHECK(worst_error(inputs, value, claimed) <= gradient_tolerance);
  for (size_t k = 0; k < claimed.size(); ++k) {
    Tensors faulty = claimed;
    for (int64_t i = 0; i < faulty[k].size(); ++i) faulty[k].put(i, 1.01 * claimed[k].at(i));
    CHECK(worst_error(inputs, value, faulty) > gradient_tolerance);
    faulty[k] = claimed[k];
    faulty[k].put(0, claimed[k].at(0) + 1e-4);
    CHECK(worst_error(inputs, value, faulty) > gradient_tolerance);
  }
}

}  // namespace

TEST_CASE("gradient of the causal convolution") {
  for (const Shape& s :
       {Shape{2, 5, 3, 0, 4, 3}, Shape{1, 2, 2, 0, 3, 5, false}, Shape{2, 6, 2, 0, 2, 4, true, true}}) {
    Random random(static_cast<uint64_t>(s.K));
    const Tensors in = conv_inputs(random, ENG_F64, s);
    const Tensor r = normal(random, ENG_F64, {s.B, s.T, s.E});
    const Tensor acc = s.add ? normal(random, ENG_F64, {s.B, s.T, s.G}) : Tensor();
    // The accumulator already holds the gradient of this.
    const auto value = [&](const Tensors& x) {
      return inner(r, conv_run(reference_scan(), s, x)) + (s.add ? inner(acc, x[0]) : 0.0);
    };
    check(in, value, conv_grad_run(reference_scan(), s, r, in, acc));
  }
}

TEST_CASE("gradient of the selective scan") {
  for (const Shape& s : {Shape{2, 5, 3, 2, 0, 3}, Shape{1, 4, 2, 3, 0, 5}, Shape{1, 2, 1, 1, 0, 1}}) {
    Random random(static_cast<uint64_t>(s.N));
    const Tensors in = scan_inputs(random, ENG_F64, s);
    const Tensor r = normal(random, ENG_F64, {s.B, s.T, s.E});
    const auto value = [&](const Tensors& x) { return inner(r, scan_run(reference_scan(), s, x)[0]); };
    check(in, value, scan_grad_run(reference_scan(), r, in, scan_run(reference_scan(), s, in)[1]));
  }
}

TEST_CASE("the kept states are those of the walk from the beginning") {
  const Shape s{1, 2 * chunk + 3, 2, 2, 0, 2};
  Random random(5);
  const Tensors in = scan_inputs(random, ENG_F64, s);
  const Tensor states = scan_run(reference_scan(), s, in)[1];
  REQUIRE(states.size() == 3 * s.N * s.E);
  for (int64_t n = 0; n < s.N; ++n)
    for (int64_t e = 0; e < s.E; ++e) {
      double h = 0;
      for (int64_t t = 0; t < s.T; ++t) {
        if (t % chunk == 0) CHECK(states.at((t / chunk * s.N + n) * s.E + e) == Approx(h).margin(1e-12));
        const double raw = in[1].at(t * s.E + e) + in[5].at(e), step = raw > 20 ? raw : std::log1p(std::exp(raw));
        h = std::exp(-step * std::exp(in[2].at(e * s.N + n))) * h +
            step * in[0].at(t * s.E + e) * in[3].at(t * 2 * s.N + n);
      }
    }
}
