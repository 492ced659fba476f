// SPDX-License-Identifier: Apache-2.0
#include "plugins/curvature/maths/statistics.hpp"

#include "golden.hpp"

using namespace curvature::maths;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using curvature::test::golden;
using curvature::test::refused;
using Doubles = std::vector<double>;

namespace {
const double not_a_number = std::nan(""), infinite = INFINITY;

Moments moments_of(const Doubles& samples) {
  Moments all;
  for (const double sample : samples) all.add(sample);
  return all;
}
}  // namespace

TEST_CASE("quantiles of Student's t are SciPy's") {
  const auto cases = golden("statistics", "t");
  CHECK(cases.size() == 13 * 15);
  for (const auto& c : cases) {
    const double expected = c.at("t"), found = t_quantile(c.at("probability"), c.at("degrees"));
    INFO(c.dump());
    CHECK(std::abs(found - expected) <= 1e-10 * std::abs(expected));
  }
}

TEST_CASE("mean, variance and confidence interval are SciPy's") {
  for (const auto& c : golden("statistics", "intervals")) {
    const auto samples = c.at("samples").get<Doubles>();
    const Moments all = moments_of(samples);
    const Interval found = mean_interval(all, c.at("level"));
    const double mean = c.at("mean"), low = c.at("low"), high = c.at("high"), variance = c.at("variance");
    INFO(samples.size() << " samples, level " << c.at("level"));
    CHECK(found.mean == Approx(mean).epsilon(1e-14));
    CHECK(all.variance() == Approx(variance).epsilon(1e-9));  // samples of -1e6 +- 2 are rounded to 1e-6
    CHECK(found.high - found.mean == Approx((high - low) / 2).epsilon(1e-9));
    CHECK(found.mean - found.low == Approx((high - low) / 2).epsilon(1e-9));
    CHECK(found.mean + half_width_factor(samples.size(), c.at("level")) * std::sqrt(all.variance()) == found.high);
  }
}

TEST_CASE("moments are those of a sum in two passes where one pass of squares loses all digits") {
  const Moments all = moments_of({1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16});
  CHECK(all.mean == 1e9 + 10);
  CHECK(all.variance() == 30);
}

TEST_CASE("merged moments are those of all samples") {
  const Doubles samples{3, -1, 4, 1, -5, 9, 2, 6};
  const Moments all = moments_of(samples);
  for (size_t cut = 0; cut <= samples.size(); ++cut) {
    const auto at = samples.begin() + static_cast<std::ptrdiff_t>(cut);
    Moments merged = moments_of({samples.begin(), at});
    merged.merge(moments_of({at, samples.end()}));
    CHECK(merged.n == all.n);
    CHECK(merged.mean == Approx(all.mean).epsilon(1e-15));
    CHECK(merged.squares == Approx(all.squares).epsilon(1e-14));
  }
  Moments none;
  none.merge({});
  CHECK(none.n == 0);
  CHECK(none.mean == 0);
}

TEST_CASE("an interval of equal samples has no width") {
  const Interval found = mean_interval(moments_of({0.1, 0.1, 0.1}), 0.95);
  CHECK(found.low == 0.1);
  CHECK(found.high == 0.1);
}

TEST_CASE("intervals contain the true mean as often as they say") {
  uint64_t state = 1;
  const auto uniform = [&] {  // SplitMix64
    uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return static_cast<double>((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
  };
  int inside = 0;
  const int repetitions = 4000;
  for (int r = 0; r < repetitions; ++r) {
    Moments all;
    for (int k = 0; k < 6; ++k)
      all.add(2 + std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()));
    const Interval found = mean_interval(all, 0.9);
    inside += found.low <= 2 && 2 <= found.high;
  }
  // 0.9 +- four standard deviations. Normal quantiles in place of Student's give 0.84.
  CHECK(inside > repetitions * 0.881);
  CHECK(inside < repetitions * 0.919);
}

TEST_CASE("quantiles are NumPy's, bit for bit") {
  for (const auto& c : golden("statistics", "quantiles"))
    CHECK(quantiles(c.at("values").get<Doubles>(), c.at("at").get<Doubles>()) == c.at("quantiles").get<Doubles>());
  CHECK(quantiles({1, 2}, {}).empty());
}

TEST_CASE("the AUC is scikit-learn's") {
  for (const auto& c : golden("statistics", "auc")) {
    const auto positives = c.at("positives").get<Doubles>(), negatives = c.at("negatives").get<Doubles>();
    const double expected = c.at("auc");
    CHECK(auc(positives, negatives) == Approx(expected).epsilon(1e-15));
    CHECK(auc(negatives, positives) == Approx(1 - expected).margin(1e-15));
  }
  CHECK(auc(Doubles{2, 2}, Doubles{2, 2, 2}) == 0.5);
  CHECK(auc(Doubles{3}, Doubles{1, 2}) == 1);
}

TEST_CASE("statistics refuse what they cannot use, and say why") {
  const Doubles some{1, 2}, bad{1, not_a_number};
  CHECK_THAT(refused([] { moments_of({1}).variance(); }), Contains("at least 2 samples, and there is 1"));
  CHECK_THAT(refused([] { Moments().variance(); }), Contains("there are none"));
  CHECK_THAT(refused([] { mean_interval(moments_of({1}), 0.95); }), Contains("at least 2 samples"));
  CHECK_THAT(refused([] { mean_interval(moments_of({1, not_a_number}), 0.95); }), Contains("is nan"));
  CHECK_THAT(refused([] { mean_interval(moments_of({1, infinite}), 0.95); }), Contains("a mean and its variance is"));
  for (const double level : {0.0, 1.0, -1.0, 95.0, not_a_number})
    CHECK_THAT(refused([&] { half_width_factor(5, level); }), Contains("between 0 and 1, such as 0.95"));
  for (const double p : {0.0, 1.0, -0.5, 2.0, not_a_number})
    CHECK_THAT(refused([&] { t_quantile(p, 3); }), Contains("between 0 and 1"));
  for (const double degrees : {0.0, -1.0, not_a_number})
    CHECK_THAT(refused([&] { t_quantile(0.5, degrees); }), Contains("more than 0"));
  CHECK_THAT(refused([&] { quantiles({}, some); }), Contains("at least one value"));
  CHECK_THAT(refused([&] { quantiles(bad, Doubles{0.5}); }), StartsWith("value 1 of the quantiles' input is nan"));
  for (const double place : {-0.01, 1.01, not_a_number})
    CHECK_THAT(refused([&] { quantiles(some, Doubles{place}); }), Contains("must lie in 0 .. 1"));
  CHECK_THAT(refused([&] { auc(Doubles{}, some); }), Contains("no positive ones"));
  CHECK_THAT(refused([&] { auc(some, Doubles{}); }), Contains("no negative ones"));
  CHECK_THAT(refused([&] { auc(some, bad); }), StartsWith("value 1 of the negatives of an AUC is nan"));
  CHECK_THAT(refused([&] { auc(bad, some); }), StartsWith("value 1 of the positives of an AUC is nan"));
}
