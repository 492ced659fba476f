// SPDX-License-Identifier: Apache-2.0
// cast, and folds of 16-bit values: against a table of all values of a type, on every device.
#include <bit>
#include <cmath>

#include "fast_elem.hpp"

using namespace kernels_test;

namespace {

// A 16-bit type as a table: the value of each positive finite pattern, ascending.
struct Half {
  int32_t dtype;
  int fraction, lowest;  // bits; the exponent of the smallest value
  std::vector<double> values;
  Half(int32_t type, int bits, int bias) : dtype(type), fraction(bits), lowest(1 - bias - bits) {
    const int exponents = (1 << (15 - bits)) - 1;  // the last one is for what is not finite
    for (int e = 0; e < exponents; ++e)
      for (int f = 0; f < 1 << bits; ++f)
        values.push_back(std::ldexp(e ? (1 << bits) + f : f, (e ? e - 1 : 0) + lowest));
  }
  // The pattern of the nearest value; of two that are as near, the even one.
  uint16_t nearest(float x) const {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double size = std::fabs(double(x));
    // The next value, if there were one, is where rounding up begins to be infinite.
    const double beyond = values.back() + std::ldexp(1.0, std::ilogb(values.back()) - fraction);
    const auto value = [&](size_t k) { return k < values.size() ? values[k] : beyond; };
    if (size >= beyond) return uint16_t(sign | values.size());
    const size_t above = size_t(std::lower_bound(values.begin(), values.end(), size) - values.begin());
    if (value(above) == size) return uint16_t(sign | above);
    const double up = value(above) - size, down = size - value(above - 1);
    return uint16_t(sign | (up < down || (up == down && above % 2 == 0) ? above : above - 1));
  }
  double value(uint16_t pattern) const {
    const uint16_t size = pattern & 0x7fff;
    const double v = size < values.size() ? values[size] : size == values.size() ? INFINITY : NAN;
    return pattern & 0x8000 ? -v : v;
  }
};

const Half& bf16() {
  static const Half half(ENG_BF16, 7, 127);
  return half;
}
const Half& f16() {
  static const Half half(ENG_F16, 10, 15);
  return half;
}

Case cast(Tensor x, int32_t to) {
  eng_desc out = x.d;
  out.dtype = to;
  return {ENG_OP_CAST, {std::move(x)}, {out}, {whole("dtype", to)}, {}};
}

// The result on the reference device, after all devices have been seen to agree on it.
Tensor agreed(const Case& c) {
  check_exact(c);
  return reference().run(c.op, c.in, c.out, c.attrs, c.in_place)[0];
}

Tensor patterns(int32_t dtype) {
  Tensor t(dtype, {65536});
  for (int k = 0; k < 65536; ++k) t.as<uint16_t>()[k] = uint16_t(k);
  return t;
}

// f32 of every size: random bits, and the 16-bit values, what lies half of the way between two, and their neighbours.
Tensor floats(Random& random, const Half& half) {
  std::vector<float> list;
  for (int k = 0; k < 200000; ++k) list.push_back(std::bit_cast<float>(uint32_t(random())));
  for (size_t k = 0; k + 1 < half.values.size(); ++k) {
    const float middle = float((half.values[k] + half.values[k + 1]) / 2);
    for (float x : {float(half.values[k]), middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, INFINITY)})
      list.push_back(k % 2 ? -x : x);
  }
  for (float x : {INFINITY, -INFINITY, 65504.0f, 65519.99f, 65520.0f, 3.4e38f, -3.4e38f, 0.0f, -0.0f})
    list.push_back(x);
  Tensor t(ENG_F32, {int64_t(list.size())});
  std::copy(list.begin(), list.end(), t.as<float>());
  return t;
}

bool is_nan(const Half& half, uint16_t pattern) {
  return (pattern & 0x7fff) > half.values.size();
}

}  // namespace

TEST_CASE("every 16-bit value casts to f32 as it is, and back to itself") {
  for (const Half* half : {&bf16(), &f16()}) {
    const Tensor x = patterns(half->dtype), wide = agreed(cast(x, ENG_F32)), back = agreed(cast(wide, half->dtype));
    int wrong = 0;
    for (int k = 0; k < 65536; ++k) {
      const auto pattern = uint16_t(k);
      const float value = wide.as<float>()[k], want = float(half->value(pattern));
      wrong += is_nan(*half, pattern) ? !std::isnan(value) || !is_nan(*half, back.as<uint16_t>()[k])
                                      : std::bit_cast<uint32_t>(value) != std::bit_cast<uint32_t>(want) ||
                                            back.as<uint16_t>()[k] != pattern;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("f32 casts to the nearest 16-bit value, of two the even one") {
  Random random(31);
  for (const Half* half : {&bf16(), &f16()}) {
    const Tensor x = floats(random, *half), y = agreed(cast(x, half->dtype));
    int wrong = 0;
    for (int64_t k = 0; k < x.size(); ++k) {
      const float value = x.as<float>()[k];
      const uint16_t got = y.as<uint16_t>()[k];
      wrong += std::isnan(value) ? !is_nan(*half, got) : got != half->nearest(value);
    }
    CHECK(wrong == 0);
    // Over f32 into the other type is one rounding.
    const Half& other = half == &bf16() ? f16() : bf16();
    const Tensor from = patterns(half->dtype), to = agreed(cast(from, other.dtype));
    for (int k = 0; k < 65536; ++k)
      if (!is_nan(*half, uint16_t(k))) wrong += to.as<uint16_t>()[k] != other.nearest(float(half->value(uint16_t(k))));
    CHECK(wrong == 0);
  }
}

TEST_CASE("f32 and f64 cast into each other, and other pairs are refused") {
  Random random(32);
  const Tensor x = floats(random, f16()), wide = agreed(cast(x, ENG_F64)), back = agreed(cast(wide, ENG_F32));
  int wrong = 0;
  for (int64_t k = 0; k < x.size(); ++k)
    if (!std::isnan(x.as<float>()[k]))
      wrong += wide.as<double>()[k] != double(x.as<float>()[k]) ||
               std::bit_cast<uint32_t>(back.as<float>()[k]) != std::bit_cast<uint32_t>(x.as<float>()[k]);
  CHECK(wrong == 0);
  for (const Device* d : std::vector<const Device*>{&reference(), fast_devices().front().device.get()}) {
    const auto refuses = [&](int32_t from, int32_t to) {
      const Case c = cast(Tensor(from, {4}), to);
      CHECK_THROWS_WITH(d->run(c.op, c.in, c.out, c.attrs), Catch::Contains("casts f32, bf16 and f16 into each other"));
    };
    refuses(ENG_F64, ENG_BF16), refuses(ENG_F16, ENG_F64), refuses(ENG_I32, ENG_F32), refuses(ENG_F32, ENG_I64);
    CHECK_THROWS_WITH(d->run(ENG_OP_CAST, {Tensor(ENG_F32, {4})}, {desc(ENG_BF16, {5})}, {whole("dtype", ENG_BF16)}),
                      Catch::Contains("shape"));
  }
}

TEST_CASE("a fold of 16-bit rows into f32 rounds no sum to 16 bits") {
  Random random(34);
  for (const Half* half : {&bf16(), &f16()})
    for (int64_t rows : {1, 2, 3, 5, 8, 13}) {
      const int64_t n = 1031;
      const Tensor x = agreed(cast(random_normal(random, ENG_F32, {rows * n}), half->dtype));
      const std::vector<eng_attr> attrs = {whole("rows", rows), whole("dtype", ENG_F32)};
      const Tensor y = agreed({ENG_OP_FOLD, {x}, {desc(ENG_F32, {n})}, attrs, {}});
      // The result is that of widening first.
      const Tensor wide = agreed(cast(x, ENG_F32));
      CHECK(y.same_bits(agreed({ENG_OP_FOLD, {wide}, {desc(ENG_F32, {n})}, {whole("rows", rows)}, {}})));
    }
}

TEST_CASE("a fold of 16-bit rows rounds every sum of its tree") {
  Random random(33);
  for (const Half* half : {&bf16(), &f16()})
    for (int64_t rows : {1, 2, 3, 5, 8, 13}) {
      const int64_t n = 1031;
      const Tensor x = agreed(cast(random_normal(random, ENG_F32, {rows * n}), half->dtype));
      const Tensor y = agreed({ENG_OP_FOLD, {x}, {desc(half->dtype, {n})}, {whole("rows", rows)}, {}});
      int wrong = 0;
      for (int64_t j = 0; j < n; ++j) {
        std::vector<uint16_t> level;
        for (int64_t r = 0; r < rows; ++r) level.push_back(x.as<uint16_t>()[r * n + j]);
        while (level.size() > 1) {
          std::vector<uint16_t> next;
          for (size_t r = 0; r < level.size(); r += 2)
            next.push_back(r + 1 < level.size()
                               ? half->nearest(float(half->value(level[r])) + float(half->value(level[r + 1])))
                               : level[r]);
          level = next;
        }
        wrong += y.as<uint16_t>()[j] != level[0];
      }
      INFO(rows << " rows");
      CHECK(wrong == 0);
    }
}
