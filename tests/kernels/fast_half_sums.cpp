// SPDX-License-Identifier: Apache-2.0
// Gradients of parameters on the device cpu: sums over rows of bf16 and f16, in that type or in f32.
#include "fast_half.hpp"

using namespace kernels_test;

namespace fast_half_sums {
namespace {

const std::vector<Dims> shapes = {{2, 3, 7}, {1, 5, 65}, {1, 2, 4097}, {2, 130, 64}, {1, 300, 65}};

// body(type of the rows, type of the sums)
template <class Body>
void each(Body body) {
  for (const int32_t dtype : half_types)
    for (const int32_t sums : {dtype, int32_t{ENG_F32}}) {
      INFO((dtype == ENG_BF16 ? "bf16" : "f16") << " rows, sums " << (sums == dtype ? "alike" : "in f32"));
      body(dtype, sums);
    }
}

}  // namespace

TEST_CASE("fast rms_norm_grad in 16 bits") {
  Random random(71);
  each([&](int32_t dtype, int32_t sums) {
    for (const Dims& shape : shapes)
      for (int optional : {0, 1, 2, 3}) {
        const Tensor dy = random_normal(random, dtype, shape), s = random_normal(random, dtype, shape);
        const Tensor w = random_normal(random, dtype, {shape[2]});
        const Tensor rstd = reference().run(ENG_OP_RMS_NORM, {s, w}, {s.d, desc(ENG_F32, {shape[0], shape[1]})},
                                            {real("eps", 1e-5)})[1];
        Case c{ENG_OP_RMS_NORM_GRAD, {dy, s, w, rstd, Tensor(), Tensor()}, {dy.d, desc(sums, {shape[2]})}, {}, {}};
        if (optional & 1) c.in[4] = random_normal(random, dtype, shape), c.in_place.push_back({0, 4});
        if (optional & 2) c.in[5] = random_normal(random, sums, {shape[2]}), c.in_place.push_back({1, 5});
        check_half(c, 3e-6);
      }
  });
}

TEST_CASE("fast layer_norm_grad in 16 bits") {
  Random random(72);
  each([&](int32_t dtype, int32_t sums) {
    for (const Dims& shape : shapes)
      for (size_t affine : {0, 1, 2})
        for (int optional : {0, 3}) {
          const Tensor dy = random_normal(random, dtype, shape), s = random_normal(random, dtype, shape);
          const Tensor w = random_normal(random, dtype, {shape[2]});
          const Tensor stats = reference().run(ENG_OP_LAYER_NORM, {s}, {s.d, desc(ENG_F32, {shape[0], shape[1], 2})},
                                               {real("eps", 1e-5)})[1];
          Case c{ENG_OP_LAYER_NORM_GRAD,
                 {dy, s, affine ? w : Tensor(), stats, Tensor(), Tensor(), Tensor()},
                 {dy.d},
                 {whole("bias", affine == 2)},
                 {}};
          if (optional & 1) c.in[4] = random_normal(random, dtype, shape), c.in_place.push_back({0, 4});
          for (size_t k = 1; k <= affine; ++k) {
            c.out.push_back(desc(sums, {shape[2]}));
            if (optional & 2) c.in[k + 4] = random_normal(random, sums, {shape[2]}), c.in_place.push_back({k, k + 4});
          }
          check_half(c, 3e-6);
        }
  });
}

TEST_CASE("fast embedding_grad in 16 bits") {
  Random random(73);
  each([&](int32_t dtype, int32_t sums) {
    for (const Dims& shape : shapes) {
      const int64_t v = pick(random, 1, 40), h = shape[2];
      const Tensor tokens = random_ints(random, {shape[0], shape[1]}, 0, int(v) - 1);
      const Tensor dy = random_normal(random, dtype, shape), acc = random_normal(random, sums, {v, h});
      check_half({ENG_OP_EMBEDDING_GRAD, {tokens, dy}, {acc.d}, {}, {}}, 2e-6);
      check_half({ENG_OP_EMBEDDING_GRAD, {tokens, dy, acc}, {acc.d}, {}, {{0, 2}}}, 2e-6);
      if (v == 1) continue;
      Tensor moved = tokens;  // a token that went to the neighbour's row is seen
      moved.put(0, double((tokens.as<int32_t>()[0] + 1) % v));
      const auto want = reference().run(ENG_OP_EMBEDDING_GRAD, {tokens, dy}, {desc(dtype, {v, h})});
      for (const Fast& f : fast_devices())
        CHECK(wrong(f.device->run(ENG_OP_EMBEDDING_GRAD, {moved, dy}, {want[0].d})[0], want[0], 2e-6) > 0);
    }
    for (const Fast& f : fast_devices()) {
      const Tensor tokens(ENG_I32, {1, 2}, {1, 4}), dy(dtype, {1, 2, 5});
      CHECK_THROWS_WITH(f.device->run(ENG_OP_EMBEDDING_GRAD, {tokens, dy}, {desc(sums, {4, 5})}),
                        Catch::Contains("token 4 at position 1"));
    }
  });
}

TEST_CASE("fast positions_grad and sum_rows in 16 bits") {
  Random random(74);
  each([&](int32_t dtype, int32_t sums) {
    for (const Dims& shape : shapes) {
      const Tensor dy = random_normal(random, dtype, shape);
      for (int64_t offset : {0, 2}) {
        const Tensor acc = random_normal(random, sums, {shape[1] + 3, shape[2]});
        const std::vector<eng_attr> attrs = {whole("offset", offset), whole("rows", shape[1] + 3)};
        check_half({ENG_OP_POSITIONS_GRAD, {dy}, {acc.d}, attrs, {}}, 1e-6);
        check_half({ENG_OP_POSITIONS_GRAD, {dy, acc}, {acc.d}, attrs, {{0, 1}}}, 1e-6);
      }
      const Tensor acc = random_normal(random, sums, {shape[2]});
      check_half({ENG_OP_SUM_ROWS, {dy}, {acc.d}, {}, {}}, 2e-6);
      check_half({ENG_OP_SUM_ROWS, {dy, acc}, {acc.d}, {}, {{0, 1}}}, 2e-6);
    }
  });
}

// The values are ones: a sum that was rounded on its way would stop at 256 in bf16.
TEST_CASE("sums of many 16-bit rows are rounded once") {
  each([&](int32_t dtype, int32_t sums) {
    const int64_t n = 1000, h = 67;
    Tensor ones(dtype, {n, 1, h}), stats(ENG_F32, {n, 1, 2}), w(dtype, {h}), rstd(ENG_F32, {n, 1});
    for (Tensor* t : {&ones, &w, &rstd})
      for (int64_t i = 0; i < t->size(); ++i) t->put(i, 1);
    for (int64_t i = 0; i < n; ++i) stats.put(2 * i + 1, 1);
    const Tensor tokens(ENG_I32, {n, 1});
    const eng_desc row = desc(sums, {h}), table = desc(sums, {1, h});
    for (const Fast& f : fast_devices()) {
      const auto thousand = [&](const char* op, const std::vector<Tensor>& in, const std::vector<eng_desc>& out,
                                const std::vector<eng_attr>& attrs) {
        INFO(op);
        const Tensor sum = f.device->run(op, in, out, attrs).back();
        int64_t right = 0;
        for (int64_t i = 0; i < h; ++i) right += sum.at(i) == 1000;
        CHECK(right == h);
      };
      thousand(ENG_OP_SUM_ROWS, {ones}, {row}, {});
      thousand(ENG_OP_EMBEDDING_GRAD, {tokens, ones}, {table}, {});
      thousand(ENG_OP_POSITIONS_GRAD, {ones}, {table}, {whole("offset", 0), whole("rows", 1)});
      thousand(ENG_OP_RMS_NORM_GRAD, {ones, ones, w, rstd}, {ones.d, row}, {});
      thousand(ENG_OP_LAYER_NORM_GRAD, {ones, ones, w, stats}, {ones.d, row, row}, {whole("bias", 1)});
    }
  });
}

}  // namespace fast_half_sums
