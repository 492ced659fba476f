// SPDX-License-Identifier: Apache-2.0
// Dropout: the reference against the words of ops.h, the fast kernels against the reference, and what it promises.
#include "fast_elem.hpp"

using namespace kernels_test;

namespace {

struct Use {
  int64_t step = 3, micro = 0, seed = 42, stream = 7;
  double p = 0.25;
  int64_t rank = 0, world = 0;
};

Tensor counters_of(const Use& u) {
  return Tensor(ENG_I64, {ENG_C_COUNT}, {double(u.step), 0, double(u.micro), 0, double(u.rank), double(u.world)});
}
std::vector<eng_attr> attrs_of(const Use& u) {
  return {real("p", u.p), whole("seed", u.seed), whole("stream", u.stream)};
}
Case case_of(const Tensor& x, const Use& u) {
  return {ENG_OP_DROPOUT, {x, counters_of(u)}, {x.d}, attrs_of(u), {{0, 0}}};
}
Tensor ones(const Dims& dims) {
  Tensor t(ENG_F32, dims);
  for (int64_t i = 0; i < t.size(); ++i) t.put(i, 1);
  return t;
}
Tensor drop(const Tensor& x, const Use& u) {
  return reference().run(ENG_OP_DROPOUT, {x, counters_of(u)}, {x.d}, attrs_of(u))[0];
}

}  // namespace

TEST_CASE("fast dropout has the reference's bits") {
  Random random(41);
  for (const Dims& shape : std::vector<Dims>{{1, 1}, {3, 63}, {2, 64}, {5, 65}, {2, 3, 50}, {7, 40, 201}})
    for (double p : {0.0, 0.1, 0.5, 0.999})
      check_exact(case_of(random_normal(random, ENG_F32, shape), {1234567, 2, -5, 99, p}));
  // Another key, step, micro-batch or stream is another mask.
  const Tensor x = ones({2, 300});
  const Tensor base = drop(x, {});
  for (const Use& u : {Use{4, 0, 42, 7, 0.25}, Use{3, 1, 42, 7, 0.25}, Use{3, 0, 43, 7, 0.25}, Use{3, 0, 42, 8, 0.25}})
    CHECK(!drop(x, u).same_bits(base));
  CHECK(drop(x, {}).same_bits(base));
}

TEST_CASE("dropout drops p of all elements, keeps the mean, and drops neighbours independently") {
  for (double p : {0.1, 0.5}) {
    Use u;
    u.p = p;
    const int64_t B = 16, n = 5000;
    const Tensor y = drop(ones({B, n}), u);
    int64_t dropped = 0, both = 0, both_rows = 0;
    for (int64_t i = 0; i < B * n; ++i) {
      const bool zero = y.at(i) == 0;
      if (!zero) REQUIRE(y.at(i) == double(float(1 / (1 - p))));
      dropped += zero;
      both += zero && i % n && y.at(i - 1) == 0;
      both_rows += zero && i >= n && y.at(i - n) == 0;
    }
    const double N = double(B * n), deviation = std::sqrt(p * (1 - p) / N);
    CHECK(std::fabs(double(dropped) / N - p) < 4 * deviation);
    CHECK(std::fabs(double(both) / N - p * p) < 4 * p / std::sqrt(N));
    CHECK(std::fabs(double(both_rows) / N * double(B) / double(B - 1) - p * p) < 4 * p / std::sqrt(N));
  }
}

TEST_CASE("a mask belongs to the sequence, however the batch is cut") {
  Random random(42);
  const Tensor x = random_normal(random, ENG_F32, {8, 3, 77});
  Use u;
  const Tensor whole_batch = drop(x, u);
  for (u.micro = 0; u.micro < 4; ++u.micro) {
    Tensor part(ENG_F32, {2, 3, 77});
    const size_t bytes = part.memory.size();
    std::memcpy(part.memory.data(), x.memory.data() + size_t(u.micro) * bytes, bytes);
    const Tensor y = drop(part, u);
    CHECK(std::memcmp(y.memory.data(), whole_batch.memory.data() + size_t(u.micro) * bytes, bytes) == 0);
  }
}

TEST_CASE("a mask belongs to the sequence, however many ranks share the batch") {
  Random random(43);
  const int64_t A = 2, W = 3, B = 2;
  const Tensor x = random_normal(random, ENG_F32, {A * W * B, 5, 77});
  const Tensor whole_batch = drop(x, {});
  Tensor part(ENG_F32, {B, 5, 77});
  const size_t bytes = part.memory.size();
  for (int64_t a = 0; a < A; ++a)
    for (int64_t r = 0; r < W; ++r) {
      const size_t at = size_t(a * W + r) * bytes;  // sequence (a * W + r) * B + b of the step
      std::memcpy(part.memory.data(), x.memory.data() + at, bytes);
      const Use u{3, a, 42, 7, 0.25, r, W};
      CHECK(std::memcmp(drop(part, u).memory.data(), whole_batch.memory.data() + at, bytes) == 0);
      check_exact(case_of(part, u));
      // A rank that forgot who it is would be seen.
      if (r > 0)
        CHECK(std::memcmp(drop(part, {3, a, 42, 7, 0.25, 0, W}).memory.data(), whole_batch.memory.data() + at, bytes) !=
              0);
    }
}

TEST_CASE("dropout refuses what it cannot mean") {
  const Tensor x = ones({2, 3});
  for (const Device* d : {&reference(), static_cast<const Device*>(fast_devices()[0].device.get())}) {
    const auto run = [&](const Use& u) { d->run(ENG_OP_DROPOUT, {x, counters_of(u)}, {x.d}, attrs_of(u)); };
    CHECK_THROWS_WITH(run({3, 0, 42, 7, 1.0}), Catch::Contains("below 1"));
    CHECK_THROWS_WITH(run({3, 0, 42, 0, 0.5}), Catch::Contains("stream must be above 0"));
    CHECK_THROWS_WITH(d->run(ENG_OP_DROPOUT, {x, Tensor(ENG_I64, {3})}, {x.d}, attrs_of({})),
                      Catch::Contains("counters"));
  }
}
