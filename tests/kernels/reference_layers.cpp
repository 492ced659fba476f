// SPDX-License-Identifier: Apache-2.0
// layer_norm, activation, scale, positions and dropout on the reference device: gradients by differences, known values.
#include "gradient_case.hpp"

using namespace gradients;

TEST_CASE("gradient of layer_norm: weight, bias, residual, ds, accumulators") {
  for (int affine : {0, 1, 2})
    repeat(30 + uint64_t(affine), [=](Random& random, int round) {
      const int64_t B = pick(random, 1, 3), T = pick(random, 1, 3), H = pick(random, 2, 7);
      const bool residual = round % 2 == 0, with_ds = round % 3 != 0, accumulate = round % 3 != 1;
      const Tensor r = normal(random, {B, T, H}), r_sum = normal(random, {B, T, H});
      const Tensor w_acc = normal(random, {H}), bias_acc = normal(random, {H});
      Tensors inputs = {normal(random, {B, T, H})};
      if (residual) inputs.push_back(normal(random, {B, T, H}));
      const size_t at = inputs.size();  // of the weight
      for (int k = 0; k < affine; ++k) inputs.push_back(normal(random, {H}));
      const auto forward = [=](const Tensors& in) {
        std::vector<eng_desc> outs = {r.d, desc(ENG_F64, {B, T, 2})};
        if (residual) outs.push_back(r.d);
        return reference().run(
            ENG_OP_LAYER_NORM,
            {in[0], affine > 0 ? in[at] : Tensor(), affine > 1 ? in[at + 1] : Tensor(), residual ? in[1] : Tensor()},
            outs, {real("eps", 0.1)});
      };
      const auto value = [=](const Tensors& in) {
        const Tensors out = forward(in);
        double L = inner(r, out[0]);
        if (accumulate && affine > 0) L += inner(w_acc, in[at]);
        if (accumulate && affine > 1) L += inner(bias_acc, in[at + 1]);
        if (with_ds) L += inner(r_sum, residual ? out[2] : in[0]);  // s is used elsewhere too
        return L;
      };
      const auto gradients = [=](const Tensors& in) {
        const Tensors out = forward(in);
        Device::InPlace in_place;
        std::vector<eng_desc> outs = {r.d};
        if (with_ds) in_place.push_back({0, 4});
        for (size_t k = 1; k <= size_t(affine); ++k) {
          outs.push_back(w_acc.d);
          if (accumulate) in_place.push_back({k, k + 4});
        }
        Tensors g = reference().run(
            ENG_OP_LAYER_NORM_GRAD,
            {r, residual ? out[2] : in[0], affine > 0 ? in[at] : Tensor(), out[1], with_ds ? r_sum : Tensor(),
             accumulate && affine > 0 ? w_acc : Tensor(), accumulate && affine > 1 ? bias_acc : Tensor()},
            outs, {whole("bias", affine > 1)}, in_place);
        if (residual) g.insert(g.begin() + 1, g[0]);  // x and the residual are only added
        return g;
      };
      return GradientCase{inputs, value, gradients};
    });
}

TEST_CASE("layer_norm of known rows") {
  const Tensor x(ENG_F64, {2, 4}, {1, 2, 3, 4, -5, -5, 5, 5}), w(ENG_F64, {4}, {1, 2, 3, 4}),
      bias(ENG_F64, {4}, {0.5, 0, 0, 0});
  const Tensors out = reference().run(ENG_OP_LAYER_NORM, {x, w, bias}, {x.d, desc(ENG_F64, {2, 2})}, {real("eps", 0)});
  const double unit = 1 / std::sqrt(1.25);  // variance of 1, 2, 3, 4
  CHECK(out[0].at(0) == Approx(0.5 - 1.5 * unit).epsilon(1e-14));
  CHECK(out[0].at(3) == Approx(4 * 1.5 * unit).epsilon(1e-14));
  CHECK(out[0].at(7) == Approx(4.0).epsilon(1e-14));
  CHECK(out[1].at(0) == Approx(2.5).epsilon(1e-14));
  CHECK(out[1].at(1) == Approx(unit).epsilon(1e-14));
  CHECK(out[1].at(3) == Approx(0.2).epsilon(1e-14));
}

TEST_CASE("gradient of activation, in place; relu from its output") {
  for (int64_t act : {ENG_ACT_SILU, ENG_ACT_GELU, ENG_ACT_GELU_TANH, ENG_ACT_RELU}) {
    INFO("activation " << act);
    repeat(40 + uint64_t(act), [=](Random& random, int round) {
      const std::vector<eng_attr> attrs = {whole("act", act)};
      Tensor x = normal(random, {pick(random, 1, 12)}, 2.0);
      for (int64_t i = 0; i < x.size(); ++i)  // relu has no slope at 0, and none to drop below it
        if (act == ENG_ACT_RELU && (i == 0 || std::fabs(x.at(i)) < 0.01)) x.put(i, 0.5);
      const Tensor r = normal(random, dims_of(x));
      const auto forward = [=](const Tensors& in) {
        return reference().run(ENG_OP_ACTIVATION, in, {r.d}, attrs,
                               round % 2 ? Device::InPlace{{0, 0}} : Device::InPlace{});
      };
      const auto gradients = [=](const Tensors& in) {
        const Tensor from = act == ENG_ACT_RELU && round % 2 ? forward(in)[0] : in[0];
        return reference().run(ENG_OP_ACTIVATION_GRAD, {r, from}, {r.d}, attrs, {{0, size_t(round % 2)}});
      };
      return GradientCase{{x}, [=](const Tensors& in) { return inner(r, forward(in)[0]); }, gradients};
    });
  }
}

TEST_CASE("gradient of scale and of positions") {
  repeat(45, [](Random& random, int) {
    const Tensor r = normal(random, {pick(random, 1, 9)});
    const std::vector<eng_attr> attrs = {real("factor", 0.3)};
    return GradientCase{{normal(random, dims_of(r))},
                        [=](const Tensors& in) { return inner(r, reference().run(ENG_OP_SCALE, in, {r.d}, attrs)[0]); },
                        [=](const Tensors&) { return reference().run(ENG_OP_SCALE, {r}, {r.d}, attrs); }};
  });
  repeat(46, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 3), T = pick(random, 1, 4), H = pick(random, 1, 4), offset = round % 3;
    const Tensor r = normal(random, {B, T, H}), acc = normal(random, {T + offset + round % 2, H});
    const bool accumulate = round % 2 == 0;
    const auto value = [=](const Tensors& in) {
      return inner(r, reference().run(ENG_OP_POSITIONS, in, {r.d}, {whole("offset", offset)})[0]) +
             (accumulate ? inner(acc, in[1]) : 0.0);
    };
    const auto gradients = [=](const Tensors&) {
      return Tensors{r, reference().run(ENG_OP_POSITIONS_GRAD, {r, accumulate ? acc : Tensor()}, {acc.d},
                                        {whole("offset", offset), whole("rows", acc.d.dims[0])},
                                        accumulate ? Device::InPlace{{0, 1}} : Device::InPlace{})[0]};
    };
    return GradientCase{{normal(random, {B, T, H}), normal(random, dims_of(acc))}, value, gradients};
  });
}

TEST_CASE("gradient of dropout is dropout of the gradient") {
  const Tensor counters(ENG_I64, {ENG_C_COUNT}, {5, 4, 2});
  repeat(47, [=](Random& random, int round) {
    const Tensor r = normal(random, {pick(random, 1, 3), pick(random, 3, 9), 3});
    const std::vector<eng_attr> attrs = {real("p", 0.4), whole("seed", 17), whole("stream", 1 + round)};
    const auto run = [=](const Tensor& x) { return reference().run(ENG_OP_DROPOUT, {x, counters}, {r.d}, attrs); };
    return GradientCase{{normal(random, dims_of(r))},
                        [=](const Tensors& in) { return inner(r, run(in[0])[0]); },
                        [=](const Tensors&) { return run(r); }};
  });
}
