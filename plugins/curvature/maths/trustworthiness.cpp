// SPDX-License-Identifier: Apache-2.0
#include "trustworthiness.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace curvature::maths {

namespace {
// (squared distance to point i, index) of all points but i. Pairs compare as neighbours are ordered.
void fill_distances(const Points& points, size_t i, std::vector<std::pair<double, size_t>>& others) {
  others.clear();
  for (size_t j = 0; j < points.n(); ++j)
    if (j != i) others.emplace_back(squared_distance(points[i], points[j], points.d()), j);
}
}  // namespace

double trustworthiness(const Points& points, const Points& embedding, size_t k) {
  const size_t n = points.n();
  if (embedding.n() != n)
    throw std::invalid_argument("an embedding of " + std::to_string(n) + " points has " +
                                std::to_string(embedding.n()));
  if (k == 0 || 2 * k >= n)
    throw std::invalid_argument("the trustworthiness of " + std::to_string(n) + " points is asked for " +
                                std::to_string(k) +
                                " neighbours: there must be at least 1 and fewer than half of the points");
  std::vector<std::pair<double, size_t>> near, original;
  double penalty = 0;
  for (size_t i = 0; i < n; ++i) {
    fill_distances(embedding, i, near);
    std::nth_element(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(k - 1), near.end());
    fill_distances(points, i, original);
    for (size_t m = 0; m < k; ++m) {
      const size_t j = near[m].second;
      const std::pair here{squared_distance(points[i], points[j], points.d()), j};
      // The place of j among the neighbours of i, from 0.
      const auto place = static_cast<size_t>(
          std::count_if(original.begin(), original.end(), [&](const auto& other) { return other < here; }));
      if (place >= k) penalty += static_cast<double>(place - k + 1);
    }
  }
  const double count = static_cast<double>(n), kept = static_cast<double>(k);
  return 1 - penalty * 2 / (count * kept * (2 * count - 3 * kept - 1));
}

}  // namespace curvature::maths
