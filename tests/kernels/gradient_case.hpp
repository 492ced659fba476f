// SPDX-License-Identifier: Apache-2.0
// A gradient op against central differences of its forward op, in f64 on the reference device, with planted faults.
#pragma once

#include <catch2/catch.hpp>
#include <functional>

#include "kernel_harness.hpp"

namespace gradients {

using namespace kernels_test;

using Tensors = std::vector<Tensor>;

constexpr double tolerance = 1e-6;
constexpr int rounds = 6;

inline Tensor normal(Random& random, const Dims& dims, double std = 1.0) {
  return random_normal(random, ENG_F64, dims, std);
}

inline Dims dims_of(const Tensor& t) {
  return Dims(t.d.dims, t.d.dims + t.d.ndim);
}

inline Tensor scaled(const Tensor& a, double factor) {
  Tensor c = a;
  for (int64_t i = 0; i < a.size(); ++i) c.put(i, a.at(i) * factor);
  return c;
}

inline double inner(const Tensor& a, const Tensor& b) {
  double total = 0;
  for (int64_t i = 0; i < a.size(); ++i) total += a.at(i) * b.at(i);
  return total;
}

// One function and its claimed gradient.
struct GradientCase {
  Tensors inputs;                                    // what is differentiated by
  std::function<double(const Tensors&)> value;       // L
  std::function<Tensors(const Tensors&)> gradients;  // dL/d(each input), by the kernels under test
};

// The worst error over the inputs of central differences against `claimed`.
inline double worst_error(const GradientCase& c, const Tensors& claimed) {
  double worst = 0;
  REQUIRE(claimed.size() == c.inputs.size());
  for (size_t k = 0; k < c.inputs.size(); ++k) {
    Tensors moved = c.inputs;
    Tensor numeric(ENG_F64, dims_of(c.inputs[k]));
    REQUIRE(claimed[k].size() == numeric.size());
    for (int64_t i = 0; i < numeric.size(); ++i) {
      const double x = c.inputs[k].at(i), step = 1e-5 * std::max(1.0, std::fabs(x));
      moved[k].put(i, x + step);
      const double above = c.value(moved);
      moved[k].put(i, x - step);
      numeric.put(i, (above - c.value(moved)) / (2 * step));
      moved[k].put(i, x);
    }
    worst = std::max(worst, error_of(claimed[k], numeric));
  }
  return worst;
}

// The check itself, and its twins: 1 % too large, and one gradient dropped.
inline void check(const GradientCase& c) {
  const Tensors claimed = c.gradients(c.inputs);
  CHECK(worst_error(c, claimed) <= tolerance);
  for (size_t k = 0; k < claimed.size(); ++k) {
    Tensors faulty = claimed;
    faulty[k] = scaled(claimed[k], 1.01);
    CHECK(worst_error(c, faulty) > tolerance);
    faulty[k] = scaled(claimed[k], 0.0);
    CHECK(worst_error(c, faulty) > tolerance);
  }
}

inline void repeat(uint64_t seed, const std::function<GradientCase(Random&, int round)>& make) {
  for (int round = 0; round < rounds; ++round) {
    INFO("round " << round);
    Random random(seed * 1000 + uint64_t(round));
    check(make(random, round));
  }
}

}  // namespace gradients
