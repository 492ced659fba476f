// SPDX-License-Identifier: Apache-2.0
// The reference device in bf16 and f16: the result of f64 on the same values, rounded once. Where ops.h names each
// operation, and for single sums, f32 rounded to 16 bits.
#include <catch2/catch.hpp>

#include "kernel_harness.hpp"

using namespace kernels_test;

namespace reference_half {
namespace {

using Tensors = std::vector<Tensor>;
using Descs = std::vector<eng_desc>;
using Attrs = std::vector<eng_attr>;

constexpr int64_t kBatch = 2, kTokens = 9, kWidth = 16, kWords = 11;

const Device& device() {
  static const Device d("cpu/reference.eng.so", "reference");
  return d;
}

Tensor converted(const Tensor& t, int32_t dtype) {
  Dims dims(t.d.dims, t.d.dims + t.d.ndim);
  Tensor out(dtype, dims);
  for (int64_t i = 0; i < t.size(); ++i) out.put(i, t.at(i));
  return out;
}

// Values of a 16-bit type, as f64.
struct Draw {
  int32_t dtype;
  Random random{7};
  explicit Draw(int32_t type) : dtype(type) {}
  Tensor operator()(const Dims& dims) { return converted(random_normal(random, dtype, dims), ENG_F64); }
};

// Tensors of f64 are 16-bit ones in one run, and those of f32 are f64 in the other.
void check(int32_t dtype, const char* op, const Tensors& in, const Descs& out, const Attrs& attrs) {
  INFO(op << " in " << (dtype == ENG_BF16 ? "bf16" : "f16"));
  Tensors half, wide;
  for (const Tensor& t : in) {
    half.push_back(t.d.dtype == ENG_F64 ? converted(t, dtype) : t);
    wide.push_back(t.d.dtype == ENG_F32 ? converted(t, ENG_F64) : t);
  }
  Descs half_out = out, wide_out = out;
  for (eng_desc& d : half_out)
    if (d.dtype == ENG_F64) d.dtype = dtype;
  for (eng_desc& d : wide_out) d.dtype = ENG_F64;
  const Tensors want = device().run(op, wide, wide_out, attrs), got = device().run(op, half, half_out, attrs);
  for (size_t k = 0; k < want.size(); ++k) {
    INFO("output " << k);
    CHECK(got[k].same_bits(converted(want[k], half_out[k].dtype)));
  }
}

eng_desc wide(const Dims& dims) {
  return desc(ENG_F64, dims);
}
eng_desc f32(const Dims& dims) {
  return desc(ENG_F32, dims);
}

}  // namespace

TEST_CASE("the reference in 16 bits gives f64 rounded once") {
  const int32_t dtype = GENERATE(ENG_BF16, ENG_F16);
  Draw draw(dtype);
  const Tensor x = draw({kBatch, kTokens, kWidth}), y = draw({kBatch, kTokens, kWidth}),
               z = draw({kBatch, kTokens, kWidth}), w = draw({kWords, kWidth}), h = draw({kWidth}),
               bias = draw({kWords}), none;
  const Tensor labels = random_ints(draw.random, {kBatch, kTokens}, 0, int(kWords) - 1);
  const Attrs eps = {real("eps", 1e-5)};
  const Attrs heads = {whole("heads", 4), whole("kv_heads", 4), real("scale", 0.5)};
  check(dtype, ENG_OP_LINEAR, {x, w, bias}, {wide({kBatch, kTokens, kWords})}, {});
  check(dtype, ENG_OP_EMBEDDING, {labels, w}, {x.d}, {});
  check(dtype, ENG_OP_RMS_NORM, {x, h}, {x.d, f32({kBatch, kTokens})}, eps);
  // An f32 stream normed into 16 bits.
  const Tensor stream = converted(x, ENG_F32);
  check(dtype, ENG_OP_RMS_NORM, {stream, h}, {x.d, f32({kBatch, kTokens})}, eps);
  check(dtype, ENG_OP_ADD, {stream, x}, {stream.d}, {});
  check(dtype, ENG_OP_ADD, {x, stream}, {stream.d}, {});
  check(dtype, ENG_OP_LAYER_NORM, {x, h, draw({kWidth})}, {x.d, f32({kBatch, kTokens, 2})}, eps);
  Tensor table(ENG_F32, {kTokens, 4});
  for (int64_t i = 0; i < table.size(); ++i) table.put(i, std::cos(0.3 * double(i)));
  check(dtype, ENG_OP_ROPE, {x, table}, {x.d}, {whole("heads", 4), whole("inverse", 0)});
  check(dtype, ENG_OP_ATTENTION, {x, y, z}, {x.d, f32({kBatch, 4, kTokens})}, heads);
  Tensor lse(ENG_F32, {kBatch, 4, kTokens});
  for (int64_t i = 0; i < lse.size(); ++i) lse.put(i, 2);
  check(dtype, ENG_OP_ATTENTION_GRAD, {x, y, z, x, y, lse}, {x.d, x.d, x.d}, heads);
  for (int64_t act : {ENG_ACT_SILU, ENG_ACT_GELU, ENG_ACT_GELU_TANH, ENG_ACT_RELU}) {
    check(dtype, ENG_OP_GATED, {x, y}, {x.d}, {whole("act", act)});
    check(dtype, ENG_OP_GATED_GRAD, {x, y, z}, {x.d, x.d}, {whole("act", act)});
    check(dtype, ENG_OP_ACTIVATION, {x}, {x.d}, {whole("act", act)});
    check(dtype, ENG_OP_ACTIVATION_GRAD, {x, y}, {x.d}, {whole("act", act)});
  }
  check(dtype, ENG_OP_CROSS_ENTROPY, {x, w, labels}, {f32({1})}, {});
  const auto with = [&](const eng_attr& a, const eng_attr& b) {
    return Attrs{whole("seed", 3), whole("stream", 5), whole("first", 7), a, b};
  };
  // Just above the middle between two values of bf16, and of f16: rounded twice, it would go to the even one.
  for (double value : {0.1, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-11 + 0x1p-40})
    check(dtype, ENG_OP_INIT_CONSTANT, {}, {wide({3})}, with(real("value", value), real("unused", 0)));
  check(dtype, ENG_OP_INIT_NORMAL, {}, {wide({500})}, with(real("mean", 0.1), real("std", 0.02)));
  check(dtype, ENG_OP_INIT_UNIFORM, {}, {wide({500})}, with(real("low", -0.3), real("high", 0.7)));
  Tensor at(ENG_I64, {ENG_C_COUNT});
  at.put(ENG_C_POSITION, 2);
  const Tensor one = draw({kBatch, 1, kWidth}), cache = draw({kBatch, 5, kWidth});
  check(dtype, ENG_OP_ROPE_STEP, {one, table, at}, {one.d}, {whole("heads", 4), whole("inverse", 0)});
  check(dtype, ENG_OP_ATTENTION_STEP,
        {one, draw({kBatch, 1, kWidth}), draw({kBatch, 1, kWidth}), cache, draw({kBatch, 5, kWidth}), at},
        {one.d, cache.d, cache.d}, heads);
}

TEST_CASE("the reference's sums over 16-bit rows are of 16 bits or of f32") {
  const int32_t dtype = GENERATE(ENG_BF16, ENG_F16);
  Draw draw(dtype);
  const Tensor x = draw({kBatch, kTokens, kWidth}), y = draw({kBatch, kTokens, kWidth}),
               z = draw({kBatch, kTokens, kWidth}), w = draw({kWords, kWidth}), h = draw({kWidth});
  const Tensor labels = random_ints(draw.random, {kBatch, kTokens}, 0, int(kWords) - 1);
  Tensor rstd(ENG_F32, {kBatch, kTokens}), stats(ENG_F32, {kBatch, kTokens, 2}), scalars(ENG_F32, {ENG_S_COUNT});
  for (Tensor* t : {&rstd, &stats})
    for (int64_t i = 0; i < t->size(); ++i) t->put(i, 0.75);
  scalars.put(ENG_S_INV_TOKENS, 0.125), scalars.put(ENG_S_LOSS_SCALE, 4);
  for (const int32_t sum : {ENG_F64, ENG_F32}) {  // f64 stands for 16 bits
    const auto acc = [&](const Dims& dims) { return converted(draw(dims), sum); };
    check(dtype, ENG_OP_MATMUL, {x, y, acc({kWidth, kWidth})}, {desc(sum, {kWidth, kWidth})},
          {whole("ta", 1), whole("tb", 0)});
    check(dtype, ENG_OP_SUM_ROWS, {x, acc({kWidth})}, {desc(sum, {kWidth})}, {});
    check(dtype, ENG_OP_EMBEDDING_GRAD, {labels, x, acc({kWords, kWidth})}, {desc(sum, {kWords, kWidth})},
          {whole("rows", kWords)});
    check(dtype, ENG_OP_POSITIONS_GRAD, {x, acc({kTokens + 2, kWidth})}, {desc(sum, {kTokens + 2, kWidth})},
          {whole("rows", kTokens + 2), whole("offset", 1)});
    check(dtype, ENG_OP_RMS_NORM_GRAD, {x, y, h, rstd, z, acc({kWidth})}, {x.d, desc(sum, {kWidth})}, {});
    check(dtype, ENG_OP_LAYER_NORM_GRAD, {x, y, h, stats, z, acc({kWidth}), acc({kWidth})},
          {x.d, desc(sum, {kWidth}), desc(sum, {kWidth})}, {whole("bias", 1)});
    check(dtype, ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars, acc({kWords, kWidth})},
          {f32({1}), x.d, desc(sum, {kWords, kWidth})}, {});
  }
  // All sums of a call have one type, and f32 is the only wider one.
  const Tensor half = converted(x, dtype);
  const auto refused = [&](const Tensor& acc, int32_t out) {
    CHECK_THROWS_WITH(
        device().run(ENG_OP_MATMUL, {half, half, acc}, {desc(out, {kWidth, kWidth})}, {whole("ta", 1), whole("tb", 0)}),
        Catch::Contains("of 16-bit inputs they may be f32"));
  };
  refused(Tensor(dtype, {kWidth, kWidth}), ENG_F32);
  refused(Tensor(), ENG_F64);
  refused(Tensor(), dtype == ENG_BF16 ? ENG_F16 : ENG_BF16);
}

TEST_CASE("single operations in 16 bits are those of f32, rounded") {
  const int32_t dtype = GENERATE(ENG_BF16, ENG_F16);
  Draw draw(dtype);
  const Tensor x = converted(draw({kBatch, kTokens, kWidth}), dtype),
               y = converted(draw({kBatch, kTokens, kWidth}), dtype),
               table = converted(draw({kTokens + 1, kWidth}), dtype), w = converted(draw({kWidth}), dtype);
  const auto each = [&](const Tensor& got, auto value) {
    for (int64_t i = 0; i < got.size(); ++i)
      REQUIRE(got.as<uint16_t>()[i] == HalfType(dtype).pattern(double(float(value(i)))));
  };
  const auto a = [&](int64_t i) { return float(x.at(i)); };
  each(device().run(ENG_OP_ADD, {x, y}, {x.d}, {})[0], [&](int64_t i) { return a(i) + float(y.at(i)); });
  each(device().run(ENG_OP_SCALE, {x}, {x.d}, {real("factor", 0.3)})[0], [&](int64_t i) { return 0.3f * a(i); });
  each(device().run(ENG_OP_POSITIONS, {x, table}, {x.d}, {whole("offset", 1)})[0],
       [&](int64_t i) { return a(i) + float(table.at(i % (kTokens * kWidth) + kWidth)); });
  const Tensors normed =
      device().run(ENG_OP_RMS_NORM, {x, w, y}, {x.d, f32({kBatch, kTokens}), x.d}, {real("eps", 1e-5)});
  each(normed[2], [&](int64_t i) { return a(i) + float(y.at(i)); });
  CHECK(normed[0].same_bits(
      device().run(ENG_OP_RMS_NORM, {normed[2], w}, {x.d, f32({kBatch, kTokens})}, {real("eps", 1e-5)})[0]));
  // Sums of squares for the norm are in f32, whatever is summed.
  const Tensor chunk = converted(draw({4096}), dtype);
  CHECK(device().run(ENG_OP_SUM_SQUARES, {chunk}, {f32({1})}, {})[0].same_bits(
      device().run(ENG_OP_SUM_SQUARES, {converted(chunk, ENG_F32)}, {f32({1})}, {})[0]));
}

}  // namespace reference_half
