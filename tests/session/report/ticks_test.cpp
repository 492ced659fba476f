// SPDX-License-Identifier: Apache-2.0
// The round numbers of all charts.
#include "charts/ticks.hpp"

#include <catch2/catch.hpp>

#include <limits>

using charts::round_numbers;
using Numbers = std::vector<double>;

TEST_CASE("ticks: multiples of 1, 2 or 5 times a power of ten, ends included", "[page]") {
  CHECK(round_numbers(0, 1, 5) == Numbers{0, 0.2, 0.4, 0.2 * 3, 0.8, 1});
  CHECK(round_numbers(-3, 7, 5) == Numbers{-2, 0, 2, 4, 6});
  CHECK(round_numbers(90, 1210, 6) == Numbers{200, 400, 600, 800, 1000, 1200});
  CHECK(round_numbers(0.3, 2.1, 4) == Numbers{0.5, 1, 1.5, 2});
  CHECK_FALSE(std::signbit(round_numbers(-0.5, 1.5, 2).at(0)));  // 0, not -0
}

TEST_CASE("ticks: whole numbers alone", "[page]") {
  CHECK(round_numbers(0.5, 3.5, 6) == Numbers{0.5, 1, 1.5, 2, 2.5, 3, 3.5});
  CHECK(round_numbers(0.5, 3.5, 6, true) == Numbers{1, 2, 3});
  CHECK(round_numbers(1e6 - 1, 1e6 + 1, 6, true) == Numbers{1e6 - 1, 1e6, 1e6 + 1});
  CHECK(round_numbers(0, 100, 6, true) == round_numbers(0, 100, 6));
}

TEST_CASE("ticks: few, and each above the one before, in the narrowest and the widest range", "[page]") {
  const double most = charts::drawable(std::numeric_limits<double>::infinity());
  const double pairs[][2] = {{1, std::nextafter(1, 2)}, {-most, most}, {5e-324, 1e-320}, {1e300, 1.1e300}};
  for (const auto& [low, high] : pairs) {
    const Numbers ticks = round_numbers(low, high, 5);
    INFO(low << " " << high);
    CHECK(ticks.size() <= 15);
    for (size_t k = 0; k < ticks.size(); ++k) {
      CHECK(std::isfinite(ticks[k]));
      if (k) CHECK(ticks[k] > ticks[k - 1]);
    }
  }
}
