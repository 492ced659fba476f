// SPDX-License-Identifier: Apache-2.0
// Norm, rope, gated, add, embedding and their gradients against the reference, odd widths among the shapes.
#include "fast_elem.hpp"

using namespace kernels_test;

namespace {

const std::vector<Dims> shapes = {{1, 1, 1},    {2, 3, 7},    {1, 5, 64},  {2, 9, 513},
                                  {2, 130, 64}, {3, 50, 200}, {1, 700, 31}};

}  // namespace

TEST_CASE("fast rms_norm") {
  Random random(21);
  for (const Dims& shape : shapes)
    for (bool residual : {false, true}) {
      const Tensor x = random_normal(random, ENG_F32, shape), r = random_normal(random, ENG_F32, shape);
      const Tensor w = random_normal(random, ENG_F32, {shape[2]});
      Case c{ENG_OP_RMS_NORM, {x, w}, {x.d, desc(ENG_F32, {shape[0], shape[1]})}, {real("eps", 1e-5)}, {}};
      if (residual) c.in.push_back(r), c.out.push_back(x.d);
      check_close(c, 1e-6);
      if (!residual) continue;
      for (size_t place : {0, 2}) {  // s in the memory of x or of residual
        c.in_place = {{2, place}};
        check_close(c, 1e-6);
      }
    }
}

TEST_CASE("the comparison sees another eps in rms_norm") {
  Random random(22);
  const Tensor x = random_normal(random, ENG_F32, {4, 64}), w = random_normal(random, ENG_F32, {64});
  const std::vector<eng_desc> out = {x.d, desc(ENG_F32, {4})};
  const auto want = reference().run(ENG_OP_RMS_NORM, {x, w}, out, {real("eps", 1e-5)});
  for (const Fast& f : fast_devices())
    CHECK(error_of(f.device->run(ENG_OP_RMS_NORM, {x, w}, out, {real("eps", 2e-5)})[0], want[0]) > 1e-6);
}

TEST_CASE("fast rms_norm_grad") {
  Random random(23);
  for (const Dims& shape : shapes)
    for (int optional : {0, 1, 2, 3}) {
      const Tensor dy = random_normal(random, ENG_F32, shape), s = random_normal(random, ENG_F32, shape);
      const Tensor w = random_normal(random, ENG_F32, {shape[2]});
      const Tensor rstd =
          reference().run(ENG_OP_RMS_NORM, {s, w}, {s.d, desc(ENG_F32, {shape[0], shape[1]})}, {real("eps", 1e-5)})[1];
      Case c{ENG_OP_RMS_NORM_GRAD, {dy, s, w, rstd, Tensor(), Tensor()}, {dy.d, w.d}, {}, {}};
      if (optional & 1) c.in[4] = random_normal(random, ENG_F32, shape), c.in_place.push_back({0, 4});
      if (optional & 2) c.in[5] = random_normal(random, ENG_F32, {shape[2]}), c.in_place.push_back({1, 5});
      // With one column dx is almost nothing but rounding: only the absolute size counts there.
      if (shape[2] == 1) c.in[4] = random_normal(random, ENG_F32, shape);
      check_close(c, 3e-6);
    }
}

TEST_CASE("fast rope, forward and back") {
  Random random(24);
  struct Shape {
    int64_t b, t, heads, width;
  };
  for (const Shape& s :
       {Shape{1, 1, 1, 2}, Shape{2, 3, 2, 6}, Shape{2, 50, 4, 64}, Shape{1, 33, 3, 80}, Shape{2, 7, 1, 38}}) {
    const Tensor x = random_normal(random, ENG_F32, {s.b, s.t, s.heads * s.width});
    Tensor table(ENG_F32, {s.t, s.width});
    for (int64_t t = 0; t < s.t; ++t)
      for (int64_t j = 0; j < s.width / 2; ++j) {
        const double angle = double(t) * std::pow(10000.0, -2.0 * double(j) / double(s.width));
        table.put(t * s.width + j, std::cos(angle)), table.put(t * s.width + s.width / 2 + j, std::sin(angle));
      }
    const auto attrs = [&](int64_t inverse) {
      return std::vector<eng_attr>{whole("heads", s.heads), whole("inverse", inverse)};
    };
    for (int64_t inverse : {0, 1}) check_close({ENG_OP_ROPE, {x, table}, {x.d}, attrs(inverse), {{0, 0}}}, 1e-6);
    for (const Fast& f : fast_devices()) {
      const auto y = f.device->run(ENG_OP_ROPE, {x, table}, {x.d}, attrs(0));
      CHECK(error_of(f.device->run(ENG_OP_ROPE, {y[0], table}, {x.d}, attrs(1))[0], x) < 1e-6);
      // rotating on instead of back is seen
      if (s.t > 1) CHECK(error_of(f.device->run(ENG_OP_ROPE, {y[0], table}, {x.d}, attrs(0))[0], x) > 1e-3);
    }
  }
}

TEST_CASE("fast gated and its gradient") {
  Random random(25);
  for (const Dims& shape : shapes)
    for (int64_t act : {ENG_ACT_SILU, ENG_ACT_GELU, ENG_ACT_GELU_TANH, ENG_ACT_RELU}) {
      const Tensor gate = random_normal(random, ENG_F32, shape, 3), up = random_normal(random, ENG_F32, shape);
      const Tensor dy = random_normal(random, ENG_F32, shape);
      check_close({ENG_OP_GATED, {gate, up}, {gate.d}, {whole("act", act)}, {}}, 1e-6);
      check_close({ENG_OP_GATED_GRAD, {dy, gate, up}, {gate.d, up.d}, {whole("act", act)}, {{0, 1}, {1, 2}}}, 1e-6);
    }
}

// Element by element, not only beside the largest: far tails, both infinities' neighbourhoods, denormal results.
TEST_CASE("fast activations are precise at every size of the gate") {
  Tensor gate(ENG_F32, {20000});
  for (int64_t i = 0; i < 20000; ++i) gate.put(i, (double(i) - 10000) * 0.0101);
  for (int64_t i = 0; i < 100; ++i) gate.put(i, (i % 2 ? -1 : 1) * std::pow(10.0, double(i) * 0.76 - 38));
  const Tensor one(ENG_F32, {20000}, std::vector<double>(20000, 1.0));
  struct Limit {
    int64_t act;
    double relative, tiny;
  };
  // silu: where e^gate is denormal one bit of it is worth up to 1e-43 in the product
  // gelu_tanh: 1 + tanh cancels in the reference's own f64 below about -5
  for (const Limit& l : {Limit{ENG_ACT_SILU, 5e-7, 1e-43}, Limit{ENG_ACT_GELU, 1.5e-6, 1e-14},
                         Limit{ENG_ACT_GELU_TANH, 3e-6, 1e-8}, Limit{ENG_ACT_RELU, 0, 0}}) {
    const auto want = reference().run(ENG_OP_GATED, {gate, one}, {gate.d}, {whole("act", l.act)});
    const auto slope = reference().run(ENG_OP_GATED_GRAD, {one, gate, one}, {gate.d, gate.d}, {whole("act", l.act)});
    for (const Fast& f : fast_devices()) {
      INFO(f.isa << ", activation " << l.act);
      const auto got = f.device->run(ENG_OP_GATED, {gate, one}, {gate.d}, {whole("act", l.act)});
      const auto back = f.device->run(ENG_OP_GATED_GRAD, {one, gate, one}, {gate.d, gate.d}, {whole("act", l.act)});
      double worst = 0, at = 0;
      int64_t bad = 0;
      for (int64_t i = 0; i < gate.size(); ++i) {
        const double a = got[0].at(i), b = want[0].at(i), error = std::fabs(a - b);
        if (error > l.tiny && error / std::fabs(b) > worst) worst = error / std::fabs(b), at = gate.at(i);
        bad += !(std::fabs(back[0].at(i) - slope[0].at(i)) <= 1e-6) || !std::isfinite(a);
      }
      INFO("worst at gate " << at);
      CHECK(worst <= l.relative);
      CHECK(bad == 0);
    }
  }
}

TEST_CASE("fast add, also in the memory of either input") {
  Random random(26);
  for (const Dims& shape : shapes) {
    Case c{ENG_OP_ADD, {random_normal(random, ENG_F32, shape), random_normal(random, ENG_F32, shape)}, {}, {}, {}};
    c.out = {c.in[0].d};
    for (const Device::InPlace& in_place : {Device::InPlace{{0, 0}}, Device::InPlace{{0, 1}}}) {
      c.in_place = in_place;
      check_exact(c);
    }
  }
}

TEST_CASE("fast embedding and its gradient") {
  Random random(27);
  for (const Dims& shape : shapes) {
    const int64_t v = pick(random, 1, 40), h = shape[2];
    const Tensor tokens = random_ints(random, {shape[0], shape[1]}, 0, int(v) - 1);
    const Tensor table = random_normal(random, ENG_F32, {v, h}), dy = random_normal(random, ENG_F32, shape);
    check_exact({ENG_OP_EMBEDDING, {tokens, table}, {dy.d}, {}, {}});
    check_close({ENG_OP_EMBEDDING_GRAD, {tokens, dy}, {table.d}, {}, {}}, 2e-6);
    check_close({ENG_OP_EMBEDDING_GRAD, {tokens, dy, table}, {table.d}, {}, {{0, 2}}}, 2e-6);
    // a token that went to the neighbour's row is seen
    if (v > 1) {
      Tensor moved = tokens;
      moved.put(0, double((tokens.as<int32_t>()[0] + 1) % v));
      const auto want = reference().run(ENG_OP_EMBEDDING_GRAD, {tokens, dy}, {table.d});
      for (const Fast& f : fast_devices())
        CHECK(error_of(f.device->run(ENG_OP_EMBEDDING_GRAD, {moved, dy}, {table.d})[0], want[0]) > 2e-6);
    }
  }
  for (const Fast& f : fast_devices()) {
    const Tensor tokens(ENG_I32, {1, 2}, {1, 4}), table(ENG_F32, {4, 5}), dy(ENG_F32, {1, 2, 5});
    CHECK_THROWS_WITH(f.device->run(ENG_OP_EMBEDDING, {tokens, table}, {dy.d}),
                      Catch::Contains("token 4 at position 1"));
    CHECK_THROWS_WITH(f.device->run(ENG_OP_EMBEDDING_GRAD, {tokens, dy}, {table.d}),
                      Catch::Contains("token 4 at position 1"));
  }
}

TEST_CASE("the fast kernels say what they cannot serve") {
  const Device& d = *fast_devices()[0].device;
  const Tensor x(ENG_F32, {2, 3});
  CHECK_THROWS_WITH(d.run(ENG_OP_ADD, {x, Tensor(ENG_F64, {2, 3})}, {x.d}),
                    Catch::Contains("b must be f32, bf16 or f16") && Catch::Contains("f64"));
  CHECK_THROWS_WITH(d.run(ENG_OP_GATED, {x, x}, {x.d}, {whole("act", 9)}), Catch::Contains("act = 9"));
  CHECK_THROWS_WITH(d.run(ENG_OP_RMS_NORM, {x, Tensor(ENG_F32, {4})}, {x.d, desc(ENG_F32, {2})}, {real("eps", 1)}),
                    Catch::Contains("w must have 3 elements"));
  CHECK_THROWS_WITH(d.run(ENG_OP_ROPE, {Tensor(ENG_F32, {1, 2, 9}), Tensor(ENG_F32, {2, 3})},
                          {desc(ENG_F32, {1, 2, 9})}, {whole("heads", 3), whole("inverse", 0)}),
                    Catch::Contains("D = 3 is not even"));
  CHECK_THROWS_WITH(d.run(ENG_OP_SUM_SQUARES, {Tensor(ENG_F32, {4095})}, {desc(ENG_F32, {1})}),
                    Catch::Contains("4096"));
}
