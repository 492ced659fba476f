// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels, norms, rope and running sequences of the device cpu in bf16 and f16.
#include "fast_half.hpp"

using namespace kernels_test;

namespace fast_half {
namespace {

const std::vector<Dims> flat = {{1}, {7}, {65}, {4097}, {40001}};
const std::vector<Dims> shapes = {{2, 3, 7}, {1, 5, 65}, {1, 2, 4097}, {2, 130, 64}, {1, 300, 65}};

// All values of the type, NaNs and infinities among them, in a mixed order.
Tensor every(int32_t dtype, const Dims& dims) {
  Tensor t(dtype, dims);
  for (int64_t i = 0; i < t.size(); ++i) t.as<uint16_t>()[i] = uint16_t(i * 40503);
  return t;
}

Tensor counters_at(int64_t position) {
  return Tensor(ENG_I64, {ENG_C_COUNT}, {3, 0, 1, double(position)});
}

Tensor angles(int64_t rows, int64_t width) {
  Tensor table(ENG_F32, {rows, width});
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t j = 0; j < width / 2; ++j) {
      const double angle = double(t) * std::pow(10000.0, -2.0 * double(j) / double(width));
      table.put(t * width + j, std::cos(angle)), table.put(t * width + width / 2 + j, std::sin(angle));
    }
  return table;
}

}  // namespace

TEST_CASE("the comparison in 16 bits counts units in the last place") {
  for (const int32_t dtype : half_types) {
    const Tensor zero(dtype, {4}), want(dtype, {4}, {1, -2, 0, NAN});
    CHECK(wrong(want, want, 0) == 0);
    CHECK(wrong(zero, want, 0) == 3);
    Tensor got = want;
    got.as<uint16_t>()[0] -= 1, got.as<uint16_t>()[1] += 1, got.put(2, -0.0), got.as<uint16_t>()[3] ^= 0x8002;
    CHECK(wrong(got, want, 0) == 0);
    got.as<uint16_t>()[0] -= 1;
    CHECK(wrong(got, want, 0) == 1);
    CHECK(wrong(got, want, 0.01) == 0);
    got.put(1, NAN), got.put(3, 0);
    CHECK(wrong(got, want, 0.01) == 2);
  }
}

TEST_CASE("fast add, scale and positions in 16 bits have the reference's bits") {
  Random random(61);
  for (const int32_t dtype : half_types) {
    for (const Dims& dims : flat) {
      const Tensor a = random_normal(random, dtype, dims), b = random_normal(random, dtype, dims);
      for (size_t place : {0, 1}) check_exact({ENG_OP_ADD, {a, b}, {a.d}, {}, {{0, place}}});
      check_exact({ENG_OP_SCALE, {a}, {a.d}, {real("factor", 0.1118033989)}, {{0, 0}}});
    }
    const Tensor all = every(dtype, {65536}), finite = random_normal(random, dtype, {65536});
    check_exact({ENG_OP_ADD, {all, finite}, {all.d}, {}, {{0, 0}}});
    check_exact({ENG_OP_ADD, {finite, all}, {all.d}, {}, {{0, 1}}});
    for (double factor : {1.0, 0.3, -3e4, 1e-6})
      check_exact({ENG_OP_SCALE, {all}, {all.d}, {real("factor", factor)}, {}});
    for (const Dims& shape : shapes)
      for (int64_t offset : {0, 2}) {
        const Tensor x = random_normal(random, dtype, shape),
                     table = random_normal(random, dtype, {shape[1] + 3, shape[2]});
        check_exact({ENG_OP_POSITIONS, {x, table}, {x.d}, {whole("offset", offset)}, {{0, 0}}});
        check_exact({ENG_OP_POSITIONS, {x, table, counters_at(1)}, {x.d}, {whole("offset", offset)}, {{0, 0}}});
      }
  }
}

TEST_CASE("fast dropout, embedding and sum_squares in 16 bits have the reference's bits") {
  Random random(62);
  for (const int32_t dtype : half_types) {
    for (const Tensor& x : {random_normal(random, dtype, {1, 1}), random_normal(random, dtype, {3, 63}),
                            random_normal(random, dtype, {5, 65}), random_normal(random, dtype, {7, 40, 201}),
                            every(dtype, {3, 65536 / 3})})
      for (double p : {0.0, 0.1, 0.999})
        check_exact({ENG_OP_DROPOUT,
                     {x, counters_at(0)},
                     {x.d},
                     {real("p", p), whole("seed", -5), whole("stream", 99)},
                     {{0, 0}}});
    for (int64_t h : {1, 65, 4097}) {
      const Tensor tokens = random_ints(random, {2, 9}, 0, 6);
      check_exact({ENG_OP_EMBEDDING, {tokens, every(dtype, {7, h})}, {desc(dtype, {2, 9, h})}, {}, {}});
    }
    for (int64_t n : {1, 3, 50}) {
      const Tensor x = random_normal(random, dtype, {n * 4096}, 20);
      check_exact({ENG_OP_SUM_SQUARES, {x}, {desc(ENG_F32, {n})}, {}, {}});
    }
  }
}

TEST_CASE("fast gated and activation in 16 bits") {
  Random random(63);
  for (const int32_t dtype : half_types)
    for (const Dims& dims : flat)
      for (int64_t act : {ENG_ACT_SILU, ENG_ACT_GELU, ENG_ACT_GELU_TANH, ENG_ACT_RELU}) {
        Tensor x = random_normal(random, dtype, dims, 3), up = random_normal(random, dtype, dims),
               dy = random_normal(random, dtype, dims);
        const std::vector<eng_attr> attrs = {whole("act", act)};
        // Slopes cross zero.
        check_half({ENG_OP_GATED_GRAD, {dy, x, up}, {x.d, x.d}, attrs, {{0, 1}, {1, 2}}}, 1e-6);
        for (size_t place : {0, 1}) check_half({ENG_OP_ACTIVATION_GRAD, {dy, x}, {x.d}, attrs, {{0, place}}}, 1e-6);
        if (x.size() > 6) {
          for (int64_t i = 1; i < 7; ++i) x.put(i, 0.5);  // where slopes are far from zero
          up.put(1, INFINITY), up.put(2, NAN), x.put(3, INFINITY), dy.put(4, INFINITY), dy.put(5, NAN);
          if (act != ENG_ACT_RELU) x.put(6, NAN);
        }
        // The reference's 1 + erf and 1 + tanh cancel far below zero.
        const double tolerance = act == ENG_ACT_GELU_TANH ? 1e-7 : act == ENG_ACT_GELU ? 1e-14 : 0;
        check_half({ENG_OP_GATED, {x, up}, {x.d}, attrs, {}}, tolerance);
        check_half({ENG_OP_ACTIVATION, {x}, {x.d}, attrs, {{0, 0}}}, tolerance);
        if (x.size() > 6) x.put(3, 1);
        check_half({ENG_OP_GATED_GRAD, {dy, x, up}, {x.d, x.d}, attrs, {{0, 1}, {1, 2}}}, 1e-6);
      }
}

TEST_CASE("fast norms in 16 bits") {
  Random random(64);
  for (const int32_t dtype : half_types)
    for (const Dims& shape : shapes) {
      const Tensor x = random_normal(random, dtype, shape), r = random_normal(random, dtype, shape);
      const Tensor w = random_normal(random, dtype, {shape[2]}), bias = random_normal(random, dtype, {shape[2]});
      const std::vector<eng_desc> rms = {x.d, desc(ENG_F32, {shape[0], shape[1]})},
                                  layer = {x.d, desc(ENG_F32, {shape[0], shape[1], 2})};
      const std::vector<eng_attr> eps = {real("eps", 1e-5)};
      check_half({ENG_OP_RMS_NORM, {x, w}, rms, eps, {}}, 0);
      for (size_t place : {0, 2}) check_half({ENG_OP_RMS_NORM, {x, w, r}, {rms[0], rms[1], x.d}, eps, {{2, place}}}, 0);
      for (int affine : {0, 1, 2}) {
        Case c{ENG_OP_LAYER_NORM, {x, Tensor(), Tensor(), Tensor()}, layer, eps, {}};
        if (affine > 0) c.in[1] = w;
        if (affine > 1) c.in[2] = bias;
        check_half(c, 1e-6);
        c.in[3] = r, c.out.push_back(x.d), c.in_place = {{2, 0}};
        check_half(c, 1e-6);
      }
    }
}

TEST_CASE("a norm in 16 bits is that of the sum as it is stored") {
  Random random(65);
  for (const int32_t dtype : half_types) {
    const Tensor x = random_normal(random, dtype, {4, 64}), r = random_normal(random, dtype, {4, 64});
    const Tensor w = random_normal(random, dtype, {64});
    const std::vector<eng_attr> eps = {real("eps", 1e-5)};
    Tensor sum(ENG_F32, {4, 64}), wide(ENG_F32, {64});
    for (int64_t i = 0; i < sum.size(); ++i) sum.put(i, x.at(i) + r.at(i));
    const auto unrounded = reference().run(ENG_OP_RMS_NORM, {sum, wide}, {sum.d, desc(ENG_F32, {4})}, eps);
    for (const Fast& f : fast_devices()) {
      const auto got = f.device->run(ENG_OP_RMS_NORM, {x, w, r}, {x.d, desc(ENG_F32, {4}), x.d}, eps);
      const auto again = f.device->run(ENG_OP_RMS_NORM, {got[2], w}, {x.d, desc(ENG_F32, {4})}, eps);
      CHECK((again[0].same_bits(got[0]) && again[1].same_bits(got[1])));
      CHECK(error_of(got[1], unrounded[1]) > 3e-6);  // check_half sees the difference
    }
  }
}

TEST_CASE("an f32 stream: rms_norm into 16 bits and its gradient, and sums with 16-bit values") {
  Random random(67);
  for (const int32_t dtype : half_types)
    for (const Dims& shape : {Dims{2, 3, 7}, Dims{1, 5, 65}, Dims{1, 2, 4097}, Dims{2, 130, 64}}) {
      const Tensor x = random_normal(random, ENG_F32, shape), r = random_normal(random, ENG_F32, shape);
      const Tensor w = random_normal(random, dtype, {shape[2]}), dy = random_normal(random, dtype, shape);
      const std::vector<eng_attr> eps = {real("eps", 1e-5)};
      const eng_desc rstd = desc(ENG_F32, {shape[0], shape[1]});
      check_half({ENG_OP_RMS_NORM, {x, w}, {dy.d, rstd}, eps, {}}, 0);
      for (size_t place : {0, 2}) check_half({ENG_OP_RMS_NORM, {x, w, r}, {dy.d, rstd, x.d}, eps, {{2, place}}}, 0);
      const Tensor stat = reference().run(ENG_OP_RMS_NORM, {x, w}, {dy.d, rstd}, eps)[1];
      for (const int32_t sums : {dtype, int32_t{ENG_F32}}) {
        check_half({ENG_OP_RMS_NORM_GRAD, {dy, x, w, stat}, {x.d, desc(sums, {shape[2]})}, {}, {}}, 3e-6);
        check_half({ENG_OP_RMS_NORM_GRAD, {dy, x, w, stat, r}, {x.d, desc(sums, {shape[2]})}, {}, {{0, 4}}}, 3e-6);
      }
      check_exact({ENG_OP_ADD, {x, dy}, {x.d}, {}, {{0, 0}}});
      check_exact({ENG_OP_ADD, {dy, x}, {x.d}, {}, {{0, 1}}});
    }
}

TEST_CASE("fast rope in 16 bits") {
  Random random(66);
  struct Shape {
    int64_t b, t, heads, width;
  };
  for (const int32_t dtype : half_types)
    for (const Shape& s : {Shape{1, 1, 1, 2}, Shape{2, 3, 2, 6}, Shape{2, 50, 4, 64}, Shape{2, 7, 1, 38}})
      for (int64_t inverse : {0, 1}) {
        const Tensor x = random_normal(random, dtype, {s.b, s.t, s.heads * s.width}), table = angles(s.t + 2, s.width);
        const std::vector<eng_attr> attrs = {whole("heads", s.heads), whole("inverse", inverse)};
        check_half({ENG_OP_ROPE, {x, table}, {x.d}, attrs, {{0, 0}}}, 1e-6);
        check_half({ENG_OP_ROPE_STEP, {x, table, counters_at(2)}, {x.d}, attrs, {{0, 0}}}, 1e-6);
      }
}

TEST_CASE("fast attention of the next positions in 16 bits") {
  Random random(67);
  struct Shape {
    int64_t heads, kv_heads, D, S, at, n;
  };
  for (const int32_t dtype : half_types)
    for (const Shape& s : {Shape{4, 4, 8, 24, 0, 1}, Shape{6, 2, 17, 24, 9, 3}, Shape{6, 2, 64, 700, 600, 2}}) {
      const auto some = [&](int64_t rows, int64_t heads) {
        return random_normal(random, dtype, {2, rows, heads * s.D});
      };
      Tensor k = some(s.S, s.kv_heads), v = some(s.S, s.kv_heads);
      for (Tensor* cache : {&k, &v})  // what no position has written is never read
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t i = s.at * s.kv_heads * s.D; i < s.S * s.kv_heads * s.D; ++i)
            cache->put(b * s.S * s.kv_heads * s.D + i, NAN);
      check_half({ENG_OP_ATTENTION_STEP,
                  {some(s.n, s.heads), some(s.n, s.kv_heads), some(s.n, s.kv_heads), k, v, counters_at(s.at)},
                  {desc(dtype, {2, s.n, s.heads * s.D}), k.d, v.d},
                  {whole("heads", s.heads), whole("kv_heads", s.kv_heads), real("scale", 0.3)},
                  {{1, 3}, {2, 4}}},
                 2e-6);
    }
}

TEST_CASE("products with few rows in 16 bits") {
  Random random(68);
  struct Shape {
    int64_t n, k;
  };
  for (const int32_t dtype : half_types)
    for (const int64_t m : {1, 3, 4})
      for (const Shape& s : {Shape{1, 1}, Shape{7, 13}, Shape{33, 65}, Shape{300, 77}, Shape{64, 1025}})
        for (const bool biased : {false, true})
          check_half({ENG_OP_LINEAR,
                      {random_normal(random, dtype, {1, m, s.k}), random_normal(random, dtype, {s.n, s.k}),
                       biased ? random_normal(random, dtype, {s.n}) : Tensor()},
                      {desc(dtype, {1, m, s.n})},
                      {},
                      {}},
                     2e-6);
}

TEST_CASE("the fast kernels refuse types that they do not serve") {
  const Device& d = *fast_devices()[0].device;
  const auto refused = [&](const char* op, const std::vector<Tensor>& in, const std::vector<eng_desc>& out,
                           const std::vector<eng_attr>& attrs = {}) {
    INFO(op);
    eng_status status = ENG_OK;
    try {
      d.run(op, in, out, attrs);
    } catch (const Failure& f) {
      status = f.status;
    }
    CHECK(status == ENG_UNSUPPORTED);
  };
  const Dims dims = {1, 2, 4};
  const Tensor f32(ENG_F32, dims), f64(ENG_F64, dims), bf16(ENG_BF16, dims), f16(ENG_F16, dims);
  const Tensor w(ENG_BF16, {4}), wide_w(ENG_F32, {4}), rstd(ENG_F32, {1, 2}), none;
  refused(ENG_OP_ADD, {bf16, f16}, {bf16.d});
  refused(ENG_OP_ADD, {bf16, bf16}, {f32.d}), refused(ENG_OP_ADD, {bf16, f32}, {bf16.d});
  refused(ENG_OP_GATED, {f64, f64}, {f64.d}, {whole("act", ENG_ACT_SILU)});
  refused(ENG_OP_RMS_NORM, {bf16, wide_w}, {bf16.d, rstd.d}, {real("eps", 1)});
  refused(ENG_OP_RMS_NORM_GRAD, {bf16, bf16, w, rstd}, {bf16.d, desc(ENG_F16, {4})});
  refused(ENG_OP_RMS_NORM_GRAD, {bf16, bf16, w, rstd, none, w}, {bf16.d, wide_w.d});
  refused(ENG_OP_LAYER_NORM, {bf16, wide_w}, {bf16.d, desc(ENG_F32, {1, 2, 2})}, {real("eps", 1)});
  refused(ENG_OP_SUM_ROWS, {f32}, {w.d});
  refused(ENG_OP_ROPE, {bf16, Tensor(ENG_BF16, {2, 4})}, {bf16.d}, {whole("heads", 1), whole("inverse", 0)});
  refused(ENG_OP_LINEAR, {bf16, Tensor(ENG_F32, {4, 4})}, {bf16.d});
  Tensor p(ENG_BF16, {4}), scalars(ENG_F32, {ENG_S_COUNT});
  refused(ENG_OP_ADAMW, {p, p, p, p, scalars}, {p.d, p.d, p.d},
          {real("beta1", 0.9), real("beta2", 0.95), real("eps", 1e-8), real("weight_decay", 0)});
}

}  // namespace fast_half
