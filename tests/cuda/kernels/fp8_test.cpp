// SPDX-License-Identifier: Apache-2.0
// The ops of engine/ops_fp8.h for the cuda device, emulated, beside the reference device: bytes, scales and histories
// bit for bit, products within the rounding of their sums.
#include "engine/ops_fp8.h"

#include <bit>
#include <cmath>

#include "emulated.hpp"

namespace fp8_on_cuda {

using namespace cuda_test;

namespace {

const Device& on() {
  static const Emulated device("transform");
  return device;
}
Use use_of(const char* op, const std::vector<Tensor>& in, const std::vector<eng_desc>& out,
           const std::vector<eng_attr>& attrs, const Device::InPlace& in_place = {}) {
  return {op, in, out, attrs, in_place, &on()};
}
std::vector<eng_attr> product(int64_t a, int64_t b, int64_t ta, int64_t tb, int64_t margin = 0) {
  return {whole("ta", ta),         whole("tb", tb),   whole("a", a),    whole("b", b),
          whole("margin", margin), whole("a_row", 2), whole("b_row", 1)};
}
std::vector<eng_attr> linear(int64_t margin = 0) {
  return {whole("gradients", ENG_FP8_E5M2), whole("margin", margin)};
}
// Numbers of many sizes: `exponents` powers of two below the largest one.
Tensor wide(Random& random, int32_t type, const Dims& dims, int exponents, int largest = 0) {
  Tensor t = random_normal(random, type, dims);
  for (int64_t i = 0; i < t.size(); ++i)
    t.put(i, std::ldexp(std::clamp(t.at(i), -2.0, 2.0), largest - static_cast<int>(i * 7 % exponents)));
  return t;
}
// Scales, largest values so far, and a history of `n` steps.
Tensor state(Random& random, int64_t n, float x, float w, float dy) {
  Tensor t = random_normal(random, ENG_F32, {3, 2 + n});
  for (int64_t i = 0; i < t.size(); ++i) t.put(i, std::fabs(t.at(i)));
  const float scales[] = {x, w, dy};
  for (int64_t r = 0; r < 3; ++r) t.put(r * (2 + n), double(scales[r]));
  return t;
}

}  // namespace

TEST_CASE("emulated cuda: factors of fp8 products are rounded as the reference rounds them, bit for bit") {
  Random random(3);
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16})
    for (const auto& [m, k] : {std::array<int64_t, 2>{3, 1}, {5, 16}, {9, 40}, {70, 80}}) {
      const bool half = type == ENG_F16;
      const Tensor x = wide(random, type, {m, k}, half ? 20 : 34, half ? 3 : 60);
      Tensor turned(type, {k, m});
      for (int64_t i = 0; i < m * k; ++i) turned.put(i % k * m + i / k, x.at(i));
      Tensor one(type, {k, k});
      for (int64_t i = 0; i < k * k; ++i) one.put(i, i % (k + 1) == 0 ? 1 : 0);
      for (const int32_t format : {ENG_FP8_E4M3, ENG_FP8_E5M2})
        for (const bool turn : {false, true}) {
          INFO("type " << type << ", " << m << " x " << k << ", format " << format << (turn ? ", turned" : ""));
          check_exact(use_of(ENG_OP_FP8_MATMUL, {turn ? turned : x, one}, {desc(ENG_F32, {m, k})},
                             product(format, ENG_FP8_E4M3, turn, 0, turn ? 3 : 0)));
        }
      // The scale of an earlier step, with which values are too large or vanish.
      const Tensor s = state(random, 2, 1, 256, half ? 0x1p10f : 0x1p-50f);
      check_exact(use_of(ENG_OP_FP8_MATMUL, {x, one, Tensor(), s}, {desc(ENG_F32, {m, k})},
                         product(ENG_FP8_E5M2, ENG_FP8_E4M3, 0, 0)));
    }
}

TEST_CASE("emulated cuda: every fp8 value, what lies half way between two, and what is not finite") {
  for (const int32_t format : {ENG_FP8_E4M3, ENG_FP8_E5M2}) {
    // 16 bits of a float decide: 8 beyond what the formats keep.
    const int64_t n = 4096;
    Tensor x(ENG_F32, {n, 1}), one(ENG_F32, {1, 1}, {1});
    for (int64_t i = 0; i < n; ++i)
      x.put(i, double(std::bit_cast<float>(uint32_t(0x35000000 + i % 2048 * 0x20000 + (i % 3 == 2)) |
                                           (i < 2048 ? 0u : 0x80000000u))));
    for (int64_t i = 0; i < n; ++i)
      if (std::fabs(x.at(i)) > (format == ENG_FP8_E4M3 ? 448 : 57344)) x.put(i, 448);
    const float odd[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY};
    for (int64_t i = 0; i < 5; ++i) x.put(17 + i, double(odd[i]));
    if (format == ENG_FP8_E5M2) x.put(30, 57344);  // so that nothing is scaled
    check_exact(use_of(ENG_OP_FP8_MATMUL, {x, one}, {desc(ENG_F32, {n, 1})}, product(format, ENG_FP8_E4M3, 0, 0)));
  }
}

TEST_CASE("emulated cuda: products in fp8 and their gradients in every format") {
  Random random(7);
  for (const int32_t type : types_of_long_cases())
    for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 16, 16}, {37, 80, 48}, {70, 144, 33}}) {
      INFO("type " << type << ": " << m << " " << k << " " << n);
      const double apart = type == ENG_F32 ? 2e-6 : 1e-5;
      const Tensor x = random_normal(random, type, {m, k}), w = random_normal(random, type, {n, k}),
                   bias = random_normal(random, type, {n}), dy = random_normal(random, type, {m, n}),
                   s = state(random, 3, 64, 0, 4096), acc = random_normal(random, ENG_F32, {n, k});
      check_close(use_of(ENG_OP_FP8_LINEAR, {x, w}, {desc(type, {m, n})}, linear()), apart);
      check_close(use_of(ENG_OP_FP8_LINEAR, {x, w, bias, s}, {desc(type, {m, n})}, linear(2)), apart);
      check_close(use_of(ENG_OP_FP8_MATMUL, {dy, w, Tensor(), s}, {desc(type, {m, k})},
                         product(ENG_FP8_E5M2, ENG_FP8_E4M3, 0, 0)),
                  apart);
      check_close(use_of(ENG_OP_FP8_MATMUL, {dy, x, acc}, {acc.d}, product(ENG_FP8_E5M2, ENG_FP8_E4M3, 1, 0), {{0, 2}}),
                  apart);
      check_close(use_of(ENG_OP_FP8_MATMUL, {x, w}, {desc(type, {m, n})}, product(ENG_FP8_E4M3, ENG_FP8_E4M3, 0, 1)),
                  apart);
    }
}

TEST_CASE("emulated cuda: histories of fp8 have the bits of the reference") {
  Random random(11);
  for (const int64_t history : {1, 3, 300}) {
    INFO("history " << history);
    const Tensor s = state(random, history, 1, 0, 2), dy = wide(random, ENG_BF16, {5, 130}, 9);
    Tensor x = wide(random, ENG_F32, {700, 9}, 12, 3);
    x.put(5, NAN), x.put(6, INFINITY), x.put(7, -INFINITY), x.put(6299, -40000.0);
    check_exact(use_of(ENG_OP_FP8_LARGEST, {s, x, Tensor(), dy}, {s.d}, {}, {{0, 0}}));
    // Two maps.
    Tensor both(ENG_F32, {6 * (2 + history)});
    for (int64_t i = 0; i < both.size(); ++i) both.put(i, i % 7 == 3 ? 0 : s.at(i % s.size()) * (1 + double(i % 5)));
    for (int64_t i = 0; i < 2 + history; ++i) both.put(i, 0);  // a row of zeros
    const std::vector<eng_attr> of = {whole("history", history)};
    check_exact(use_of(ENG_OP_FP8_COLLECT, {both}, {desc(ENG_F32, {6})}, of));
    const Tensor ranks = wide(random, ENG_F32, {12}, 5);
    for (const int64_t recent : {0, 1})
      for (const Tensor& all : {Tensor(), ranks}) {
        Tensor sizes = all;
        for (int64_t i = 0; sizes.d.dtype && i < 12; ++i) sizes.put(i, std::fabs(all.at(i)));
        check_exact(use_of(ENG_OP_FP8_ROLL, {both, sizes}, {both.d},
                           {of[0], whole("recent", recent), whole("gradients", recent ? ENG_FP8_E4M3 : ENG_FP8_E5M2),
                            whole("margin", recent * 2)},
                           {{0, 0}}));
      }
  }
}

TEST_CASE("emulated cuda: fp8 is refused on GPUs that do not multiply it, and so is what does not fit") {
  const Tensor x(ENG_F32, {4, 16}), w(ENG_F32, {16, 16}), other(ENG_BF16, {16, 16}), narrow(ENG_F32, {3, 2});
  const std::vector<eng_desc> y = {desc(ENG_F32, {4, 16})};
  Emulated device("transform");
  const auto refused = [&](const char* op, const std::vector<Tensor>& in, const std::vector<eng_attr>& attrs,
                           const std::string& said) {
    CHECK_THROWS_WITH(device.run(op, in, y, attrs), Catch::Contains(said));
  };
  refused(ENG_OP_FP8_LINEAR, {x, other}, linear(), "another type");
  refused(ENG_OP_FP8_LINEAR, {x, w}, linear(-1), "margin must be");
  refused(ENG_OP_FP8_LINEAR, {x, w, Tensor(), narrow}, linear(), "(3, 2 + H)");
  refused(ENG_OP_FP8_MATMUL, {x, w}, product(3, ENG_FP8_E4M3, 0, 0), "must be ENG_FP8_E4M3 or ENG_FP8_E5M2");
  refused(ENG_OP_FP8_MATMUL, {x, w}, product(ENG_FP8_E4M3, ENG_FP8_E4M3, 1, 0), "inner sizes");
  refused(ENG_OP_FP8_COLLECT, {narrow}, {whole("history", 3)}, "M * 3");
  device.info.arch = 89;
  CHECK_NOTHROW(device.run(ENG_OP_FP8_LINEAR, {x, w}, y, linear()));
  device.info.arch = 86;
  refused(ENG_OP_FP8_LINEAR, {x, w}, linear(), "needs a GPU of sm_89 (Ada) or newer, and this one is of sm_86");
}

}  // namespace fp8_on_cuda
