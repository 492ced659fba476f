// SPDX-License-Identifier: Apache-2.0
// Products, attention and cross-entropy of the device cpu in bf16 and f16, against the reference device: sums in f32
// instead of f64, rounded once.
#include "fast_elem.hpp"

using namespace kernels_test;

namespace {

using Attrs = std::vector<eng_attr>;

// Within one unit in the last place of the 16-bit type, and, where sums cancel, a part of the largest value and an
// absolute bound. The same bits for any number of threads.
void check_near(const Case& c, double of_largest = 3e-6, double absolute = 0) {
  INFO(c.op);
  const auto want = reference().run(c.op, c.in, c.out, c.attrs);
  for (const Fast& f : product_devices()) {
    INFO(f.isa << ", threads " << f.threads);
    const auto got = f.device->run(c.op, c.in, c.out, c.attrs);
    for (size_t k = 0; k < want.size(); ++k) {
      INFO("output " << k << " of size " << want[k].size());
      double top = 0;
      for (int64_t i = 0; i < want[k].size(); ++i) top = std::max(top, std::fabs(want[k].at(i)));
      const bool half = want[k].d.dtype != ENG_F32;
      const HalfType type(want[k].d.dtype);
      int64_t wrong = 0;
      for (int64_t i = 0; i < want[k].size(); ++i) {
        const double w = want[k].at(i);
        const double unit =
            half ? std::ldexp(1.0, std::max(w != 0 ? std::ilogb(w) : type.lowest, type.lowest) - type.fraction) : 0;
        wrong += !(std::fabs(got[k].at(i) - w) <= unit + of_largest * top + absolute);
      }
      CHECK(wrong == 0);
    }
    CHECK(same(
        got, product_devices()[size_t(&f - product_devices().data()) / 3 * 3].device->run(c.op, c.in, c.out, c.attrs)));
  }
}

Tensor draw(Random& random, int32_t dtype, const Dims& dims, double std = 1) {
  return random_normal(random, dtype, dims, std);
}

struct Shape {
  int64_t m, n, k;
};

}  // namespace

TEST_CASE("products of 16-bit matrices are those of the reference", "[.slow]") {
  Random random(3);
  for (const int32_t dtype : {ENG_BF16, ENG_F16})
    for (const Shape& s : {Shape{1, 1, 1}, {5, 3, 9}, {33, 65, 31}, {40, 70, 600}, {257, 130, 291}, {64, 20, 0}})
      for (int form = 0; form < 4; ++form) {
        const bool ta = form & 1, tb = form & 2;
        const Tensor a = draw(random, dtype, ta ? Dims{s.k, s.m} : Dims{s.m, s.k});
        const Tensor b = draw(random, dtype, tb ? Dims{s.n, s.k} : Dims{s.k, s.n});
        INFO("m " << s.m << " n " << s.n << " k " << s.k << " form " << form);
        const Attrs attrs = {whole("ta", ta), whole("tb", tb)};
        for (const int32_t out : {dtype, int32_t{ENG_F32}}) {
          const eng_desc c = desc(out, {s.m, s.n});
          check_near({ENG_OP_MATMUL, {a, b, Tensor()}, {c}, attrs, {}});
          if (form == 1) check_near({ENG_OP_MATMUL, {a, b, draw(random, out, {s.m, s.n})}, {c}, attrs, {}});
        }
        if (form != 2) continue;
        check_near({ENG_OP_LINEAR, {a, b, Tensor()}, {desc(dtype, {s.m, s.n})}, {}, {}});
        check_near({ENG_OP_LINEAR, {a, b, draw(random, dtype, {s.n})}, {desc(dtype, {s.m, s.n})}, {}, {}});
      }
}

// Parts of C by rows and by columns, and several blocks of depth.
TEST_CASE("a product of 16-bit matrices in several parts adds to its accumulator in place", "[.slow]") {
  Random random(4);
  for (const Shape& s : {Shape{40, 2100, 300}, {70, 600, 9000}}) {
    const Tensor a = draw(random, ENG_BF16, {s.m, s.k}), b = draw(random, ENG_BF16, {s.n, s.k});
    const Attrs attrs = {whole("ta", 0), whole("tb", 1)};
    for (const int32_t out : {int32_t{ENG_BF16}, int32_t{ENG_F32}}) {
      const Tensor acc = draw(random, out, {s.m, s.n}, 50);
      check_near({ENG_OP_MATMUL, {a, b, acc}, {acc.d}, attrs, {}});
      for (const Fast& f : product_devices())
        CHECK(same(f.device->run(ENG_OP_MATMUL, {a, b, acc}, {acc.d}, attrs, {{0, 2}}),
                   f.device->run(ENG_OP_MATMUL, {a, b, acc}, {acc.d}, attrs)));
    }
    // Rounding is all that a 16-bit result adds.
    for (const Fast& f : product_devices()) {
      const auto sums = f.device->run(ENG_OP_MATMUL, {a, b, Tensor()}, {desc(ENG_F32, {s.m, s.n})}, attrs);
      CHECK(same(f.device->run(ENG_OP_MATMUL, {a, b, Tensor()}, {desc(ENG_BF16, {s.m, s.n})}, attrs),
                 f.device->run(ENG_OP_CAST, {sums[0]}, {desc(ENG_BF16, {s.m, s.n})}, {whole("dtype", ENG_BF16)})));
    }
  }
}

TEST_CASE("attention in 16 bits is that of the reference") {
  Random random(5);
  for (const int32_t dtype : {ENG_BF16, ENG_F16})
    for (const int64_t t : {1, 17, 130})
      for (const int64_t width : {8, 20}) {
        constexpr int64_t batch = 2, heads = 4, kv_heads = 2;
        INFO("tokens " << t << ", width " << width);
        const Dims of_q = {batch, t, heads * width}, of_k = {batch, t, kv_heads * width};
        const Tensor q = draw(random, dtype, of_q), k = draw(random, dtype, of_k), v = draw(random, dtype, of_k);
        const Attrs attrs = {whole("heads", heads), whole("kv_heads", kv_heads), real("scale", 0.3)};
        const std::vector<eng_desc> out = {q.d, desc(ENG_F32, {batch, heads, t})};
        check_near({ENG_OP_ATTENTION, {q, k, v}, out, attrs, {}});
        const auto forward = reference().run(ENG_OP_ATTENTION, {q, k, v}, out, attrs);
        check_near({ENG_OP_ATTENTION_GRAD,
                    {draw(random, dtype, of_q), q, k, v, forward[0], forward[1]},
                    {q.d, k.d, v.d},
                    attrs,
                    {}},
                   3e-6, 1e-5);  // dP - delta, of sums of about 1, cancel
      }
}

TEST_CASE("cross-entropy in 16 bits is that of the reference") {
  Random random(6);
  for (const int32_t dtype : {ENG_BF16, ENG_F16})
    for (const int64_t tokens : {3, 40, 1100}) {  // the last one in two chunks: a 16-bit dw is rounded after each
      constexpr int64_t width = 24, vocabulary = 70;
      INFO("tokens " << tokens);
      const Tensor x = draw(random, dtype, {1, tokens, width}), w = draw(random, dtype, {vocabulary, width});
      Tensor labels = random_ints(random, {1, tokens}, 0, vocabulary - 1);
      labels.put(1, -100);
      check_near({ENG_OP_CROSS_ENTROPY, {x, w, labels}, {desc(ENG_F32, {1})}, {}, {}});
      Tensor scalars(ENG_F32, {ENG_S_COUNT});
      scalars.put(ENG_S_INV_TOKENS, 1.0 / double(tokens)), scalars.put(ENG_S_LOSS_SCALE, 1024);
      const eng_desc loss = desc(ENG_F32, {1});
      check_near({ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars}, {loss, x.d}, {whole("no_dw", 1)}, {}});
      for (const int32_t sum : {dtype, int32_t{ENG_F32}})
        check_near({ENG_OP_CROSS_ENTROPY_GRAD,
                    {x, w, labels, scalars, draw(random, sum, {vocabulary, width})},
                    {loss, x.d, desc(sum, {vocabulary, width})},
                    {},
                    {}},
                   sum != ENG_F32 && tokens > 1024 ? std::ldexp(1, -HalfType(dtype).fraction) : 3e-6);
    }
}
