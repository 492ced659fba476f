// SPDX-License-Identifier: Apache-2.0
// The input of the mathematics in this folder: real points in memory, all finite. Every function here throws
// std::invalid_argument for input it cannot use; the text says what, where, and what to change. Nothing here knows the
// ABI: the plugin turns the exception into a status, with the key of the configuration before it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace curvature::maths {

// A view of n points of d columns each, row by row: values[i * d + j] is column j of point i. The caller keeps the
// values alive. n may be 0; d is at least 1.
class Points {
 public:
  // Throws unless `columns` is at least 1 and divides the number of values, and all values are finite. For a value that
  // is not, the text names its point and column.
  Points(std::span<const double> values, size_t columns);

  size_t n() const { return n_; }
  size_t d() const { return d_; }
  std::span<const double> values() const { return values_; }
  const double* operator[](size_t i) const { return values_.data() + i * d_; }

 private:
  std::span<const double> values_;
  size_t n_, d_;
};

// The squared Euclidean distance of two points of d columns, summed in the order of the columns.
inline double squared_distance(const double* a, const double* b, size_t d) {
  double sum = 0;
  for (size_t j = 0; j < d; ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum;
}

// Throws unless all values are finite. `name` says in the text what they are.
void require_finite(std::string_view name, std::span<const double> values);

}  // namespace curvature::maths
