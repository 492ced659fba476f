// SPDX-License-Identifier: Apache-2.0
#include "pca.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace curvature::maths {

namespace {

// Makes the entry (p, q) of the symmetric matrix 0 by a rotation of both columns, and rotates the rows of `vectors`
// too.
void rotate(std::vector<double>& a, std::vector<double>& vectors, size_t d, size_t p, size_t q) {
  const double entry = a[p * d + q], slope = (a[q * d + q] - a[p * d + p]) / (2 * entry);
  const double t = std::copysign(1.0, slope) / (std::abs(slope) + std::hypot(slope, 1.0));
  const double c = 1 / std::hypot(t, 1.0), s = t * c;
  const auto turn = [&](double& x, double& y) {
    const double before = x;
    x = c * before - s * y;
    y = s * before + c * y;
  };
  for (size_t k = 0; k < d; ++k) {
    turn(vectors[p * d + k], vectors[q * d + k]);
    if (k == p || k == q) continue;
    turn(a[k * d + p], a[k * d + q]);
    a[p * d + k] = a[k * d + p];
    a[q * d + k] = a[k * d + q];
  }
  a[p * d + p] -= t * entry;
  a[q * d + q] += t * entry;
  a[p * d + q] = a[q * d + p] = 0;
}

}  // namespace

EigenPairs symmetric_eigen(std::vector<double> matrix, size_t d) {
  if (d == 0 || matrix.size() != d * d)
    throw std::invalid_argument("a matrix of " + std::to_string(d) + " x " + std::to_string(d) + " has " +
                                std::to_string(matrix.size()) + " values");
  require_finite("a symmetric matrix", matrix);
  std::vector<double> vectors(d * d);
  for (size_t k = 0; k < d; ++k) vectors[k * d + k] = 1;
  const double eps = std::numeric_limits<double>::epsilon();
  double norm = 0;
  for (const double entry : matrix) norm = std::max(norm, std::abs(entry));
  for (int sweep = 0, rotations = 1; rotations > 0; ++sweep) {
    if (sweep == 100) throw std::runtime_error("Jacobi's rotations did not converge in 100 sweeps");
    rotations = 0;
    for (size_t p = 0; p < d; ++p)
      for (size_t q = p + 1; q < d; ++q) {
        const double entry = std::abs(matrix[p * d + q]);
        // Small beside both diagonal entries, or beside what rounding leaves of the largest entry.
        if (entry <= eps * std::sqrt(std::abs(matrix[p * d + p])) * std::sqrt(std::abs(matrix[q * d + q])) ||
            entry <= eps * eps * norm)
          continue;
        rotate(matrix, vectors, d, p, q);
        ++rotations;
      }
  }
  std::vector<size_t> order(d);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return matrix[a * d + a] > matrix[b * d + b]; });
  EigenPairs found;
  for (const size_t k : order) {
    found.values.push_back(matrix[k * d + k]);
    found.vectors.insert(found.vectors.end(), &vectors[k * d], &vectors[k * d] + d);
  }
  return found;
}

Components principal_components(const Points& points) {
  const size_t n = points.n(), d = points.d();
  Components found{std::vector<double>(n * 2), std::vector<double>(2 * d), {}, {}};
  std::vector<double> mean(d), covariance(d * d);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < d; ++j) mean[j] += (points[i][j] - mean[j]) / static_cast<double>(i + 1);
  const auto centred = [&](size_t i, size_t j) { return points[i][j] - mean[j]; };
  const double divisor = n > 1 ? static_cast<double>(n - 1) : 1;
  for (size_t p = 0; p < d; ++p)
    for (size_t q = p; q < d; ++q) {
      double sum = 0;
      for (size_t i = 0; i < n; ++i) sum += centred(i, p) * centred(i, q);
      if (!std::isfinite(sum))
        throw std::invalid_argument("the variance of columns " + std::to_string(p) + " and " + std::to_string(q) +
                                    " is too large for f64: divide the values of these columns by a constant");
      covariance[p * d + q] = covariance[q * d + p] = sum / divisor;
    }
  const EigenPairs eigen = symmetric_eigen(covariance, d);
  double total = 0;
  for (size_t j = 0; j < d; ++j) total += covariance[j * d + j];
  for (size_t k = 0; k < std::min<size_t>(d, 2); ++k) {
    double* const direction = &found.directions[k * d];
    std::copy_n(&eigen.vectors[k * d], d, direction);
    const double largest =
        *std::max_element(direction, direction + d, [](double a, double b) { return std::abs(a) < std::abs(b); });
    if (largest < 0) std::transform(direction, direction + d, direction, std::negate<>());
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < d; ++j) found.coordinates[i * 2 + k] += centred(i, j) * direction[j];
    found.variance[k] = std::max(0.0, eigen.values[k]);
    found.variance_share[k] = total > 0 ? found.variance[k] / total : 0;
  }
  return found;
}

}  // namespace curvature::maths
