// SPDX-License-Identifier: Apache-2.0
// The ops of the curvature job: the formulas, the same bits on every instruction set with any number of threads
// wherever elements are cut, and the distributions of what is drawn.
#include <catch2/catch.hpp>

#include "curvature_kernels.hpp"

using namespace curvature_test;

namespace {

constexpr int64_t sizes[] = {1, 31, 1000, 4096, 4097, 25021};  // more pieces than threads

// Values that are easily damaged are among them.
Tensor values(int64_t n, uint64_t seed, int32_t dtype = ENG_F32) {
  Random random(seed);
  Tensor t = random_normal(random, dtype, {n}, 0.02);
  const double special[] = {-0.0, 0.0, 1e-42, -1e-40, INFINITY, NAN, 3e38};
  for (int64_t i = 0; i < n && n > 100 && i < 7; ++i) t.put(i * 13 + 5, special[i]);
  return t;
}
Tensor ordinary(int64_t n, uint64_t seed, double std = 1.0) {
  Random random(seed);
  return random_normal(random, ENG_F32, {n}, std);
}
Tensor mixed_classes(int64_t n) {
  Tensor t(ENG_U8, {n});
  for (int64_t i = 0; i < n; ++i) t.put(i, double(i / 37 % 3));
  return t;
}
Tensor scales(int64_t n) {
  Tensor t(ENG_F32, {(n + 4095) / 4096});
  for (int64_t i = 0; i < t.size(); ++i) t.put(i, i % 4 == 2 ? 0.0 : 0.5 + double(i));
  return t;
}
Tensors moments(int64_t n) {
  return {ordinary(n, 9), ordinary(n, 10)};
}

// All that the ops with elements give for tensors that begin at an element of a parameter.
Tensors run_all(const Device& d, int64_t n, Drawing by) {
  Tensors out;
  for (double rate : {1.0, 0.3, 0.0}) {
    by.rate = rate;
    out.push_back(perturb(d, values(n, 1), 1e-3, by));
    out.push_back(perturb(d, values(n, 1), -1e-3, by, 0.5));
    for (Tensor& t : hutchinson(d, ordinary(n, 2), ordinary(n, 3), moments(n), 500.0, 0.25, by)) out.push_back(t);
  }
  for (int wanted : {0, 2, 7})
    for (double sigma : {0.0, 1e-3})
      out.push_back(noise(d, values(n, 4), mixed_classes(n), scales(n), sigma, wanted, by));
  for (Tensor& t : fisher(d, ordinary(n, 5), moments(n), 3.0, 0.125)) out.push_back(t);
  out.push_back(d.run(COPY, {values(n, 6)}, {values(n, 6).d})[0]);
  return out;
}

void check_same(const Tensors& ours, const Tensors& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (size_t k = 0; k < ours.size(); ++k) {
    INFO("output " << k);
    CHECK(ours[k].same_bits(theirs[k]));
  }
}

}  // namespace

TEST_CASE("curvature's ops have the same bits on every instruction set and number of threads") {
  for (int64_t n : sizes)
    for (int64_t first : {int64_t{0}, int64_t{4096} * 7, (int64_t{1} << 39) + 4096}) {
      Drawing by;
      by.first = first, by.counter = 5;
      const Tensors theirs = run_all(plain(), n, by);
      for (const std::string& isa : isas())
        for (int64_t threads : {1, 2, 5}) {
          INFO(isa << ", " << threads << " threads, " << n << " elements from " << first);
          check_same(run_all(Fast(isa, threads), n, by), theirs);
        }
    }
}

TEST_CASE("what an element gets does not depend on where a parameter is cut") {
  constexpr int64_t n = 40000;
  Drawing by;
  by.rate = 0.6;
  const Tensor base = values(n, 1), classes = mixed_classes(n), scale = scales(n);
  for (const std::string& isa : isas()) {
    const Fast d(isa, 2);
    const Tensor whole_p = perturb(d, base, 0.01, by), whole_n = noise(d, base, classes, scale, 0.01, 1, by);
    for (int64_t cut : {4096, 12288}) {
      Drawing second = by;
      second.first = cut;
      CHECK(perturb(d, part(base, 0, cut), 0.01, by).same_bits(part(whole_p, 0, cut)));
      CHECK(perturb(d, part(base, cut, n - cut), 0.01, second).same_bits(part(whole_p, cut, n - cut)));
      CHECK(noise(d, part(base, cut, n - cut), part(classes, cut, n - cut),
                  part(scale, cut / 4096, scale.size() - cut / 4096), 0.01, 1, second)
                .same_bits(part(whole_n, cut, n - cut)));
      second.first = 0;  // the twin: with another first element it has other values
      CHECK(!perturb(d, part(base, cut, n - cut), 0.01, second).same_bits(part(whole_p, cut, n - cut)));
    }
  }
}

TEST_CASE("a direction is +1 or -1, half of each, and independent between elements, probes, parameters and seeds") {
  constexpr int64_t n = 1 << 18;
  const double spread = 4.5 * std::sqrt(double(n));  // of a sum of n signs; 4.5 standard deviations
  const Fast d("auto", 2);
  const Tensor zero = constant(ENG_F32, {n}, 0.0);
  const auto drawn = [&](int64_t seed, int64_t stream, int64_t counter) {
    Drawing by;
    by.seed = seed, by.stream = stream, by.counter = counter;
    return perturb(d, zero, 1.0, by);
  };
  const Tensor v = drawn(1, 0, 0);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    REQUIRE(std::fabs(v.at(i)) == 1.0);
    sum += v.at(i);
  }
  CHECK(std::fabs(sum) < spread);
  for (int64_t lag : {1, 2, 8, 31, 32, 128, 1024, 4096}) {
    double product = 0;
    for (int64_t i = 0; i + lag < n; ++i) product += v.at(i) * v.at(i + lag);
    INFO("lag " << lag);
    CHECK(std::fabs(product) < spread);
  }
  for (const Tensor& w : {drawn(1, 0, 1), drawn(1, 1, 0), drawn(2, 0, 0)}) {
    double product = 0;
    for (int64_t i = 0; i < n; ++i) product += v.at(i) * w.at(i);
    CHECK(std::fabs(product) < spread);
  }
  CHECK(drawn(1, 0, 0).same_bits(v));
}

TEST_CASE("a sample has the elements that its rate says, the same for every probe") {
  constexpr int64_t n = 1 << 18;
  const Fast d("auto", 2);
  const Tensor zero = constant(ENG_F32, {n}, 0.0);
  Drawing by;
  by.rate = 0.3;
  const auto members = [&](const Tensor& p) {
    std::vector<bool> in;
    for (int64_t i = 0; i < n; ++i) in.push_back(p.at(i) != 0);
    return in;
  };
  const auto size = [](const std::vector<bool>& in) { return double(std::count(in.begin(), in.end(), true)); };
  const auto first = members(perturb(d, zero, 1.0, by));
  CHECK(std::fabs(size(first) - 0.3 * n) < 4.5 * std::sqrt(0.21 * n));
  CHECK(std::fabs(size(members(perturb(d, zero, 1.0, by, 0.5))) - 0.15 * n) < 4.5 * std::sqrt(0.15 * n));
  by.counter = 1;
  CHECK(members(perturb(d, zero, 1.0, by)) == first);
  by.stream = 4;
  CHECK(members(perturb(d, zero, 1.0, by)) != first);
}

TEST_CASE("noise is standard normal") {
  constexpr int64_t n = 1 << 20;
  const Fast d("auto", 2);
  const Tensor z = noise(d, constant(ENG_F32, {n}, 0.0), constant(ENG_U8, {n}, 1), constant(ENG_F32, {n / 4096}, 1.0),
                         1.0, 1, Drawing{});
  double sum[5] = {}, below = 0, neighbours = 0, largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    double power = 1;
    for (double& s : sum) s += power, power *= z.at(i);
    below += z.at(i) < -1.0 ? 1 : 0;
    neighbours += i + 8 < n ? z.at(i) * z.at(i + 8) : 0;  // the two that come of one pair of words
    largest = std::max(largest, std::fabs(z.at(i)));
  }
  const double root = std::sqrt(double(n));
  CHECK(std::fabs(sum[1] / n) < 4.5 / root);
  CHECK(std::fabs(sum[2] / n - 1) < 4.5 * std::sqrt(2.0) / root);
  CHECK(std::fabs(sum[3] / n) < 4.5 * std::sqrt(15.0) / root);
  CHECK(std::fabs(sum[4] / n - 3) < 4.5 * std::sqrt(96.0) / root);
  CHECK(std::fabs(below / n - 0.158655254) < 4.5 * 0.366 / root);
  CHECK(std::fabs(neighbours / n) < 4.5 / root);
  CHECK(largest > 4.4);
  CHECK(largest < 6.8);
}

TEST_CASE("a normal is that of Box and Muller") {
  // Words of Philox as engine/ops.h and the plugin's ops.hpp number them, and the C library's functions.
  constexpr int64_t n = 4096;
  const Tensor one = constant(ENG_F64, {1}, 1.0);
  const Tensor z = noise(plain(), constant(ENG_F64, {n}, 0.0), constant(ENG_U8, {n}, 0), one, 1.0, 0, Drawing{});
  const auto philox = [](uint32_t block) {
    uint32_t c[4] = {block, 0, 0, 3 + (3u << 28)}, k[2] = {42, 0};
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
      const uint32_t next[4] = {uint32_t(b >> 32) ^ c[1] ^ k[0], uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ k[1],
                                uint32_t(a)};
      std::copy(next, next + 4, c);
      k[0] += 0x9E3779B9, k[1] += 0xBB67AE85;
    }
    return std::vector<uint32_t>(c, c + 4);
  };
  double worst = 0;
  for (uint32_t e = 0; e < n; ++e) {
    const auto w = philox(e / 32 * 8 + e % 8);
    const size_t at = e % 32 < 16 ? 0 : 2;
    const double radius = std::sqrt(-2 * std::log((w[at] + 0.5) * 0x1p-32));
    const double angle = 2 * M_PI * ((w[at + 1] + 0.5) * 0x1p-32);
    const double want = radius * (e % 16 < 8 ? std::cos(angle) : std::sin(angle));
    worst = std::max(worst, std::fabs(z.at(e) - want));
  }
  CHECK(worst < 1e-9);
}

TEST_CASE("noise of 0 and other classes keep every bit") {
  constexpr int64_t n = 20000;
  const Tensor base = values(n, 4), classes = mixed_classes(n), one = constant(ENG_F32, {5}, 1.0);
  for (const std::string& isa : isas()) {
    const Fast d(isa, 2);
    CHECK(noise(d, base, classes, one, 0.0, 1, Drawing{}).same_bits(base));
    CHECK(noise(d, base, classes, one, 1.0, 9, Drawing{}).same_bits(base));
    CHECK(noise(d, base, classes, constant(ENG_F32, {5}, 0.0), 1.0, 1, Drawing{}).same_bits(base));
    const Tensor moved = noise(d, base, classes, one, 1e-2, 1, Drawing{});
    int64_t others = 0, changed = 0;
    for (int64_t i = 0; i < n; ++i) {
      const bool same = std::memcmp(base.as<float>() + i, moved.as<float>() + i, 4) == 0;
      (classes.at(i) == 1 ? changed : others) += same ? 0 : 1;
    }
    CHECK(others == 0);
    CHECK(changed > n / 3 - 50);
    CHECK(d.run(COPY, {base}, {base.d})[0].same_bits(base));
  }
}

TEST_CASE("running moments are mean and sum of squares of the values") {
  constexpr int64_t n = 5000;
  constexpr int probes = 9;
  const Fast d("auto", 2);
  Tensors m = {constant(ENG_F32, {n}, 0.0), constant(ENG_F32, {n}, 0.0)}, f = m;
  std::vector<std::vector<double>> x(n), squares(n);
  for (int k = 0; k < probes; ++k) {
    Drawing by;
    by.counter = k;
    const Tensor plus = ordinary(n, 20 + uint64_t(k)), minus = ordinary(n, 40 + uint64_t(k));
    const Tensor v = perturb(d, constant(ENG_F32, {n}, 0.0), 1.0, by);
    m = hutchinson(d, plus, minus, m, 0.5, 1.0 / (k + 1), by);
    f = fisher(d, plus, f, 2.0, 1.0 / (k + 1));
    for (int64_t i = 0; i < n; ++i) {
      x[size_t(i)].push_back(v.at(i) * (plus.at(i) - minus.at(i)) * 0.5);
      squares[size_t(i)].push_back(2.0 * plus.at(i) * plus.at(i));
    }
  }
  const auto worst = [&](const Tensors& ours, const std::vector<std::vector<double>>& all) {
    double most = 0;
    for (int64_t i = 0; i < n; ++i) {
      double mean = 0, m2 = 0;
      for (double value : all[size_t(i)]) mean += value / probes;
      for (double value : all[size_t(i)]) m2 += (value - mean) * (value - mean);
      most = std::max(
          {most, std::fabs(ours[0].at(i) - mean) / (1 + std::fabs(mean)), std::fabs(ours[1].at(i) - m2) / (1 + m2)});
    }
    return most;
  };
  CHECK(worst(m, x) < 3e-6);
  CHECK(worst(f, squares) < 3e-6);
  m[0].put(7, m[0].at(7) + 1e-3);  // the twin
  CHECK(worst(m, x) > 1e-4);
}

TEST_CASE("counts of zeros and small values, in every type, added to what was there") {
  Random random(3);
  for (int32_t dtype : {ENG_F32, ENG_BF16, ENG_F16})
    for (const Dims& dims : {Dims{1, 1}, Dims{3, 5, 7}, Dims{50, 64}, Dims{200, 700}}) {
      Tensor x = random_normal(random, dtype, dims);
      for (int64_t i = 0; i < x.size(); ++i)
        if (pick(random, 0, 3) == 0) x.put(i, i % 5 == 0 ? -0.0 : i % 7 == 0 ? NAN : 0.0);
      const int64_t units = dims.back();
      Tensor into(ENG_I64, {2, units});
      for (int64_t i = 0; i < into.size(); ++i) into.put(i, double(i * 3));
      Tensor want = into;
      for (int64_t i = 0; i < x.size(); ++i) {
        want.put(i % units, want.at(i % units) + (x.at(i) == 0 ? 1 : 0));
        const int64_t small = units + i % units;
        want.put(small, want.at(small) + (std::fabs(x.at(i)) <= 0.25 ? 1 : 0));
      }
      CHECK(count(plain(), x, into, 0.25).same_bits(want));
      for (const std::string& isa : isas())
        for (int64_t threads : {1, 3}) CHECK(count(Fast(isa, threads), x, into, 0.25).same_bits(want));
    }
}

TEST_CASE("calls that curvature's ops cannot serve are refused with the reason") {
  const Fast d("auto", 1);
  Drawing by;
  by.first = 100;
  CHECK_THROWS_WITH(perturb(d, values(8, 1), 1.0, by), Catch::Contains("first must be a multiple of 4,096"));
  by.first = 0, by.stream = int64_t{1} << 28;
  CHECK_THROWS_WITH(perturb(d, values(8, 1), 1.0, by), Catch::Contains("below 2^28"));
  CHECK_THROWS_WITH(perturb(d, values(8, 1, ENG_F64), 1.0, Drawing{}), Catch::Contains("elements must be f32"));
  CHECK_THROWS_WITH(count(d, Tensor(ENG_F32, {4, 3}), Tensor(ENG_I64, {2, 4}), 0.0),
                    Catch::Contains("(2, units of x)"));
  CHECK_THROWS_WITH(noise(d, values(8, 1), Tensor(ENG_U8, {7}), Tensor(ENG_F32, {1}), 1.0, 1, Drawing{}),
                    Catch::Contains("classes must be u8"));
}
