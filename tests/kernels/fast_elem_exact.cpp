// SPDX-License-Identifier: Apache-2.0
// Kernels that must have the reference's bits on every instruction set and with any number of threads.
#include "fast_elem.hpp"

using namespace kernels_test;

namespace {

// Values over the whole range: normal ones, tiny ones (also denormal), huge ones, zeros of both signs.
Tensor wild(Random& random, int64_t n, double huge) {
  Tensor t = random_normal(random, ENG_F32, {n});
  for (int64_t i = 0; i < n; ++i) {
    const int64_t kind = pick(random, 0, 15);
    if (kind == 0) t.as<float>()[i] *= 1e-38f;
    if (kind == 1) t.as<float>()[i] *= 1e-30f, t.as<float>()[i] *= 1e-13f;
    if (kind == 2) t.as<float>()[i] *= float(huge);
    if (kind == 3) t.as<float>()[i] *= 0.0f;
    if (kind == 4) t.as<float>()[i] *= 1e-19f;  // its square is denormal
  }
  return t;
}

Tensor positive(Tensor t) {
  for (int64_t i = 0; i < t.size(); ++i) t.as<float>()[i] = std::fabs(t.as<float>()[i]);
  return t;
}

Tensor scalars_of(double clip, double ok, double lr, double a = 0, double b = 0) {
  Tensor s(ENG_F32, {ENG_S_COUNT});
  s.put(ENG_S_CLIP, clip), s.put(ENG_S_OK, ok), s.put(ENG_S_LR, lr), s.put(ENG_S_LR + 1, a), s.put(ENG_S_LR + 2, b);
  return s;
}

Case adamw(Random& random, int64_t n, double clip, double ok, double weight_decay) {
  Case c;
  c.op = ENG_OP_ADAMW;
  c.in = {wild(random, n, 1e10), wild(random, n, 1e18), wild(random, n, 1e10), positive(wild(random, n, 1e30)),
          scalars_of(clip, ok, 3e-4, 1 - std::pow(0.9, 7), std::sqrt(1 - std::pow(0.95, 7)))};
  c.out = {c.in[0].d, c.in[2].d, c.in[3].d};
  c.attrs = {real("beta1", 0.9), real("beta2", 0.95), real("eps", 1e-8), real("weight_decay", weight_decay)};
  c.in_place = {{0, 0}, {1, 2}, {2, 3}};
  return c;
}

// An update that also writes the weight in a 16-bit type.
Case with_weight(Case c, int32_t dtype) {
  c.out.push_back(c.in[0].d);
  c.out.back().dtype = dtype;
  c.attrs.push_back(whole("weight", dtype));
  return c;
}

// All devices agree, the other outputs are those of the plain update, and the weight is what a cast makes of p.
void check_weight(const Case& plain) {
  const auto before = reference().run(plain.op, plain.in, plain.out, plain.attrs, plain.in_place);
  for (int32_t dtype : {ENG_BF16, ENG_F16}) {
    const Case c = with_weight(plain, dtype);
    check_exact(c);
    auto got = reference().run(c.op, c.in, c.out, c.attrs, c.in_place);
    const Case cast{ENG_OP_CAST, {got[0]}, {c.out.back()}, {whole("dtype", dtype)}, {}};
    check_exact(cast);
    CHECK(got.back().same_bits(reference().run(cast.op, cast.in, cast.out, cast.attrs)[0]));
    got.pop_back();
    CHECK(same(got, before));
  }
}

Case sgd(Random& random, int64_t n, double ok, bool nesterov) {
  return {ENG_OP_SGD,
          {wild(random, n, 1e10), wild(random, n, 1e10), wild(random, n, 1e10), scalars_of(0.7, ok, 0.1)},
          {desc(ENG_F32, {n}), desc(ENG_F32, {n})},
          {real("momentum", 0.9), real("weight_decay", 0.01), whole("nesterov", nesterov)},
          {{0, 0}, {1, 2}}};
}

}  // namespace

TEST_CASE("fast adamw has the reference's bits") {
  Random random(11);
  for (int64_t n : {1, 7, 16, 63, 64, 513, 40000}) check_exact(adamw(random, n, 0.37, 1, 0.1));
  check_exact(adamw(random, 20011, 1, 1, 0));
  check_exact(adamw(random, 20011, 0.5, 0, 0.1));  // skipped
}

TEST_CASE("an update that writes the 16-bit weight as well writes what eng.cast/1 makes of the new p") {
  Random random(20);
  for (int64_t n : {1, 7, 16, 63, 64, 513, 40000}) {
    check_weight(adamw(random, n, 0.37, 1, n % 2 ? 0.1 : 0));
    for (double ok : {1.0, 0.0}) check_weight(sgd(random, n, ok, n % 2));
    Case plain = sgd(random, n, 1, n % 2 == 0);
    plain.in.erase(plain.in.begin() + 2), plain.out.pop_back(), plain.in_place.pop_back();
    plain.attrs[0].f = 0;
    check_weight(plain);
  }
  // A skipped update leaves p, and p may hold anything; the weight is written all the same.
  Case skipped = adamw(random, 20011, 0.5, 0, 0.1);
  for (int64_t i = 0; i < 1000; ++i) {
    const auto bits = uint32_t(random() | (i % 2 ? 0x7f800000u : 0u));  // every other one is NaN or infinite
    std::memcpy(skipped.in[0].as<float>() + i, &bits, sizeof bits);
  }
  check_weight(skipped);
  // So does one with gradients that are not finite.
  Case broken = adamw(random, 513, 0.5, 1, 0.1);
  for (int64_t i = 0; i < 513; i += 3) broken.in[1].put(i, i % 2 ? INFINITY : NAN);
  check_weight(broken);
}

TEST_CASE("the weight of the p before the update is seen, and a weight of another type or size is refused") {
  Random random(21);
  const Case c = with_weight(adamw(random, 4096, 0.37, 1, 0.1), ENG_BF16);
  const auto want = reference().run(ENG_OP_CAST, {c.in[0]}, {c.out[3]}, {whole("dtype", ENG_BF16)})[0];
  CHECK(!reference().run(c.op, c.in, c.out, c.attrs)[3].same_bits(want));
  for (const Device* d : {&reference(), static_cast<const Device*>(fast_devices()[0].device.get())})
    for (Case wrong : {c, with_weight(sgd(random, 4096, 1, false), ENG_BF16)}) {
      for (int32_t dtype : {ENG_F32, ENG_F64, ENG_I32}) {
        wrong.out.back().dtype = dtype;
        CHECK_THROWS_WITH(d->run(wrong.op, wrong.in, wrong.out, wrong.attrs),
                          Catch::Contains("the weight must be bf16 or f16"));
      }
      wrong.out.back() = desc(ENG_F16, {4095});
      CHECK_THROWS_WITH(d->run(wrong.op, wrong.in, wrong.out, wrong.attrs), Catch::Contains("shape of p"));
    }
}

TEST_CASE("fast adamw on a million elements, denormals among them", "[.slow]") {
  Random random(12);
  const Case c = adamw(random, (1 << 20) + 13, 0.37, 1, 0.1);
  int64_t tiny = 0;
  const auto want = reference().run(c.op, c.in, c.out, c.attrs, c.in_place);
  for (const Tensor& t : want)
    for (int64_t i = 0; i < t.size(); ++i) tiny += std::fpclassify(t.as<float>()[i]) == FP_SUBNORMAL;
  CHECK(tiny > 1000);  // flushing them would be seen
  check_exact(c);
}

TEST_CASE("the comparison of bits sees the smallest fault in adamw") {
  Random random(13);
  Case c = adamw(random, 4096, 0.37, 1, 0.1);
  const auto want = reference().run(c.op, c.in, c.out, c.attrs, c.in_place);
  c.attrs[1].f = double(std::nextafterf(0.95f, 1.0f));  // beta2 off by one bit
  for (const Fast& f : fast_devices()) CHECK(!same(f.device->run(c.op, c.in, c.out, c.attrs, c.in_place), want));
}

TEST_CASE("fast sgd has the reference's bits") {
  Random random(14);
  for (int64_t n : {1, 7, 513, 40000})
    for (int64_t nesterov : {0, 1}) {
      for (double first : {0.0, 1.0}) {
        Case c{ENG_OP_SGD,
               {wild(random, n, 1e10), wild(random, n, 1e10), wild(random, n, 1e10), scalars_of(0.7, 1, 0.1, first)},
               {desc(ENG_F32, {n}), desc(ENG_F32, {n})},
               {real("momentum", 0.9), real("weight_decay", 0.01), whole("nesterov", nesterov)},
               {{0, 0}, {1, 2}}};
        check_exact(c);
        c.in[3] = scalars_of(0.7, 0, 0.1, first);
        if (n < 1000) check_exact(c);
      }
      Case plain{ENG_OP_SGD,
                 {wild(random, n, 1e10), wild(random, n, 1e10), scalars_of(0.7, 1, 0.1)},
                 {desc(ENG_F32, {n})},
                 {real("momentum", 0), real("weight_decay", 0.01), whole("nesterov", nesterov)},
                 {{0, 0}}};
      check_exact(plain);
    }
}

TEST_CASE("fast sgd on a million elements", "[.slow]") {
  Random random(18);
  const int64_t n = (1 << 20) + 13;
  check_exact({ENG_OP_SGD,
               {wild(random, n, 1e10), wild(random, n, 1e10), wild(random, n, 1e10), scalars_of(0.7, 1, 0.1, 0)},
               {desc(ENG_F32, {n}), desc(ENG_F32, {n})},
               {real("momentum", 0.9), real("weight_decay", 0.01), whole("nesterov", 1)},
               {{0, 0}, {1, 2}}});
}

TEST_CASE("fast sum_squares has the reference's bits") {
  Random random(15);
  for (int64_t n : {1, 3, 250})
    for (double huge : {1.0, 1e25})
      check_exact({ENG_OP_SUM_SQUARES, {wild(random, n * 4096, huge)}, {desc(ENG_F32, {n})}, {}, {}});
  // Another order of the same elements gives other bits: the comparison would see it.
  Tensor x = random_normal(random, ENG_F32, {4096 * 50});
  const auto want = reference().run(ENG_OP_SUM_SQUARES, {x}, {desc(ENG_F32, {50})});
  std::reverse(x.as<float>(), x.as<float>() + x.size());
  for (const Fast& f : fast_devices()) {
    auto got = f.device->run(ENG_OP_SUM_SQUARES, {x}, {desc(ENG_F32, {50})});
    std::reverse(got[0].as<float>(), got[0].as<float>() + 50);
    CHECK(!same(got, want));
    CHECK(error_of(got[0], want[0]) < 1e-5);
  }
}

TEST_CASE("fast fold has the reference's bits") {
  Random random(19);
  for (int64_t rows = 1; rows <= 9; ++rows)
    for (int64_t n : {1, 7, 511, 513, 4099})
      check_exact({ENG_OP_FOLD, {wild(random, rows * n, 1e18)}, {desc(ENG_F32, {n})}, {whole("rows", rows)}, {}});
  for (int64_t rows : {64, 1000})
    check_exact({ENG_OP_FOLD, {wild(random, rows * 33, 1e18)}, {desc(ENG_F32, {33})}, {whole("rows", rows)}, {}});
  // From left to right the same rows have other bits: the comparison would see it.
  for (int64_t rows = 4; rows <= 9; ++rows) {
    const int64_t n = 1031;
    const Tensor x = random_normal(random, ENG_F32, {rows * n});
    Tensor wrong(ENG_F32, {n});
    for (int64_t j = 0; j < n; ++j) {
      float sum = x.as<float>()[j];
      for (int64_t r = 1; r < rows; ++r) sum += x.as<float>()[r * n + j];
      wrong.as<float>()[j] = sum;
    }
    for (const Fast& f : fast_devices()) {
      const auto got = f.device->run(ENG_OP_FOLD, {x}, {wrong.d}, {whole("rows", rows)});
      CHECK(!same(got, {wrong}));
      CHECK(error_of(got[0], wrong) < 1e-5);
    }
  }
}

TEST_CASE("fast fold refuses rows that x does not have") {
  const Tensor x(ENG_F32, {12});
  for (const Device* d : {&reference(), static_cast<const Device*>(fast_devices()[0].device.get())})
    for (int64_t rows : {0, 5, 4})
      CHECK_THROWS_WITH(d->run(ENG_OP_FOLD, {x}, {desc(ENG_F32, {4})}, {whole("rows", rows)}), Catch::Contains("rows"));
}

TEST_CASE("fast finish has the reference's bits") {
  Random random(16);
  const Tensor table = random_normal(random, ENG_F32, {5, 3}), old = random_normal(random, ENG_F32, {ENG_S_COUNT});
  const Tensor counters(ENG_I64, {ENG_C_COUNT}, {9, 3, 1});
  for (double max_norm : {0.0, 1.0, 1e6})
    for (int64_t n : {1, 1000}) {
      Case c{ENG_OP_FINISH,
             {positive(wild(random, n, 1e20)), table, old, counters},
             {old.d, counters.d},
             {real("max_norm", max_norm)},
             {{0, 2}, {1, 3}}};
      check_exact(c);
      c.in[0].put(n / 2, INFINITY);
      check_exact(c);
    }
  for (const Fast& f : fast_devices())
    CHECK_THROWS_WITH(
        f.device->run(ENG_OP_FINISH, {Tensor(ENG_F32, {1}), table, old, Tensor(ENG_I64, {ENG_C_COUNT}, {9, 5, 1})},
                      {old.d, counters.d}, {real("max_norm", 1)}),
        Catch::Contains("update 5 of a table for 5"));
}

TEST_CASE("fast begin, get_row, put_row have the reference's bits") {
  Random random(17);
  const Tensor counters(ENG_I64, {ENG_C_COUNT}, {9, 3, 1}), inputs = random_normal(random, ENG_F32, {8});
  const Tensor old = random_normal(random, ENG_F32, {ENG_S_COUNT});
  Device::Outputs want = {old, counters};
  reference().run_on(ENG_OP_BEGIN, {inputs, counters}, want);
  CHECK(want[0].at(ENG_S_LR) == old.at(ENG_S_LR));
  for (const Fast& f : fast_devices()) {
    Device::Outputs got = {old, counters};
    f.device->run_on(ENG_OP_BEGIN, {inputs, counters}, got);
    CHECK(same(got, want));
  }
  for (int32_t dtype : {ENG_F32, ENG_F64, ENG_BF16, ENG_F16, ENG_I32, ENG_I64, ENG_U8})
    for (int64_t width : {1, 77, 30000}) {
      Tensor rows(dtype, {3, 2, width});
      for (size_t i = 0; i < rows.memory.size(); ++i) rows.memory.data()[i] = static_cast<unsigned char>(random());
      check_exact({ENG_OP_GET_ROW, {rows, counters}, {desc(dtype, {2, width})}, {}, {}});
      if (width != 1) continue;
      Tensor row(dtype, {2}), flat(dtype, {3, 2});
      std::memcpy(flat.memory.data(), rows.memory.data(), rows.memory.size());
      std::memset(row.memory.data(), 0x5A, row.memory.size());
      check_exact({ENG_OP_PUT_ROW, {row, flat, counters}, {flat.d, counters.d}, {}, {{0, 1}, {1, 2}}});
    }
  const Tensor rows(ENG_I32, {1, 4});
  for (const Fast& f : fast_devices())
    CHECK_THROWS_WITH(f.device->run(ENG_OP_GET_ROW, {rows, counters}, {desc(ENG_I32, {4})}),
                      Catch::Contains("micro-batch 1 of 1"));
}

TEST_CASE("fast initial values have the reference's bits, whatever the part") {
  const int32_t dtype = GENERATE(ENG_F32, ENG_BF16, ENG_F16);
  for (int64_t n : {1, 2, 7, 65, 40001})
    for (int64_t first : {0, 1, 2, 3, 4097}) {
      const std::vector<eng_desc> out = {desc(dtype, {n})};
      const auto with = [&](eng_attr a, eng_attr b) {
        return std::vector<eng_attr>{whole("seed", 42), whole("stream", 7), whole("first", first), a, b};
      };
      // Just above the middle between two values of bf16, and of f16: rounded twice, it would go to the even one.
      for (double value : {0.1, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-11 + 0x1p-40})
        check_exact({ENG_OP_INIT_CONSTANT, {}, out, with(real("value", value), real("unused", 0)), {}});
      check_exact({ENG_OP_INIT_NORMAL, {}, out, with(real("mean", 0.1), real("std", 0.02)), {}});
      check_exact({ENG_OP_INIT_UNIFORM, {}, out, with(real("low", -0.3), real("high", 0.7)), {}});
    }
}
