// SPDX-License-Identifier: Apache-2.0
// The numbers on the axes of charts.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace charts {

// The value, or the nearest one of those of which any two have a finite difference.
inline double drawable(double value) {
  return std::clamp(value, -1e300, 1e300);
}

// Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, ascending, about `wanted` of them; `whole`: whole
// numbers only. `low` is less than `high`, and their difference is finite.
inline std::vector<double> round_numbers(double low, double high, int wanted, bool whole = false) {
  const double span = high - low, raw = span / wanted, unit = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * unit;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * unit >= raw) step = factor * unit;
  if (whole) step = std::max(1.0, std::ceil(step));
  const double first = std::ceil(low / step);
  std::vector<double> out;
  // If neighbouring numbers are further apart than a step, some multiples are equal.
  for (int k = 0; k < 3 * wanted && (first + k) * step <= high + span * 1e-9; ++k)
    if (const double at = (first + k) * step; out.empty() || at > out.back()) out.push_back(at == 0 ? 0 : at);
  return out;
}

}  // namespace charts
