// SPDX-License-Identifier: Apache-2.0
// The ops of mixtures of experts for the cuda device, emulated, beside the reference device.
#include "emulated.hpp"
#include "tests/moe/moe_kernels.hpp"

namespace moe_on_cuda {

using namespace cuda_test;
using moe_test::routing;
using moe_test::Shape;
using moe_test::Tensors;

namespace {

const Device& on() {
  static const Emulated device("moe");
  return device;
}
const Device& plain() {
  static const Plain device("moe/moe.eng.so");
  return device;
}
// Whole and partial tiles, more than two parts of the terms, experts without a token, more experts than a warp has
// lanes, as many experts of a token as there are.
const Shape shapes[] = {{1, 1, 1, 1, 1, 1},
                        {2, 7, 5, 3, 4, 2},
                        {1, 33, 80, 72, 3, 3, false, ENG_ACT_GELU},
                        {1, 140, 72, 40, 2, 1, false, ENG_ACT_GELU_TANH},
                        {2, 5, 104, 8, 40, 2, true, ENG_ACT_RELU}};
constexpr double apart = 2e-5;

Use use_of(const char* op, const Tensors& in, const std::vector<eng_desc>& out, const std::vector<eng_attr>& attrs = {},
           const Device::InPlace& in_place = {}) {
  return {op, in, out, attrs, in_place, &on(), &plain()};
}
eng_desc pairs(const Shape& s, int32_t type) {
  return desc(type, {s.B, s.T, s.k});
}
// Logits of few values, so that some are equal.
Tensor logits(Random& random, int32_t type, const Shape& s) {
  Tensor t = random_normal(random, type, {s.B, s.T, s.E}, 2.0);
  for (int64_t i = 0; i < t.size(); ++i) t.put(i, std::floor(t.at(i) * 4) / 4);
  return t;
}
std::vector<eng_desc> routed(const Shape& s) {
  const eng_desc one = pairs(s, ENG_I32);
  return {pairs(s, ENG_F32), one, one, one, desc(ENG_I32, {s.E + 1}), desc(ENG_F32, {s.B, 2 * s.E + 1})};
}
// f(type, shape, random numbers, the outputs of the router)
template <class F>
void each_case(F&& f) {
  for (const int32_t type : types_of_long_cases())
    for (const Shape& s : shapes) {
      if (type != ENG_F32 && s.T != 7 && s.T != 33) continue;
      INFO("type " << type << ", T " << s.T << ", H " << s.H << ", E " << s.E);
      Random random(static_cast<uint64_t>(s.T * 10 + s.E));
      f(type, s, random, moe_test::route(plain(), s, logits(random, type, s)));
    }
}

}  // namespace

TEST_CASE("emulated cuda: the router of experts, its gradient and the terms of the loss") {
  each_case([](int32_t type, const Shape& s, Random& random, const Tensors&) {
    const Tensor x = logits(random, type, s);
    const Use route = use_of("eng.moe.route/1", {x}, routed(s), routing(s));
    check_close(route, apart);
    const Device::Outputs got = outputs(route), want = route.wanted();
    for (size_t k = 1; k < 5; ++k) CHECK(got[k].same_bits(want[k]));
    const Tensor dweights = random_normal(random, ENG_F32, {s.B, s.T, s.k}),
                 dload = random_normal(random, ENG_F32, {s.B, 2 * s.E + 1}, 0.01);
    for (const auto& [by_weights, by_load] : {std::pair(dweights, dload), {dweights, Tensor()}, {Tensor(), dload}}) {
      const Tensors in = {x, want[1], by_weights, by_load};
      check_close(use_of("eng.moe.route_grad/1", in, {x.d}, routing(s)), apart);
    }
    check_close(use_of("eng.moe.route_grad/1", {x, want[1], dweights, dload}, {x.d}, routing(s), {{0, 0}}), apart);
    const eng_desc one = desc(ENG_F32, {1});
    const std::vector<eng_attr> rows = {whole("rows", 2 * s.T)};
    const Tensor d(ENG_F32, {1}, {0.75}), dz(ENG_F32, {1}, {-1.5});
    check_close(use_of("eng.moe.balance/1", {want[5]}, {one, one}, rows), apart);
    check_close(use_of("eng.moe.balance_grad/1", {want[5], d, dz}, {want[5].d}, rows, {{0, 0}}), apart);
    check_close(use_of("eng.moe.balance_grad/1", {want[5], Tensor(), dz}, {want[5].d}, rows), apart);
  });
}

TEST_CASE("emulated cuda: a router takes logits that are no numbers last") {
  const Shape s{1, 3, 1, 1, 5, 3};
  Tensor x(ENG_F32, {1, 3, 5}, {NAN, 2, NAN, 1, 3, NAN, NAN, NAN, NAN, 1, INFINITY, -INFINITY, NAN, INFINITY, 0});
  const Use route = use_of("eng.moe.route/1", {x}, routed(s), routing(s));
  const Device::Outputs got = outputs(route), want = route.wanted();
  for (size_t k = 1; k < 5; ++k) CHECK(got[k].same_bits(want[k]));
}

TEST_CASE("emulated cuda: the router with sigmoids and its gradient") {
  const std::pair<Shape, moe_test::Sigmoid> cases[] = {{{1, 3, 0, 0, 1, 1, false}, {}},
                                                       {{2, 3, 0, 0, 4, 2}, {2.5, 2, 1}},
                                                       {{1, 2, 0, 0, 40, 4, false}, {0.5}},
                                                       {{1, 2, 0, 0, 36, 3}, {1.5, 12, 2}}};
  for (const int32_t type : types_of_long_cases())
    for (const auto& [s, how] : cases) {
      if (type != ENG_F32 && s.E > 4) continue;
      INFO("type " << type << ", E " << s.E << ", groups " << how.groups);
      Random random(static_cast<uint64_t>(s.E));
      Tensor x = logits(random, type, s), correction = random_normal(random, ENG_F32, {s.E}, 0.2);
      if (s.E == 40) x.put(3, NAN), x.put(43, -INFINITY);
      for (int64_t e = 0; e < s.E; ++e) correction.put(e, std::floor(correction.at(e) * 8) / 8);
      std::vector<eng_desc> out = routed(s);
      out.pop_back();
      for (const Tensor& added : {correction, Tensor()}) {
        if (s.E > 4 && (s.E == 40) != (added.d.dtype != 0)) continue;  // each of them with one of the two
        const Use route = use_of("eng.moe.route_sigmoid/1", {x, added}, out, routing(s, how));
        const Device::Outputs got = outputs(route), want = route.wanted();
        CHECK(error_of(got[0], want[0]) <= 1e-7);
        for (size_t k = 1; k < 5; ++k) CHECK(got[k].same_bits(want[k]));
        const Tensor dweights = random_normal(random, ENG_F32, {s.B, s.T, s.k});
        check_close(use_of("eng.moe.route_sigmoid_grad/1", {x, want[1], dweights}, {x.d}, routing(s, how)), 1e-7);
      }
    }
}

TEST_CASE("emulated cuda: products with the weights of experts and their gradients") {
  each_case([](int32_t type, const Shape& s, Random& random, const Tensors& r) {
    const Tensor x = random_normal(random, type, {s.B, s.T, s.H}),
                 w = random_normal(random, type, {s.E, s.I, s.H}, 0.3),
                 rows = random_normal(random, type, {s.B, s.T, s.k, s.H}),
                 dy = random_normal(random, type, {s.B, s.T, s.k, s.I});
    check_close(use_of("eng.moe.linear/1", {x, w, r[4], r[2], r[3]}, {dy.d}), apart);
    check_close(use_of("eng.moe.linear/1", {rows, w, r[4]}, {dy.d}), apart);
    check_close(use_of("eng.moe.linear_input_grad/1", {dy, w, r[4]}, {rows.d}), apart);
    for (const int32_t sums : {type, int32_t{ENG_F32}}) {
      const Tensor acc = random_normal(random, sums, {s.E, s.I, s.H});
      check_close(use_of("eng.moe.linear_weight_grad/1", {dy, rows, r[4]}, {acc.d}), apart);
      check_close(use_of("eng.moe.linear_weight_grad/1", {dy, rows, r[4], acc}, {acc.d}, {}, {{0, 3}}), apart);
    }
  });
}

TEST_CASE("emulated cuda: gated rows of experts, their gradient, and how rows are gathered and combined") {
  each_case([](int32_t type, const Shape& s, Random& random, const Tensors& r) {
    const Tensor x = random_normal(random, type, {s.B, s.T, s.k, 2 * s.I}),
                 dy = random_normal(random, type, {s.B, s.T, s.k, s.I}),
                 tokens = random_normal(random, type, {s.B, s.T, s.H}),
                 rows = random_normal(random, type, {s.B, s.T, s.k, s.H});
    const std::vector<eng_attr> act = {whole("act", s.act)};
    check_close(use_of("eng.moe.gated/1", {x, r[0], r[2]}, {dy.d}, act), apart);
    check_close(use_of("eng.moe.gated_grad/1", {dy, x, r[0], r[2]}, {x.d, r[0].d}, act), apart);
    check_close(use_of("eng.moe.gated_grad/1", {dy, x, r[0], r[2]}, {x.d, r[0].d}, act, {{0, 1}}), apart);
    check_close(use_of("eng.moe.combine/1", {rows, r[3], r[2]}, {tokens.d}), apart);
    check_exact(use_of("eng.moe.gather/1", {tokens, r[2]}, {rows.d}));
  });
}

}  // namespace moe_on_cuda
