// SPDX-License-Identifier: Apache-2.0
// Every gradient op against central differences of its forward op, in f64 on the reference device: for random weights r
// the scalar L = sum over outputs of r * output is differentiated by each element of each input. A case is run once as
// it is, which must agree to 1e-6, and once for each planted fault, which must be seen.
#include "gradient_case.hpp"

using namespace gradients;

TEST_CASE("gradient of linear: two products and column sums") {
  repeat(1, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 3), T = pick(random, 1, 4), K = pick(random, 1, 6), N = pick(random, 1, 5);
    const bool bias = round % 2 == 0, accumulate = round % 3 == 0;
    const Tensor r = normal(random, {B, T, N});
    const Tensor w_acc = normal(random, {N, K}), b_acc = normal(random, {N});
    Tensors inputs = {normal(random, {B, T, K}), normal(random, {N, K})};
    if (bias) inputs.push_back(normal(random, {N}));
    const auto value = [=](const Tensors& in) {
      const auto y = reference().run(ENG_OP_LINEAR, {in[0], in[1], bias ? in[2] : Tensor()}, {r.d});
      // The accumulators already hold the gradient of this.
      double extra = accumulate ? inner(w_acc, in[1]) : 0.0;
      if (accumulate && bias) extra += inner(b_acc, in[2]);
      return inner(r, y[0]) + extra;
    };
    const auto gradients = [=](const Tensors& in) {
      Tensors g;
      g.push_back(reference().run(ENG_OP_MATMUL, {r, in[1], Tensor()}, {in[0].d}, {whole("ta", 0), whole("tb", 0)})[0]);
      const Device::InPlace in_place = accumulate ? Device::InPlace{{0, 2}} : Device::InPlace{};
      g.push_back(reference().run(ENG_OP_MATMUL, {r, in[0], accumulate ? w_acc : Tensor()}, {in[1].d},
                                  {whole("ta", 1), whole("tb", 0)}, in_place)[0]);
      if (bias)
        g.push_back(reference().run(ENG_OP_SUM_ROWS, {r, accumulate ? b_acc : Tensor()}, {in[2].d}, {},
                                    accumulate ? Device::InPlace{{0, 1}} : Device::InPlace{})[0]);
      return g;
    };
    return GradientCase{inputs, value, gradients};
  });
}

TEST_CASE("matmul: every transposition, against a sum written out") {
  Random random(20);
  for (int form = 0; form < 8; ++form) {
    const bool ta = form & 1, tb = form & 2, with_acc = form & 4;
    const int64_t M = pick(random, 1, 5), N = pick(random, 1, 5), K = pick(random, 1, 5);
    const Tensor a = normal(random, ta ? Dims{K, M} : Dims{M, K}), b = normal(random, tb ? Dims{N, K} : Dims{K, N});
    const Tensor acc = normal(random, {M, N});
    const Tensor c = reference().run(ENG_OP_MATMUL, {a, b, with_acc ? acc : Tensor()}, {acc.d},
                                     {whole("ta", ta), whole("tb", tb)})[0];
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        double want = with_acc ? acc.at(m * N + n) : 0.0;
        for (int64_t k = 0; k < K; ++k) want += a.at(ta ? k * M + m : m * K + k) * b.at(tb ? n * K + k : k * N + n);
        CHECK(c.at(m * N + n) == Approx(want).epsilon(1e-12));
      }
  }
}

TEST_CASE("gradient of embedding") {
  repeat(2, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 3), T = pick(random, 1, 6), V = pick(random, 1, 5), H = pick(random, 1, 4);
    const Tensor tokens = random_ints(random, {B, T}, 0, int(V) - 1), r = normal(random, {B, T, H});
    const Tensor acc = normal(random, {V, H});
    const bool accumulate = round % 2 == 0;
    const auto value = [=](const Tensors& in) {
      return inner(r, reference().run(ENG_OP_EMBEDDING, {tokens, in[0]}, {r.d})[0]) +
             (accumulate ? inner(acc, in[0]) : 0.0);
    };
    const auto gradients = [=](const Tensors& in) {
      return reference().run(ENG_OP_EMBEDDING_GRAD, {tokens, r, accumulate ? acc : Tensor()}, {in[0].d}, {},
                             accumulate ? Device::InPlace{{0, 2}} : Device::InPlace{});
    };
    return GradientCase{{normal(random, {V, H})}, value, gradients};
  });
}

TEST_CASE("gradient of rms_norm: residual, ds, dw_acc") {
  repeat(3, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 3), T = pick(random, 1, 3), H = pick(random, 2, 7);
    const bool residual = round % 2 == 0, with_ds = round % 3 != 0, accumulate = round % 3 != 1;
    const std::vector<eng_attr> attrs = {real("eps", 0.1)};
    const Tensor r = normal(random, {B, T, H}), r_sum = normal(random, {B, T, H}), acc = normal(random, {H});
    Tensors inputs = {normal(random, {B, T, H}), normal(random, {H})};
    if (residual) inputs.push_back(normal(random, {B, T, H}));
    const auto forward = [=](const Tensors& in) {
      std::vector<eng_desc> outs = {r.d, desc(ENG_F64, {B, T})};
      if (residual) outs.push_back(r.d);
      return reference().run(ENG_OP_RMS_NORM, {in[0], in[1], residual ? in[2] : Tensor()}, outs, attrs);
    };
    const auto value = [=](const Tensors& in) {
      const Tensors out = forward(in);
      double L = inner(r, out[0]) + (accumulate ? inner(acc, in[1]) : 0.0);
      if (with_ds) L += inner(r_sum, residual ? out[2] : in[0]);  // s is used elsewhere too
      return L;
    };
    const auto gradients = [=](const Tensors& in) {
      const Tensors out = forward(in);
      Device::InPlace in_place;
      if (with_ds) in_place.push_back({0, 4});
      if (accumulate) in_place.push_back({1, 5});
      Tensors g = reference().run(
          ENG_OP_RMS_NORM_GRAD,
          {r, residual ? out[2] : in[0], in[1], out[1], with_ds ? r_sum : Tensor(), accumulate ? acc : Tensor()},
          {r.d, in[1].d}, {}, in_place);
      if (residual) g.push_back(g[0]);  // x and the residual are only added
      return g;
    };
    return GradientCase{inputs, value, gradients};
  });
}

TEST_CASE("gradient of rope is the rotation back") {
  repeat(4, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 2), T = pick(random, 1, 4), heads = pick(random, 1, 3),
                  D = 2 * pick(random, 1, 3);
    Tensor table(round % 2 ? ENG_F32 : ENG_F64, {T, D});
    for (int64_t t = 0; t < T; ++t)
      for (int64_t j = 0; j < D / 2; ++j) {
        const double angle = double(t) * std::pow(100.0, -2.0 * double(j) / double(D));
        table.put(t * D + j, std::cos(angle)), table.put(t * D + D / 2 + j, std::sin(angle));
      }
    const Tensor r = normal(random, {B, T, heads * D});
    const auto turn = [=](const Tensor& x, int64_t inverse) {
      const std::vector<eng_attr> attrs = {whole("heads", heads), whole("inverse", inverse)};
      const Tensor apart = reference().run(ENG_OP_ROPE, {x, table}, {x.d}, attrs)[0];
      CHECK(apart.same_bits(reference().run(ENG_OP_ROPE, {x, table}, {x.d}, attrs, {{0, 0}})[0]));
      return apart;
    };
    return GradientCase{{normal(random, {B, T, heads * D})},
                        [=](const Tensors& in) { return inner(r, turn(in[0], 0)); },
                        [=](const Tensors&) { return Tensors{turn(r, 1)}; }};
  });
}

TEST_CASE("rope turns halves: position 1 by the angle of each pair") {
  // D = 4, one head: pairs (x0, x2) and (x1, x3).
  const Tensor table(ENG_F64, {1, 4}, {std::cos(0.5), std::cos(0.1), std::sin(0.5), std::sin(0.1)});
  const Tensor x(ENG_F64, {1, 1, 4}, {1, 2, 3, 4});
  const Tensor y = reference().run(ENG_OP_ROPE, {x, table}, {x.d}, {whole("heads", 1), whole("inverse", 0)})[0];
  CHECK(y.at(0) == Approx(1 * std::cos(0.5) - 3 * std::sin(0.5)));
  CHECK(y.at(1) == Approx(2 * std::cos(0.1) - 4 * std::sin(0.1)));
  CHECK(y.at(2) == Approx(3 * std::cos(0.5) + 1 * std::sin(0.5)));
  CHECK(y.at(3) == Approx(4 * std::cos(0.1) + 2 * std::sin(0.1)));
}

TEST_CASE("gradient of attention: one, several and grouped key heads") {
  repeat(5, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 2), T = pick(random, 2, 5), D = pick(random, 1, 4);
    const int64_t kv_heads = pick(random, 1, 2), heads = kv_heads * (round % 3 + 1);
    const std::vector<eng_attr> attrs = {whole("heads", heads), whole("kv_heads", kv_heads), real("scale", 0.7)};
    const Tensor r = normal(random, {B, T, heads * D});
    const eng_desc lse = desc(ENG_F64, {B, heads, T});
    const auto forward = [=](const Tensors& in) { return reference().run(ENG_OP_ATTENTION, in, {r.d, lse}, attrs); };
    const auto value = [=](const Tensors& in) { return inner(r, forward(in)[0]); };
    const auto gradients = [=](const Tensors& in) {
      const Tensors out = forward(in);
      return reference().run(ENG_OP_ATTENTION_GRAD, {r, in[0], in[1], in[2], out[0], out[1]},
                             {in[0].d, in[1].d, in[2].d}, attrs);
    };
    return GradientCase{
        {normal(random, {B, T, heads * D}), normal(random, {B, T, kv_heads * D}), normal(random, {B, T, kv_heads * D})},
        value,
        gradients};
  });
}

TEST_CASE("attention is causal, its rows are means, lse is the log of the row's sum") {
  Random random(50);
  const int64_t T = 6, D = 3, heads = 4, kv_heads = 2;
  const std::vector<eng_attr> attrs = {whole("heads", heads), whole("kv_heads", kv_heads), real("scale", 0.5)};
  Tensors in = {normal(random, {1, T, heads * D}), normal(random, {1, T, kv_heads * D}),
                normal(random, {1, T, kv_heads * D})};
  const std::vector<eng_desc> outs = {in[0].d, desc(ENG_F64, {1, heads, T})};
  const Tensors before = reference().run(ENG_OP_ATTENTION, in, outs, attrs);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t d = 0; d < D; ++d)  // the first query sees the first value alone
      CHECK(before[0].at(h * D + d) == Approx(in[2].at(h / 2 * D + d)));
    double sum = 0;  // second query: two keys
    for (int64_t j = 0; j < 2; ++j) {
      double score = 0;
      for (int64_t d = 0; d < D; ++d) score += in[0].at((heads + h) * D + d) * in[1].at((j * kv_heads + h / 2) * D + d);
      sum += std::exp(0.5 * score);
    }
    CHECK(before[1].at(h * T + 1) == Approx(std::log(sum)));
  }
  for (size_t k : {0, 1, 2}) in[k].put(in[k].size() - 1, 100);  // the last position
  const Tensors after = reference().run(ENG_OP_ATTENTION, in, outs, attrs);
  const size_t earlier = size_t((T - 1) * heads * D) * sizeof(double);
  CHECK(std::memcmp(before[0].as<char>(), after[0].as<char>(), earlier) == 0);
  CHECK(!before[0].same_bits(after[0]));
}

TEST_CASE("gradient of gated: every activation, in place") {
  for (int64_t act : {ENG_ACT_SILU, ENG_ACT_GELU, ENG_ACT_GELU_TANH, ENG_ACT_RELU}) {
    INFO("activation " << act);
    repeat(60 + uint64_t(act), [&](Random& random, int round) {
      const int64_t B = pick(random, 1, 3), T = pick(random, 1, 3), I = pick(random, 1, 5);
      const std::vector<eng_attr> attrs = {whole("act", act)};
      const Tensor r = normal(random, {B, T, I});
      const auto value = [=](const Tensors& in) {
        return inner(r, reference().run(ENG_OP_GATED, in, {r.d}, attrs)[0]);
      };
      const auto gradients = [=](const Tensors& in) {
        return reference().run(ENG_OP_GATED_GRAD, {r, in[0], in[1]}, {r.d, r.d}, attrs,
                               round % 2 ? Device::InPlace{{0, 1}, {1, 2}} : Device::InPlace{});
      };
      Tensor gate = normal(random, {B, T, I}, 2.0);
      for (int64_t i = 0; i < gate.size(); ++i)  // relu has no slope at 0, and none to drop below it
        if (act == ENG_ACT_RELU && (i == 0 || std::fabs(gate.at(i)) < 0.01)) gate.put(i, 0.5);
      return GradientCase{{gate, normal(random, {B, T, I})}, value, gradients};
    });
  }
}

TEST_CASE("activations have their known values") {
  const Tensor gate(ENG_F64, {3}, {1, -2, 0.5}), one(ENG_F64, {3}, {1, 1, 1});
  const auto run = [&](int64_t act) {
    return reference().run(ENG_OP_GATED, {gate, one}, {gate.d}, {whole("act", act)})[0];
  };
  CHECK(run(ENG_ACT_SILU).at(0) == Approx(0.7310585786300049).epsilon(1e-14));
  CHECK(run(ENG_ACT_GELU).at(0) == Approx(0.8413447460685429).epsilon(1e-14));  // the normal distribution at 1
  CHECK(run(ENG_ACT_GELU_TANH).at(0) == Approx(0.8411919906082768).epsilon(1e-14));
  CHECK(run(ENG_ACT_RELU).at(0) == 1.0);
  CHECK(run(ENG_ACT_RELU).at(1) == 0.0);
  CHECK(run(ENG_ACT_GELU).at(1) == Approx(-2 * 0.02275013194817921).epsilon(1e-13));
}

TEST_CASE("gradient of add is dy twice") {
  repeat(7, [](Random& random, int) {
    const int64_t n = pick(random, 1, 9);
    const Tensor r = normal(random, {n});
    return GradientCase{{normal(random, {n}), normal(random, {n})},
                        [=](const Tensors& in) { return inner(r, reference().run(ENG_OP_ADD, in, {r.d})[0]); },
                        [=](const Tensors&) {
                          return Tensors{r, r};
                        }};
  });
}

TEST_CASE("gradient of cross_entropy: ignored labels, scale, accumulation") {
  repeat(8, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 2), T = pick(random, 2, 5), V = pick(random, 2, 6), H = pick(random, 1, 5);
    Tensor labels = random_ints(random, {B, T}, 0, int(V) - 1);
    if (round % 2 == 0) labels.put(pick(random, 1, B * T - 1), -100);
    const double inv_tokens = round % 3 ? 0.25 : 1.0, loss_scale = round % 3 == 2 ? 8.0 : 1.0;
    const bool accumulate = round % 2 == 1;
    Tensor scalars(round % 2 ? ENG_F32 : ENG_F64, {ENG_S_COUNT});
    scalars.put(ENG_S_INV_TOKENS, inv_tokens), scalars.put(ENG_S_LOSS_SCALE, loss_scale);
    const Tensor acc = normal(random, {V, H});
    const eng_desc loss = desc(ENG_F64, {1});
    const auto unscaled = [=](const Tensors& in) {
      return reference().run(ENG_OP_CROSS_ENTROPY, {in[0], in[1], labels}, {loss})[0].at(0);
    };
    const auto value = [=](const Tensors& in) {
      return unscaled(in) * inv_tokens * loss_scale + (accumulate ? inner(acc, in[1]) : 0.0);
    };
    const auto gradients = [=](const Tensors& in) {
      Tensors out =
          reference().run(ENG_OP_CROSS_ENTROPY_GRAD, {in[0], in[1], labels, scalars, accumulate ? acc : Tensor()},
                          {loss, in[0].d, in[1].d}, {}, accumulate ? Device::InPlace{{2, 4}} : Device::InPlace{});
      CHECK(out[0].at(0) == Approx(unscaled(in)).epsilon(1e-13));  // the loss comes unscaled
      for (int64_t i = 0; i < labels.size(); ++i)
        for (int64_t h = 0; labels.at(i) == -100 && h < H; ++h) CHECK(out[1].at(i * H + h) == 0.0);
      const Tensors frozen =
          reference().run(ENG_OP_CROSS_ENTROPY_GRAD, {in[0], in[1], labels, scalars}, {loss, in[0].d});
      for (int64_t k = 0; k < out[1].size(); ++k) CHECK(frozen[1].at(k) == out[1].at(k));
      CHECK(frozen[0].at(0) == out[0].at(0));
      out.erase(out.begin());
      return out;
    };
    return GradientCase{{normal(random, {B, T, H}), normal(random, {V, H})}, value, gradients};
  });
}

TEST_CASE("gradient of cross_entropy: weight, z loss and loss weights") {
  repeat(21, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 2), T = pick(random, 2, 5), V = pick(random, 2, 6), H = pick(random, 1, 5);
    Tensor labels = random_ints(random, {B, T}, 0, int(V) - 1);
    labels.put(pick(random, 0, B * T - 1), -100);
    const double inv_tokens = 0.25, scale = round % 2 ? 8.0 : 1.0, weight = round % 3 ? 1.0 : 0.5, z_loss = 0.375;
    Tensor scalars(ENG_F64, {ENG_S_COUNT});
    scalars.put(ENG_S_INV_TOKENS, inv_tokens), scalars.put(ENG_S_LOSS_SCALE, scale);
    const Tensor of_tokens = round % 2 ? random_normal(random, ENG_F64, {B, T}, 1.0) : Tensor();
    const eng_desc one = desc(ENG_F64, {1});
    const auto sums = [=](const Tensors& in) {
      return reference().run(ENG_OP_CROSS_ENTROPY, {in[0], in[1], labels, of_tokens}, {one, one},
                             {real("z_loss", z_loss)});
    };
    const auto value = [=](const Tensors& in) {
      const Tensors both = sums(in);
      return (weight * both[0].at(0) + z_loss * both[1].at(0)) * inv_tokens * scale;
    };
    const auto gradients = [=](const Tensors& in) {
      const std::vector<eng_attr> attrs{real("weight", weight), real("z_loss", z_loss)};
      Tensors out = reference().run(ENG_OP_CROSS_ENTROPY_GRAD, {in[0], in[1], labels, scalars, Tensor(), of_tokens},
                                    {one, in[0].d, in[1].d, one}, attrs);
      const Tensors both = sums(in);
      CHECK(out[0].at(0) == Approx(both[0].at(0)).epsilon(1e-13));
      CHECK(out[3].at(0) == Approx(both[1].at(0)).epsilon(1e-13));
      std::vector<eng_attr> without = attrs;
      without.push_back({"no_dw", 1, 0});
      const Tensors frozen =
          reference().run(ENG_OP_CROSS_ENTROPY_GRAD, {in[0], in[1], labels, scalars, Tensor(), of_tokens},
                          {one, in[0].d, one}, without);
      CHECK((frozen[1].same_bits(out[1]) && frozen[2].same_bits(out[3])));
      return Tensors{out[1], out[2]};
    };
    return GradientCase{{normal(random, {B, T, H}), normal(random, {V, H})}, value, gradients};
  });
}

TEST_CASE("gradient of label_logprob: ignored labels, accumulation") {
  repeat(22, [](Random& random, int round) {
    const int64_t B = pick(random, 1, 2), T = pick(random, 2, 5), V = pick(random, 2, 6), H = pick(random, 1, 5);
    Tensor labels = random_ints(random, {B, T}, 0, int(V) - 1);
    if (round % 2 == 0) labels.put(pick(random, 1, B * T - 1), -100);
    const bool accumulate = round % 2 == 1;
    const Tensor acc = normal(random, {V, H}), dy = normal(random, {B, T});
    const auto value = [=](const Tensors& in) {
      const Tensor y = reference().run(ENG_OP_LABEL_LOGPROB, {in[0], in[1], labels}, {dy.d})[0];
      return inner(dy, y) + (accumulate ? inner(acc, in[1]) : 0.0);
    };
    const auto gradients = [=](const Tensors& in) {
      const Tensors out =
          reference().run(ENG_OP_LABEL_LOGPROB_GRAD, {in[0], in[1], labels, dy, accumulate ? acc : Tensor()},
                          {in[0].d, in[1].d}, {}, accumulate ? Device::InPlace{{1, 4}} : Device::InPlace{});
      for (int64_t i = 0; i < labels.size(); ++i)
        for (int64_t h = 0; labels.at(i) == -100 && h < H; ++h) CHECK(out[0].at(i * H + h) == 0.0);
      const Tensors frozen =
          reference().run(ENG_OP_LABEL_LOGPROB_GRAD, {in[0], in[1], labels, dy}, {in[0].d}, {{"no_dw", 1, 0}});
      CHECK(frozen[0].same_bits(out[0]));
      return out;
    };
    return GradientCase{{normal(random, {B, T, H}), normal(random, {V, H})}, value, gradients};
  });
}

TEST_CASE("label_logprob is the cross-entropy of each label, with its sign changed") {
  Random random(5);
  const Tensor x = normal(random, {2, 3, 4}), w = normal(random, {6, 4});
  const Tensor labels(ENG_I32, {2, 3}, {0, 5, -100, 2, 2, 1});
  const Tensor y = reference().run(ENG_OP_LABEL_LOGPROB, {x, w, labels}, {desc(ENG_F64, {2, 3})})[0];
  double sum = 0;
  for (int64_t k = 0; k < 6; ++k) {
    double total = 0, logit = 0;  // a plain loop
    for (int64_t v = 0; v < 6; ++v) {
      double z = 0;
      for (int64_t h = 0; h < 4; ++h) z += x.at(k * 4 + h) * w.at(v * 4 + h);
      total += std::exp(z);
      if (v == int64_t(labels.at(k))) logit = z;
    }
    CHECK(y.at(k) == Approx(labels.at(k) == -100 ? 0.0 : logit - std::log(total)).epsilon(1e-12));
    sum += y.at(k);
  }
  CHECK(reference().run(ENG_OP_CROSS_ENTROPY, {x, w, labels}, {desc(ENG_F64, {1})})[0].at(0) ==
        Approx(-sum).epsilon(1e-12));
}

TEST_CASE("cross_entropy of equal logits is log V per counted label") {
  const Tensor x(ENG_F32, {1, 3, 2}, {1, 2, 3, 4, 5, 6}), w(ENG_F32, {7, 2}), labels(ENG_I32, {1, 3}, {0, -100, 6});
  const Tensor loss = reference().run(ENG_OP_CROSS_ENTROPY, {x, w, labels}, {desc(ENG_F32, {1})})[0];
  CHECK(loss.at(0) == Approx(2 * std::log(7.0)).epsilon(1e-6));
}

TEST_CASE("add and the sum of rms_norm may take the memory of either input") {
  Random random(11);
  const Dims dims = {2, 3, 5};
  const Tensor x = normal(random, dims), y = normal(random, dims), w = normal(random, {5});
  const std::vector<eng_desc> outs = {x.d, desc(ENG_F64, {2, 3}), x.d};
  const Tensor total = reference().run(ENG_OP_ADD, {x, y}, {x.d})[0];
  const Tensors apart = reference().run(ENG_OP_RMS_NORM, {x, w, y}, outs, {real("eps", 1e-5)});
  for (size_t input : {0, 1}) {
    CHECK(reference().run(ENG_OP_ADD, {x, y}, {x.d}, {}, {{0, input}})[0].same_bits(total));
    const Tensors r = reference().run(ENG_OP_RMS_NORM, {x, w, y}, outs, {real("eps", 1e-5)}, {{2, 2 * input}});
    for (size_t k = 0; k < 3; ++k) CHECK(r[k].same_bits(apart[k]));
  }
}

TEST_CASE("the same templates in f32 agree with f64 to the rounding of f32") {
  Random random(9);
  const auto narrow = [](const Tensor& t) {
    Tensor f = t;
    if (t.d.dtype != ENG_F64) return f;
    f = Tensor(ENG_F32, dims_of(t));
    for (int64_t i = 0; i < t.size(); ++i) f.put(i, t.at(i));
    return f;
  };
  const auto compare = [&](const char* op, Tensors in, std::vector<eng_desc> outs, const std::vector<eng_attr>& attrs) {
    INFO(op);
    Tensors in32;
    for (Tensor& t : in) {
      in32.push_back(narrow(t));
      for (int64_t i = 0; t.d.dtype == ENG_F64 && i < t.size(); ++i) t.put(i, in32.back().at(i));
    }
    const Tensors wide = reference().run(op, in, outs, attrs);
    for (eng_desc& d : outs) d.dtype = ENG_F32;
    const Tensors slim = reference().run(op, in32, outs, attrs);
    for (size_t k = 0; k < wide.size(); ++k) CHECK(error_of(slim[k], wide[k]) < 2e-7);
  };
  const int64_t B = 2, T = 9, H = 16, V = 11;
  const Tensor x = normal(random, {B, T, H}), y = normal(random, {B, T, H}), z = normal(random, {B, T, H});
  const Tensor w = normal(random, {V, H}), labels = random_ints(random, {B, T}, 0, int(V) - 1);
  const eng_desc xd = x.d, row = desc(ENG_F64, {B, T}), one = desc(ENG_F64, {1}), lse = desc(ENG_F64, {B, 4, T});
  const std::vector<eng_attr> heads = {whole("heads", 4), whole("kv_heads", 4), real("scale", 0.5)};
  compare(ENG_OP_LINEAR, {x, w, Tensor()}, {desc(ENG_F64, {B, T, V})}, {});
  compare(ENG_OP_MATMUL, {x, y, Tensor()}, {desc(ENG_F64, {H, H})}, {whole("ta", 1), whole("tb", 0)});
  compare(ENG_OP_SUM_ROWS, {x}, {desc(ENG_F64, {H})}, {});
  compare(ENG_OP_EMBEDDING, {labels, w}, {xd}, {});
  compare(ENG_OP_EMBEDDING_GRAD, {labels, x, Tensor()}, {w.d}, {});
  compare(ENG_OP_RMS_NORM, {x, normal(random, {H}), y}, {xd, row, xd}, {real("eps", 1e-5)});
  compare(ENG_OP_ATTENTION, {x, y, z}, {xd, lse}, heads);
  compare(ENG_OP_GATED, {x, y}, {xd}, {whole("act", ENG_ACT_SILU)});
  compare(ENG_OP_GATED_GRAD, {x, y, z}, {xd, xd}, {whole("act", ENG_ACT_GELU)});
  compare(ENG_OP_CROSS_ENTROPY, {x, w, labels}, {one}, {});
  Tensor scalars(ENG_F64, {ENG_S_COUNT});
  scalars.put(ENG_S_INV_TOKENS, 0.125), scalars.put(ENG_S_LOSS_SCALE, 1);
  compare(ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars, Tensor()}, {one, xd, w.d}, {});
}
