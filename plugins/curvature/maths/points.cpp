// SPDX-License-Identifier: Apache-2.0
#include "points.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace curvature::maths {

namespace {
// The index of the first value that is not finite; the number of values if all are.
size_t first_not_finite(std::span<const double> values) {
  return static_cast<size_t>(std::find_if(values.begin(), values.end(), [](double v) { return !std::isfinite(v); }) -
                             values.begin());
}
}  // namespace

Points::Points(std::span<const double> values, size_t columns) : values_(values), n_(0), d_(columns) {
  if (columns == 0) throw std::invalid_argument("points need at least one column");
  if (values.size() % columns != 0)
    throw std::invalid_argument(std::to_string(values.size()) + " values are no whole number of points of " +
                                std::to_string(columns) + " columns");
  if (const size_t at = first_not_finite(values); at < values.size())
    throw std::invalid_argument("column " + std::to_string(at % columns) + " of point " + std::to_string(at / columns) +
                                " is " + std::to_string(values[at]) + ": leave the point out, or make it finite");
  n_ = values.size() / columns;
}

void require_finite(std::string_view name, std::span<const double> values) {
  if (const size_t at = first_not_finite(values); at < values.size())
    throw std::invalid_argument("value " + std::to_string(at) + " of " + std::string(name) + " is " +
                                std::to_string(values[at]) + ": leave it out, or make it finite");
}

}  // namespace curvature::maths
