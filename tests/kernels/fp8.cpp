// SPDX-License-Identifier: Apache-2.0
// Products of 8 bits (engine/ops_fp8.h) against the goldens of tools/goldens/fp8.py: rounding, scales, a linear map and
// its gradients, on every device, also with scales of earlier steps; what is not finite; calls that do not fit.
#include "engine/ops_fp8.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>

#include "fast_elem.hpp"
#include "tests/paths.hpp"

namespace fp8_kernels {

using namespace kernels_test;

namespace {

class Rounded {
 public:
  explicit Rounded(const std::string& name) {
    std::ifstream file(std::string(ENGINE_SOURCE_DIR) + "/tests/kernels/golden/" + name, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  int64_t whole() {
    int32_t out = 0;
    take(&out, sizeof out);
    return out;
  }
  Tensor floats(const Dims& dims) {
    Tensor out(ENG_F32, dims);
    take(out.as<float>(), sizeof(float) * size_t(out.size()));
    return out;
  }
  bool ended() const { return at_ == bytes_.size(); }

 private:
  void take(void* to, size_t n) {
    REQUIRE(at_ + n <= bytes_.size());
    std::memcpy(to, bytes_.data() + at_, n);
    at_ += n;
  }
  std::vector<char> bytes_;
  size_t at_ = 0;
};

// Equal bits, but for the sign of 0 and the bits of a NaN.
bool equal(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}
bool equal(const Tensor& a, const Tensor& b) {
  for (int64_t k = 0; k < a.size(); ++k)
    if (!equal(a.as<float>()[k], b.as<float>()[k])) return UNSCOPED_INFO("element " << k), false;
  return true;
}

std::vector<const Device*> devices() {
  std::vector<const Device*> out = {&reference()};
  for (const Fast& f : fast_devices()) out.push_back(f.device.get());
  return out;
}

std::vector<eng_attr> product(int64_t a, int64_t b, int64_t ta = 0, int64_t tb = 0, int64_t margin = 0) {
  return {whole("ta", ta), whole("tb", tb), whole("a", a), whole("b", b), whole("margin", margin)};
}
std::vector<eng_attr> linear(int64_t margin = 0) {
  return {whole("gradients", ENG_FP8_E5M2), whole("margin", margin)};
}

// x (n) as a column times 1: Q(x) itself.
Tensor rounded(const Device& device, Tensor x, int64_t format, int64_t margin = 0) {
  const int64_t n = x.size();
  Tensor one(ENG_F32, {1, 1});
  one.put(0, 1);
  x.d = desc(ENG_F32, {n, 1});
  return device.run(ENG_OP_FP8_MATMUL, {x, one}, {desc(ENG_F32, {n, 1})}, product(format, format, 0, 0, margin))[0];
}

void add_golden_tensor(Rounded& golden) {
  const int64_t n = golden.whole(), margin = golden.whole();
  const Tensor x = golden.floats({n});
  float largest = 0;
  for (int64_t k = 0; k < n; ++k)
    if (std::isfinite(x.as<float>()[k])) largest = std::fmax(largest, std::fabs(x.as<float>()[k]));
  for (int32_t format : {ENG_FP8_E4M3, ENG_FP8_E5M2}) {
    INFO("largest " << largest << ", format " << format << ", margin " << margin);
    const int64_t exponent = golden.whole();
    const Tensor want = golden.floats({n});
    CHECK(eng_fp8_exponent(format, largest, int32_t(margin)) == exponent);
    // 1 has the margin, too.
    for (const Device* device : devices()) CHECK(equal(rounded(*device, x, format, margin), want));
  }
}

}  // namespace

TEST_CASE("values are rounded to e4m3 and e5m2 as ml_dtypes does") {
  Rounded golden("fp8.bin");
  const int64_t n = golden.whole();
  const Tensor x = golden.floats({n});
  for (int32_t format : {ENG_FP8_E4M3, ENG_FP8_E5M2}) {
    const Tensor want = golden.floats({n});
    int64_t wrong = 0;
    for (int64_t k = 0; k < n; ++k)
      wrong += std::bit_cast<uint32_t>(eng_fp8_round(format, x.as<float>()[k])) !=
               std::bit_cast<uint32_t>(want.as<float>()[k]);
    CHECK(wrong == 0);
    // In a tensor whose largest value is that of the format, nothing is scaled.
    const float most = format == ENG_FP8_E4M3 ? 448.0f : 57344.0f;
    Tensor in(ENG_F32, {n}), out(ENG_F32, {n});
    for (int64_t k = 0; k < n; ++k) {
      const bool fits = std::fabs(x.as<float>()[k]) <= most;
      in.put(k, fits ? double(x.as<float>()[k]) : double(most));
      out.put(k, fits ? double(want.as<float>()[k]) : double(most));
    }
    for (const Device* device : devices()) CHECK(equal(rounded(*device, in, format), out));
  }
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  CHECK(std::isnan(eng_fp8_round(ENG_FP8_E4M3, nan)));
  CHECK(std::isnan(eng_fp8_round(ENG_FP8_E5M2, nan)));
  CHECK(std::isnan(eng_fp8_round(ENG_FP8_E4M3, -infinity)));
  CHECK(eng_fp8_round(ENG_FP8_E5M2, -infinity) == -infinity);

  const int64_t tensors = golden.whole();
  CHECK(tensors > 20);
  for (int64_t t = 0; t < tensors; ++t) add_golden_tensor(golden);

  // A linear map and its gradients: the reference device has the exact sums, rounded once.
  const int64_t M = golden.whole(), K = golden.whole(), N = golden.whole(), margin = golden.whole();
  const Tensor a = golden.floats({M, K}), w = golden.floats({N, K}), bias = golden.floats({N}),
               dy = golden.floats({M, N}), y = golden.floats({M, N});
  const auto check = [&](const std::string& op, const std::vector<Tensor>& in, const Tensor& want,
                         const std::vector<eng_attr>& attrs) {
    INFO(op);
    CHECK(equal(reference().run(op, in, {want.d}, attrs)[0], want));
    check_close({op, in, {want.d}, attrs, {}}, 1e-6);
  };
  check(ENG_OP_FP8_LINEAR, {a, w, bias}, y, linear(margin));
  const auto gradient = [&](int64_t format, int64_t ta) { return product(format, ENG_FP8_E4M3, ta, 0, margin); };
  check(ENG_OP_FP8_MATMUL, {dy, w}, golden.floats({M, K}), gradient(ENG_FP8_E5M2, 0));
  check(ENG_OP_FP8_MATMUL, {dy, a}, golden.floats({N, K}), gradient(ENG_FP8_E5M2, 1));
  const Tensor dbias = golden.floats({N});
  CHECK(equal(reference().run(ENG_OP_SUM_ROWS, {dy}, {dbias.d})[0], dbias));
  check(ENG_OP_FP8_MATMUL, {dy, w}, golden.floats({M, K}), gradient(ENG_FP8_E4M3, 0));
  check(ENG_OP_FP8_MATMUL, {dy, a}, golden.floats({N, K}), gradient(ENG_FP8_E4M3, 1));
  CHECK(golden.ended());
}

TEST_CASE("scales of earlier steps, their histories and what they saturate are those of the golden") {
  Rounded golden("fp8_delayed.bin");
  const int64_t cases = golden.whole();
  CHECK(cases == 3);
  for (int64_t one = 0; one < cases; ++one) {
    const int64_t history = golden.whole(), recent = golden.whole(), margin = golden.whole(),
                  format = golden.whole() == 4 ? ENG_FP8_E4M3 : ENG_FP8_E5M2, steps = golden.whole(),
                  batches = golden.whole(), M = golden.whole(), K = golden.whole(), N = golden.whole();
    INFO("history " << history << ", recent " << recent << ", margin " << margin);
    const std::vector<const Device*> all = devices();
    std::vector<Tensor> states(all.size(), Tensor(ENG_F32, {3, 2 + history}));
    const auto gradient = [&](int64_t ta, int64_t row) {
      std::vector<eng_attr> out = product(format, ENG_FP8_E4M3, ta, 0, margin);
      out.push_back(whole("a_row", 2)), out.push_back(whole("b_row", row));
      return out;
    };
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t batch = 0; batch < batches; ++batch) {
        INFO("step " << step << ", micro-batch " << batch);
        const Tensor x = golden.floats({M, K}), w = golden.floats({N, K}), dy = golden.floats({M, N}),
                     y = golden.floats({M, N}), dx = golden.floats({M, K}), dw = golden.floats({N, K});
        for (size_t d = 0; d < all.size(); ++d) {
          const Tensor& s = states[d];
          const auto near = [&](const Tensor& got, const Tensor& want) {
            return d ? error_of(got, want) <= 1e-6 : equal(got, want);  // the reference has the exact sums
          };
          CHECK(near(all[d]->run(ENG_OP_FP8_LINEAR, {x, w, Tensor(), s}, {y.d}, linear(margin))[0], y));
          CHECK(near(all[d]->run(ENG_OP_FP8_MATMUL, {dy, w, Tensor(), s}, {dx.d}, gradient(0, 1))[0], dx));
          CHECK(near(all[d]->run(ENG_OP_FP8_MATMUL, {dy, x, Tensor(), s}, {dw.d}, gradient(1, 0))[0], dw));
          states[d] = all[d]->run(ENG_OP_FP8_LARGEST, {s, x, w, dy}, {s.d}, {}, {{0, 0}})[0];
        }
      }
      const Tensor want = golden.floats({3, 1 + history});
      for (size_t d = 0; d < all.size(); ++d) {
        const std::vector<eng_attr> attrs = {whole("history", history), whole("recent", recent),
                                             whole("gradients", format), whole("margin", margin)};
        // As three ranks would bring it: one of them has the largest values.
        Tensor mine = all[d]->run(ENG_OP_FP8_COLLECT, {states[d]}, {desc(ENG_F32, {3})}, attrs)[0];
        Tensor ranks(ENG_F32, {9});
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t k = 0; k < 3; ++k) ranks.put(r * 3 + k, double(mine.as<float>()[k]) * (r == 1 ? 1 : 0.25));
        const Tensor among = all[d]->run(ENG_OP_FP8_ROLL, {states[d], ranks}, {states[d].d}, attrs, {{0, 0}})[0];
        states[d] = all[d]->run(ENG_OP_FP8_ROLL, {states[d]}, {states[d].d}, attrs, {{0, 0}})[0];
        CHECK(among.same_bits(states[d]));
        for (int64_t r = 0; r < 3; ++r) {
          const float* const row = states[d].as<float>() + r * (2 + history);
          const float* const of = want.as<float>() + r * (1 + history);
          INFO("step " << step << ", row " << r);
          CHECK(row[0] == of[0]);
          CHECK(row[1] == 0);
          CHECK(std::equal(row + 2, row + 2 + history, of + 1));
        }
      }
    }
  }
  CHECK(golden.ended());
}

TEST_CASE("products of 8 bits are near the reference in every format, with any number of threads") {
  Random random(7);
  for (int32_t dtype : {ENG_F32, ENG_BF16, ENG_F16})
    for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 16, 16}, {37, 80, 48}, {70, 304, 33}}) {
      INFO(dtype << ": " << m << " " << k << " " << n);
      const double tolerance = dtype == ENG_F32 ? 1e-6 : dtype == ENG_BF16 ? 1e-2 : 1e-3;
      const Tensor x = random_normal(random, dtype, {m, k}), w = random_normal(random, dtype, {n, k}),
                   bias = random_normal(random, dtype, {n}), dy = random_normal(random, dtype, {m, n});
      check_close({ENG_OP_FP8_LINEAR, {x, w, Tensor()}, {desc(dtype, {m, n})}, linear(), {}}, tolerance);
      check_close({ENG_OP_FP8_LINEAR, {x, w, bias}, {desc(dtype, {m, n})}, linear(2), {}}, tolerance);
      check_close({ENG_OP_FP8_MATMUL, {dy, w}, {desc(dtype, {m, k})}, product(ENG_FP8_E5M2, ENG_FP8_E4M3), {}},
                  tolerance);
      for (const Fast& f : product_devices()) {  // those that multiply bf16 by pairs, too
        const Device::Outputs y = f.device->run(ENG_OP_FP8_LINEAR, {x, w, bias}, {desc(dtype, {m, n})}, linear());
        CHECK(error_of(y[0], reference().run(ENG_OP_FP8_LINEAR, {x, w, bias}, {y[0].d}, linear())[0]) <= tolerance);
      }
      // Sums of 16-bit values may be f32, and are added to what is there.
      const Tensor acc = random_normal(random, ENG_F32, {n, k});
      check_close({ENG_OP_FP8_MATMUL, {dy, x, acc}, {acc.d}, product(ENG_FP8_E5M2, ENG_FP8_E4M3, 1), {{0, 2}}}, 1e-5);
      // The rounding is there: the product of the values themselves is farther away.
      const Tensor exact = reference().run(ENG_OP_LINEAR, {x, w, Tensor()}, {desc(dtype, {m, n})})[0];
      const Tensor got = reference().run(ENG_OP_FP8_LINEAR, {x, w, Tensor()}, {desc(dtype, {m, n})}, linear())[0];
      CHECK(error_of(got, exact) > 2e-3);
      CHECK(error_of(got, exact) < 0.1);
    }
}

TEST_CASE("what is not finite reaches the results that it belongs to, and no scale") {
  const int64_t m = 4, k = 16, n = 16;
  Random random(9);
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {nan, infinity, -infinity})
    for (const Device* device : devices()) {
      INFO(odd);
      Tensor x = random_normal(random, ENG_F32, {m, k});
      const Tensor w = random_normal(random, ENG_F32, {n, k});
      x.put(2 * k + 3, 0.0);
      const std::vector<eng_desc> out = {desc(ENG_F32, {m, n})};
      const Tensor without = device->run(ENG_OP_FP8_LINEAR, {x, w, Tensor()}, out, linear())[0];
      x.put(2 * k + 3, double(odd));
      const Tensor with = device->run(ENG_OP_FP8_LINEAR, {x, w, Tensor()}, out, linear())[0];
      const Tensor wide = device->run(ENG_OP_FP8_MATMUL, {x, w}, out, product(ENG_FP8_E5M2, ENG_FP8_E4M3, 0, 1))[0];
      for (int64_t i = 0; i < m * n; ++i) {
        const float here = with.as<float>()[i];
        if (i / n == 2 ? !std::isnan(here) : here != without.as<float>()[i]) FAIL("element " << i);
        if (i / n == 2 && std::isfinite(wide.as<float>()[i])) FAIL("e5m2, element " << i);
      }
    }
  // Zeros give zeros; a tensor of the smallest numbers of f32 does not become infinite.
  for (const Device* device : devices()) {
    const Tensor zero(ENG_F32, {m, k}), w = random_normal(random, ENG_F32, {n, k});
    const Tensor y = device->run(ENG_OP_FP8_LINEAR, {zero, w, Tensor()}, {desc(ENG_F32, {m, n})}, linear())[0];
    for (int64_t i = 0; i < m * n; ++i)
      if (y.as<float>()[i] != 0) FAIL(i);
    Tensor tiny(ENG_F32, {k});
    for (int64_t i = 0; i < k; ++i) tiny.put(i, std::ldexp(1.0, -149 + int(i)));
    const Tensor q = rounded(*device, tiny, ENG_FP8_E4M3);
    for (int64_t i = 0; i < k; ++i)
      if (!(q.as<float>()[i] >= 0 && q.as<float>()[i] <= tiny.as<float>()[k - 1])) FAIL(i);
  }
}

TEST_CASE("in f64 nothing is rounded, so that gradients can be compared with differences") {
  Random random(11);
  const Tensor x = random_normal(random, ENG_F64, {5, 16}), w = random_normal(random, ENG_F64, {16, 16});
  const std::vector<eng_desc> y = {desc(ENG_F64, {5, 16})};
  CHECK(reference().run(ENG_OP_FP8_LINEAR, {x, w, Tensor()}, y, linear())[0].same_bits(
      reference().run(ENG_OP_LINEAR, {x, w, Tensor()}, y)[0]));
}

TEST_CASE("calls of products of 8 bits that do not fit are refused") {
  const Tensor x(ENG_F32, {4, 16}), w(ENG_F32, {16, 16}), other(ENG_BF16, {16, 16});
  const std::vector<eng_desc> y = {desc(ENG_F32, {4, 16})};
  for (const Device* d : {&reference(), static_cast<const Device*>(fast_devices().front().device.get())}) {
    CHECK_NOTHROW(d->run(ENG_OP_FP8_LINEAR, {x, w, Tensor()}, y, linear()));
    CHECK_THROWS_WITH(d->run(ENG_OP_FP8_LINEAR, {x, other, Tensor()}, y, linear()), Catch::Contains("type"));
    CHECK_THROWS_WITH(d->run(ENG_OP_FP8_LINEAR, {x, w, Tensor()}, y, linear(-1)), Catch::Contains("margin must be"));
    CHECK_THROWS_WITH(d->run(ENG_OP_FP8_LINEAR, {x, w, Tensor()}, {desc(ENG_F32, {4, 15})}, linear()),
                      Catch::Contains("y"));
    CHECK_THROWS_WITH(d->run(ENG_OP_FP8_MATMUL, {x, w}, y, product(3, ENG_FP8_E4M3)),
                      Catch::Contains("must be ENG_FP8_E4M3 or ENG_FP8_E5M2"));
    CHECK_THROWS_WITH(d->run(ENG_OP_FP8_MATMUL, {x, w}, y, product(ENG_FP8_E4M3, ENG_FP8_E4M3, 1)),
                      Catch::Contains("inner"));
    const Tensor state(ENG_F32, {3, 4}), narrow(ENG_F32, {3, 2});
    CHECK_THROWS_WITH(d->run(ENG_OP_FP8_LINEAR, {x, w, Tensor(), narrow}, y, linear()), Catch::Contains("(3, 2 + H)"));
    std::vector<eng_attr> rows = product(ENG_FP8_E4M3, ENG_FP8_E4M3, 0, 1);
    rows.push_back(whole("a_row", 3)), rows.push_back(whole("b_row", 0));
    CHECK_THROWS_WITH(d->run(ENG_OP_FP8_MATMUL, {x, w, Tensor(), state}, y, rows), Catch::Contains("0 to 2"));
    CHECK_THROWS_WITH(d->run(ENG_OP_FP8_COLLECT, {state}, {desc(ENG_F32, {3})}, {whole("history", 3)}),
                      Catch::Contains("M * 3"));
  }
}

}  // namespace fp8_kernels
