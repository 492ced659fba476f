// SPDX-License-Identifier: Apache-2.0
// The next positions of a running sequence: the reference against the same op on the whole sequence, the device cpu
// against the reference; and products with few rows.
#include <catch2/catch.hpp>

#include "engine/ops_attention.h"
#include "fast_elem.hpp"

using namespace kernels_test;

namespace {

Tensor at_position(int64_t position) {
  Tensor t(ENG_I64, {ENG_C_COUNT});
  t.put(ENG_C_POSITION, double(position));
  return t;
}

// Rows first .. first + n - 1 of x (B, T, width).
Tensor cut(const Tensor& x, int64_t first, int64_t n) {
  const int64_t B = x.d.dims[0], T = x.d.dims[1], width = x.d.dims[2];
  Tensor out(x.d.dtype, {B, n, width});
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < n * width; ++i) out.put(b * n * width + i, x.at((b * T + first) * width + i));
  return out;
}

const Dims chunks = {1, 1, 5, 1, 9, 2};
constexpr int64_t B = 2, T = 19;  // the chunks' sum

void check_refused(const std::string& op, const std::vector<Tensor>& in, const std::vector<eng_desc>& out,
                   const std::vector<eng_attr>& attrs, const std::string& text) {
  CHECK_THROWS_WITH(reference().run(op, in, out, attrs), Catch::Contains(text));
  for (const Fast& f : fast_devices()) CHECK_THROWS_WITH(f.device->run(op, in, out, attrs), Catch::Contains(text));
}

}  // namespace

TEST_CASE("rope of the next positions is rope of the whole sequence") {
  Random random(3);
  const int64_t heads = 3, D = 10;
  for (const int64_t inverse : {0, 1})
    for (const int32_t dtype : {ENG_F64, ENG_F32}) {
      const Tensor x = random_normal(random, dtype, {B, T, heads * D});
      const Tensor table = random_normal(random, ENG_F32, {1, T + 4, D}), first_rows = cut(table, 0, T);
      Tensor longer = table, exact = first_rows;
      longer.d = desc(ENG_F32, {T + 4, D}), exact.d = desc(ENG_F32, {T, D});
      const std::vector<eng_attr> attrs = {whole("heads", heads), whole("inverse", inverse)};
      const Tensor all = reference().run(ENG_OP_ROPE, {x, exact}, {x.d}, attrs)[0];
      int64_t at = 0;
      for (const int64_t n : chunks) {
        const Tensor part = cut(x, at, n);
        auto step = [&](int64_t position) {
          return reference().run(ENG_OP_ROPE_STEP, {part, longer, at_position(position)}, {part.d}, attrs)[0];
        };
        CHECK(step(at).same_bits(cut(all, at, n)));
        CHECK_FALSE(step(at + 1).same_bits(cut(all, at, n)));
        if (dtype == ENG_F32)
          check_close({ENG_OP_ROPE_STEP, {part, longer, at_position(at)}, {part.d}, attrs, {{0, 0}}}, 1e-6);
        at += n;
      }
      const Tensor two = cut(x, 0, 2);
      for (const int64_t wrong : {T + 3, int64_t{-1}})
        if (dtype == ENG_F32)
          check_refused(ENG_OP_ROPE_STEP, {two, longer, at_position(wrong)}, {two.d}, attrs, "of a sequence of 23");
    }
}

TEST_CASE("attention of the next positions is attention of the whole sequence") {
  struct Shape {
    int64_t heads, kv_heads, D;
  };
  const int64_t S = 24;
  for (const auto& [heads, kv_heads, D] : {Shape{4, 4, 8}, Shape{6, 2, 17}, Shape{3, 1, 40}})
    for (const int32_t dtype : {ENG_F64, ENG_F32}) {
      INFO("heads " << heads << ", type " << dtype);
      Random random(4);
      const Tensor q = random_normal(random, dtype, {B, T, heads * D}),
                   k = random_normal(random, dtype, {B, T, kv_heads * D}),
                   v = random_normal(random, dtype, {B, T, kv_heads * D});
      const std::vector<eng_attr> attrs = {whole("heads", heads), whole("kv_heads", kv_heads), real("scale", 0.5)};
      const Tensor all = reference().run(ENG_OP_ATTENTION, {q, k, v}, {q.d, desc(dtype, {B, heads, T})}, attrs)[0];
      // Positions that were not written are never read: they are NaN.
      Tensor k_cache(desc(dtype, {B, S, kv_heads * D}), 0xFF), v_cache = k_cache;
      int64_t at = 0;
      for (const int64_t n : chunks) {
        Case c{ENG_OP_ATTENTION_STEP,
               {cut(q, at, n), cut(k, at, n), cut(v, at, n), k_cache, v_cache, at_position(at)},
               {desc(dtype, {B, n, heads * D}), k_cache.d, v_cache.d},
               attrs,
               {{1, 3}, {2, 4}}};
        const auto out = reference().run(c.op, c.in, c.out, attrs, c.in_place);
        CHECK(same(out, reference().run(c.op, c.in, c.out, attrs)));
        CHECK(error_of(out[0], cut(all, at, n)) < (dtype == ENG_F64 ? 1e-14 : 1e-6));
        CHECK((cut(out[1], at, n).same_bits(c.in[1]) && cut(out[2], at, n).same_bits(c.in[2])));
        for (const Fast& f : fast_devices()) {
          if (dtype == ENG_F64) break;
          const auto got = f.device->run(c.op, c.in, c.out, attrs, c.in_place);
          CHECK(error_of(got[0], out[0]) < 2e-6);
          CHECK((got[1].same_bits(out[1]) && got[2].same_bits(out[2])));
          CHECK(same(got, f.device->run(c.op, c.in, c.out, attrs)));
        }
        k_cache = out[1], v_cache = out[2];
        if (at > 0) {  // a row too early is seen
          c.in[5] = at_position(at - 1);
          CHECK(error_of(reference().run(c.op, c.in, c.out, attrs)[0], cut(all, at, n)) > 1e-3);
        }
        at += n;
      }
      if (dtype == ENG_F64) continue;
      check_refused(ENG_OP_ATTENTION_STEP,
                    {cut(q, 0, 2), cut(k, 0, 2), cut(v, 0, 2), k_cache, v_cache, at_position(S - 1)},
                    {desc(dtype, {B, 2, heads * D}), k_cache.d, v_cache.d}, attrs, "of a sequence of 24");
    }
}

TEST_CASE("attention of a long sequence on many threads") {
  Random random(6);
  const int64_t heads = 6, kv_heads = 2, D = 64, S = 700, at = 600, n = 3;
  const std::vector<eng_attr> attrs = {whole("heads", heads), whole("kv_heads", kv_heads), real("scale", 0.3)};
  auto some = [&](int64_t rows, int64_t width) { return random_normal(random, ENG_F32, {B, rows, width}); };
  check_close(
      {ENG_OP_ATTENTION_STEP,
       {some(n, heads * D), some(n, kv_heads * D), some(n, kv_heads * D), some(S, kv_heads * D), some(S, kv_heads * D),
        at_position(at)},
       {desc(ENG_F32, {B, n, heads * D}), desc(ENG_F32, {B, S, kv_heads * D}), desc(ENG_F32, {B, S, kv_heads * D})},
       attrs,
       {{1, 3}, {2, 4}}},
      2e-6);
}

TEST_CASE("attention of many next positions at once: blocks of keys, windows, caps") {
  Random random(7);
  const int64_t heads = 4, kv_heads = 2, D = 20, S = 170;
  auto some = [&](int64_t rows, int64_t width) { return random_normal(random, ENG_F32, {B, rows, width}); };
  for (const auto& [n, at] : {std::pair<int64_t, int64_t>{8, 0}, {70, 0}, {65, 97}, {9, 127}})
    for (const auto& [window, cap] : {std::pair<int64_t, double>{0, 0.0}, {1, 0.0}, {50, 2.0}}) {
      INFO(n << " positions from " << at << " on, window " << window << ", cap " << cap);
      std::vector<eng_attr> attrs = {whole("heads", heads), whole("kv_heads", kv_heads), real("scale", 0.4)};
      const bool bound = window || cap > 0;
      if (bound) attrs.push_back(whole("window", window)), attrs.push_back(real("softcap", cap));
      check_close(
          {bound ? ENG_OP_ATTENTION_WINDOW_STEP : ENG_OP_ATTENTION_STEP,
           {some(n, heads * D), some(n, kv_heads * D), some(n, kv_heads * D), some(S, kv_heads * D),
            some(S, kv_heads * D), at_position(at)},
           {desc(ENG_F32, {B, n, heads * D}), desc(ENG_F32, {B, S, kv_heads * D}), desc(ENG_F32, {B, S, kv_heads * D})},
           attrs,
           {{1, 3}, {2, 4}}},
          3e-6);
    }
}

TEST_CASE("products with few rows") {
  Random random(5);
  for (const int64_t m : {1, 2, 3, 4})
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {7, 13}, {33, 65}, {300, 77}, {64, 1025}})
      for (const bool biased : {false, true}) {
        const Tensor bias = biased ? random_normal(random, ENG_F32, {n}) : Tensor();
        check_close({ENG_OP_LINEAR,
                     {random_normal(random, ENG_F32, {1, m, k}), random_normal(random, ENG_F32, {n, k}), bias},
                     {desc(ENG_F32, {1, m, n})},
                     {},
                     {}},
                    2e-6);
      }
}
