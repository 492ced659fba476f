// SPDX-License-Identifier: Apache-2.0
// Every k of every kind, against tables written by hand and formulas written a second time.
#include "session/planning/schedule.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "core/base/error.hpp"

using namespace eng;

namespace {

constexpr double kPi = 3.14159265358979323846;

Schedule own(const char* kind, int64_t warmup, int64_t steps) {
  Schedule s;
  s.kind = kind;
  s.warmup = warmup;
  s.peak = 8e-3;
  s.least = 2e-3;
  s.steps = steps;
  return s;
}

void check_table(const Schedule& schedule, const std::vector<double>& expected, double relative = 1e-14) {
  for (size_t k = 1; k <= expected.size(); ++k) {
    INFO("update " << k);
    CHECK(schedule.at(int64_t(k)) == Approx(expected[k - 1]).epsilon(relative).margin(1e-300));
  }
}

}  // namespace

TEST_CASE("constant, linear and cosine after a linear warm-up: tables", "[schedule]") {
  check_table(own("constant", 4, 6), {2e-3, 4e-3, 6e-3, 8e-3, 8e-3, 8e-3});
  check_table(own("constant", 0, 3), {8e-3, 8e-3, 8e-3});
  check_table(own("linear", 2, 8), {4e-3, 8e-3, 7e-3, 6e-3, 5e-3, 4e-3, 3e-3, 2e-3, 2e-3});
  // t = 1/4, 1/2, 3/4: (1 + cos(pi t)) / 2 = (2 + sqrt 2) / 4, 1/2, (2 - sqrt 2) / 4
  const double root = std::sqrt(2.0);
  check_table(own("cosine", 2, 6),
              {4e-3, 8e-3, 2e-3 + 6e-3 * (2 + root) / 4, 5e-3, 2e-3 + 6e-3 * (2 - root) / 4, 2e-3, 2e-3});
}

TEST_CASE("logarithmic warm-up: table", "[schedule]") {
  auto s = own("constant", 7, 9);
  s.log_warmup = true;
  const double l = std::log(8.0);  // ln 2 / ln 8 = 1/3, ln 4 / ln 8 = 2/3
  check_table(s, {8e-3 / 3, 8e-3 * std::log(3.0) / l, 16e-3 / 3, 8e-3 * std::log(5.0) / l, 8e-3 * std::log(6.0) / l,
                  8e-3 * std::log(7.0) / l, 8e-3, 8e-3, 8e-3});
}

TEST_CASE("own kinds at every k of a long run", "[schedule]") {
  for (int64_t warmup : {0, 1, 20, 299, 300, 500}) {
    for (const std::string kind : {"constant", "linear", "cosine"}) {
      for (bool log : {false, true}) {
        auto s = own(kind.c_str(), warmup, 300);
        s.log_warmup = log;
        const Schedule& schedule = s;
        double before = 0;
        for (int64_t k = 1; k <= 300; ++k) {
          INFO("warmup " << warmup << " update " << k);
          double expected;
          if (k <= warmup) {
            expected = 0.008 * (log ? std::log1p(double(k)) / std::log1p(double(warmup)) : double(k) / double(warmup));
          } else if (kind == "constant") {
            expected = 0.008;
          } else {
            const double left = double(300 - k) / double(300 - warmup);  // 1 at the peak, 0 at the end
            const double part = kind == "linear" ? left : std::pow(std::sin(kPi / 2 * left), 2);
            expected = 0.002 + 0.006 * part;
          }
          const double got = schedule.at(k);
          CHECK(got == Approx(expected).epsilon(1e-12));
          CHECK(got > 0);
          CHECK((k <= warmup ? got > before : k == 1 || got <= before));
          before = got;
        }
        // The two fixed points are exact, not just close.
        if (warmup >= 1) CHECK(schedule.at(warmup) == 8e-3);
        if (warmup < 300) CHECK(schedule.at(300) == (kind == "constant" ? 8e-3 : 2e-3));
      }
    }
  }
}

TEST_CASE("DeepSpeed WarmupLR", "[schedule]") {
  Schedule s;
  s.kind = "WarmupLR";
  s.log_warmup = false;
  s.warmup = 4;
  s.least = 1e-4;
  s.peak = 9e-4;
  // Twice the minimum, then f(1), f(2), ...
  check_table(s, {1e-4, 1e-4, 3e-4, 5e-4, 7e-4, 9e-4, 9e-4, 9e-4});
  s.log_warmup = true;
  const double l = std::log(4.0);
  check_table(s, {1e-4, 1e-4, 5e-4, 1e-4 + 8e-4 * std::log(3.0) / l, 9e-4, 9e-4, 9e-4});
  // N is at least 2.
  s.log_warmup = false;
  s.warmup = 0;
  check_table(s, {1e-4, 1e-4, 5e-4, 9e-4, 9e-4});
}

TEST_CASE("DeepSpeed WarmupDecayLR", "[schedule]") {
  Schedule s;
  s.kind = "WarmupDecayLR";
  s.log_warmup = false;
  s.warmup = 4;
  s.steps = 8;
  s.peak = 8e-4;
  // f: 0 2 4 6 | 8 6 4 2 0 0 (x 1e-4), one update late and the first doubled
  check_table(s, {0, 0, 2e-4, 4e-4, 6e-4, 8e-4, 6e-4, 4e-4, 2e-4, 0, 0, 0});
  s.warmup = 1000;
  s.log_warmup = true;
  s.steps = 5000;
  const Schedule& schedule = s;
  // "35 % of the maximum at it = 10 of 1000" as people know it.
  CHECK(schedule.at(12) / 8e-4 == Approx(0.347).margin(5e-4));
  for (int64_t k = 1; k <= 5010; ++k) {
    const int64_t it = k == 1 ? 0 : k - 2;
    double gamma = it < 1000 ? std::log(double(it + 1)) / std::log(1000.0) : double(5000 - it) / 4000.0;
    if (gamma < 0) gamma = 0;
    INFO("update " << k);
    CHECK(schedule.at(k) == Approx(8e-4 * gamma).epsilon(1e-12).margin(1e-300));
  }
}

TEST_CASE("DeepSpeed WarmupCosineLR", "[schedule]") {
  Schedule s;
  s.kind = "WarmupCosineLR";
  s.log_warmup = false;
  s.warmup = 4;
  s.steps = 8;
  s.peak = 1e-3;
  s.warmup_ratio = 0.2;
  s.cosine_ratio = 0.1;
  const double root = std::sqrt(2.0);
  const auto wave = [](double part) { return 1e-3 * (0.1 + 0.9 * part); };
  // Update 1 runs at 0, not at warmup_min_ratio; the peak is skipped: at it = N the wave is at 1/4 already.
  check_table(
      s, {0, 0.2e-3, 0.4e-3, 0.6e-3, 0.8e-3, wave((2 + root) / 4), wave(0.5), wave((2 - root) / 4), 1e-4, 1e-4, 1e-4});
  s = Schedule();
  s.log_warmup = true;
  s.kind = "WarmupCosineLR";
  s.warmup = 100;
  s.steps = 1000;
  s.peak = 3e-4;
  const Schedule& schedule = s;
  CHECK(schedule.at(1) == 0);
  for (int64_t k = 2; k <= 1200; ++k) {
    const int64_t it = k - 2;
    double ratio;
    if (it < 100) {
      ratio = std::log(double(it + 1)) / std::log(100.0);
    } else {
      const double p = it - 99 > 900 ? 1 : double(it - 99) / 900;
      ratio = 1e-4 + (1 - 1e-4) * std::pow(std::cos(kPi / 2 * p), 2);
    }
    INFO("update " << k);
    CHECK(schedule.at(k) == Approx(3e-4 * ratio).epsilon(1e-12).margin(1e-19));
  }
}

TEST_CASE("a schedule one update late is noticed by these tables", "[schedule]") {
  const Schedule schedule = own("cosine", 20, 300);
  for (int64_t k = 1; k < 300; ++k) {
    if (k + 1 == 21) continue;  // around the peak two neighbours may be close, never equal
    CHECK(schedule.at(k + 1) != Approx(schedule.at(k)).epsilon(1e-12));
  }
}

TEST_CASE("updates count from 1", "[schedule]") {
  CHECK_THROWS_AS(own("constant", 1, 10).at(0), Error);
}
