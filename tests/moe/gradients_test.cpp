// SPDX-License-Identifier: Apache-2.0
// The gradients of the ops against central differences, in f64 on the device `reference`; each check has twins with a
// planted fault.
#include <catch2/catch.hpp>
#include <functional>

#include "moe_kernels.hpp"

using namespace moe_test;

namespace {

constexpr double gradient_tolerance = 1e-6;

double inner(const Tensor& a, const Tensor& b) {
  double total = 0;
  for (int64_t i = 0; i < a.size(); ++i) total += a.at(i) * b.at(i);
  return total;
}

using Value = std::function<double(const Tensor&)>;

double error(const Tensor& x, const Value& value, const Tensor& claimed) {
  Tensor moved = x, numeric(x.d);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double at = x.at(i), step = 1e-5 * std::max(1.0, std::fabs(at));
    moved.put(i, at + step);
    const double above = value(moved);
    moved.put(i, at - step);
    numeric.put(i, (above - value(moved)) / (2 * step));
    moved.put(i, at);
  }
  return error_of(claimed, numeric);
}

void check(const Tensor& x, const Value& value, const Tensor& claimed) {
  CHECK(error(x, value, claimed) <= gradient_tolerance);
  Tensor faulty = claimed;
  for (int64_t i = 0; i < faulty.size(); ++i) faulty.put(i, 1.01 * claimed.at(i));
  CHECK(error(x, value, faulty) > gradient_tolerance);
  faulty = claimed;
  faulty.put(0, claimed.at(0) + 1e-3);
  CHECK(error(x, value, faulty) > gradient_tolerance);
}

Tensor normal(Random& random, const Dims& dims, double std = 1.0) {
  return random_normal(random, ENG_F64, dims, std);
}

const Shape small_shapes[] = {{2, 3, 4, 3, 5, 2},
                              {1, 4, 3, 2, 3, 3, false},
                              {2, 2, 2, 2, 4, 2, false, ENG_ACT_GELU},
                              {1, 3, 2, 3, 2, 1, true, ENG_ACT_GELU_TANH}};

}  // namespace

TEST_CASE("gradient of the routers' weights, and of the sums for balance and z") {
  for (const Shape& s : small_shapes) {
    Random random(static_cast<uint64_t>(s.E));
    const Tensor logits = normal(random, {s.B, s.T, s.E}, 2.0);
    const Tensors routed = route(reference_moe(), s, logits);
    const Tensor dweights = normal(random, {s.B, s.T, s.k});
    Tensor dload = normal(random, {s.B, 2 * s.E + 1}, 0.3);
    const auto value = [&](const Tensor& x) {
      const Tensors out = route(reference_moe(), s, x);
      return inner(dweights, out[0]) + inner(dload, out[5]);
    };
    check(logits, value, route_grad(reference_moe(), s, logits, routed, dweights, dload));
    const Tensor alone = route_grad(reference_moe(), s, logits, routed, dweights, {});
    CHECK(error(
              logits, [&](const Tensor& x) { return inner(dweights, route(reference_moe(), s, x)[0]); }, alone) <=
          (s.k == 1 && s.normalise ? 1.0 : gradient_tolerance));  // a single weight is 1, whatever the logits
    check(
        logits, [&](const Tensor& x) { return inner(dload, route(reference_moe(), s, x)[5]); },
        route_grad(reference_moe(), s, logits, routed, {}, dload));
    Tensor uncounted = dload;  // what a count passes back changes nothing
    for (int64_t e = 0; e < s.E; ++e) uncounted.put(e, 0.0);
    CHECK(route_grad(reference_moe(), s, logits, routed, dweights, uncounted)
              .same_bits(route_grad(reference_moe(), s, logits, routed, dweights, dload)));
  }
}

TEST_CASE("gradient of the weights of routers with sigmoids") {
  for (const Shape& s : small_shapes)
    for (const Sigmoid& how : {Sigmoid{}, Sigmoid{2.5, s.E == 4 ? 2 : 1, 1}}) {
      Random random(static_cast<uint64_t>(s.E));
      const Tensor logits = normal(random, {s.B, s.T, s.E}, 2.0), correction = normal(random, {s.E}, 0.3);
      const Tensors routed = route_sigmoid(reference_moe(), s, how, logits, correction);
      const Tensor dweights = normal(random, {s.B, s.T, s.k});
      const auto value = [&](const Tensor& x) {
        return inner(dweights, route_sigmoid(reference_moe(), s, how, x, correction)[0]);
      };
      const Tensor claimed = route_sigmoid_grad(reference_moe(), s, how, logits, routed, dweights);
      if (s.k == 1 && s.normalise)  // a single weight is `scale`, whatever the logits
        for (int64_t i = 0; i < claimed.size(); ++i) CHECK(std::fabs(claimed.at(i)) < 1e-12);
      else
        check(logits, value, claimed);
    }
}

TEST_CASE("gradients of the products of the rows of experts") {
  for (const Shape& s : small_shapes) {
    Random random(static_cast<uint64_t>(s.T));
    const Tensors routed = route(reference_moe(), s, normal(random, {s.B, s.T, s.E}, 2.0));
    const Tensor x = normal(random, {s.B, s.T, s.H}), w = normal(random, {s.E, s.I, s.H}),
                 r = normal(random, {s.B, s.T, s.k, s.I}), acc = normal(random, {s.E, s.I, s.H});
    const auto value = [&](const Tensor& in, const Tensor& weights) {
      return inner(r, linear(reference_moe(), in, weights, routed, true));
    };
    const Tensor rows = gather(reference_moe(), s, x, routed);
    check(
        x, [&](const Tensor& at) { return value(at, w); },
        combine(reference_moe(), s, linear_input_grad(reference_moe(), r, w, routed), routed));
    check(
        w, [&](const Tensor& at) { return value(x, at) + inner(acc, at); },
        linear_weight_grad(reference_moe(), r, rows, routed, acc));
    check(
        rows, [&](const Tensor& at) { return inner(r, linear(reference_moe(), at, w, routed, false)); },
        linear_input_grad(reference_moe(), r, w, routed));
  }
}

TEST_CASE("gradients of the weighted gate and of combine") {
  for (const Shape& s : small_shapes) {
    Random random(static_cast<uint64_t>(s.T));
    Tensors routed = route(reference_moe(), s, normal(random, {s.B, s.T, s.E}, 2.0));
    const Tensor x = normal(random, {s.B, s.T, s.k, 2 * s.I}), r = normal(random, {s.B, s.T, s.k, s.I});
    const Tensors grads = gated_grad(reference_moe(), s, r, x, routed);
    check(
        x, [&](const Tensor& at) { return inner(r, gated(reference_moe(), s, at, routed)); }, grads[0]);
    check(
        routed[0],
        [&](const Tensor& at) {
          Tensors moved = routed;
          moved[0] = at;
          return inner(r, gated(reference_moe(), s, x, moved));
        },
        grads[1]);
    const Tensor y = normal(random, {s.B, s.T, s.I});
    check(
        r, [&](const Tensor& at) { return inner(y, combine(reference_moe(), s, at, routed)); },
        gather(reference_moe(), s, y, routed));
  }
}

TEST_CASE("gradient of balance and z") {
  const int64_t sequences = 2, experts = 4, rows = 6;
  Random random(5);
  const Tensor load = normal(random, {sequences, 2 * experts + 1}, 3.0);
  Tensor d(ENG_F64, {1}), dz(ENG_F64, {1});
  d.put(0, 0.7), dz.put(0, -0.4);
  const auto value = [&](const Tensor& x) {
    const Tensors out = balance(reference_moe(), x, rows);
    return 0.7 * out[0].at(0) - 0.4 * out[1].at(0);
  };
  check(load, value, balance_grad(reference_moe(), load, d, dz, rows));
  const Tensor none = balance_grad(reference_moe(), load, {}, dz, rows);
  for (int64_t i = 0; i < 2 * experts; ++i) CHECK(none.at(i) == 0.0);
}
