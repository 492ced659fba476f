// SPDX-License-Identifier: Apache-2.0
#include "clusters.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace curvature::maths {

namespace {

// Finds all points within a distance of a point. Points are sorted by their first column, so that only those are looked
// at whose first column is near enough.
class Neighbourhood {
 public:
  Neighbourhood(const Points& points, double eps)
      : points_(points), squared_(eps * eps), order_(points.n()), place_(points.n()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return points[a][0] < points[b][0]; });
    for (size_t k = 0; k < order_.size(); ++k) place_[order_[k]] = k;
  }

  // Calls f(j) for each point j within eps of point i, i among them.
  template <class F>
  void each(size_t i, F&& f) const {
    for (size_t k = place_[i]; k < order_.size() && near(i, order_[k]); ++k) visit(i, order_[k], f);
    for (size_t k = place_[i]; k-- > 0 && near(i, order_[k]);) visit(i, order_[k], f);
  }

 private:
  bool near(size_t i, size_t j) const { return squared_distance(points_[i], points_[j], 1) <= squared_; }
  template <class F>
  void visit(size_t i, size_t j, F&& f) const {
    if (squared_distance(points_[i], points_[j], points_.d()) <= squared_) f(j);
  }

  const Points& points_;
  double squared_;
  std::vector<size_t> order_, place_;  // order_[place_[i]] == i
};

}  // namespace

std::vector<int> dbscan(const Points& points, double eps, size_t min_samples) {
  if (!(eps > 0 && std::isfinite(eps)))
    throw std::invalid_argument("DBSCAN's eps is " + std::to_string(eps) + ": it must be finite and greater than 0");
  if (min_samples == 0) throw std::invalid_argument("DBSCAN's min_samples is 0: it must be at least 1");
  const Neighbourhood within(points, eps);
  std::vector<char> core(points.n());
  for (size_t i = 0; i < points.n(); ++i) {
    size_t count = 0;
    within.each(i, [&](size_t) { ++count; });
    core[i] = count >= min_samples;
  }
  std::vector<int> labels(points.n(), noise_label);
  std::vector<size_t> open;
  int next = 0;
  for (size_t first = 0; first < points.n(); ++first) {
    if (!core[first] || labels[first] != noise_label) continue;
    labels[first] = next;
    open.push_back(first);
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      within.each(i, [&](size_t j) {
        if (labels[j] != noise_label) return;
        labels[j] = next;
        if (core[j]) open.push_back(j);
      });
    }
    ++next;
  }
  return labels;
}

std::optional<Silhouette> silhouette(const Points& points, std::span<const int> labels, NoisePoints noise) {
  if (labels.size() != points.n())
    throw std::invalid_argument("a silhouette has " + std::to_string(labels.size()) + " labels for " +
                                std::to_string(points.n()) + " points: it needs one for each");
  std::vector<size_t> counted;  // the points that count
  std::vector<int> clusters;    // their labels, in ascending order
  for (size_t i = 0; i < points.n(); ++i) {
    if (labels[i] < noise_label)
      throw std::invalid_argument("the label of point " + std::to_string(i) + " is " + std::to_string(labels[i]) +
                                  ": labels are -1 for noise, else 0 or greater");
    if (labels[i] == noise_label && noise == NoisePoints::left_out) continue;
    counted.push_back(i);
    clusters.push_back(labels[i]);
  }
  std::sort(clusters.begin(), clusters.end());
  clusters.erase(std::unique(clusters.begin(), clusters.end()), clusters.end());
  if (clusters.size() < 2 || clusters.size() == counted.size()) return std::nullopt;

  std::vector<size_t> cluster_of(points.n());
  std::vector<double> sizes(clusters.size());
  for (const size_t i : counted) {
    cluster_of[i] =
        static_cast<size_t>(std::lower_bound(clusters.begin(), clusters.end(), labels[i]) - clusters.begin());
    sizes[cluster_of[i]] += 1;
  }
  Silhouette found{0, std::vector<double>(points.n(), std::numeric_limits<double>::quiet_NaN())};
  std::vector<double> sums(clusters.size());  // of the distances to each cluster
  for (const size_t i : counted) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (const size_t j : counted) sums[cluster_of[j]] += std::sqrt(squared_distance(points[i], points[j], points.d()));
    const size_t own = cluster_of[i];
    double other = std::numeric_limits<double>::infinity(), value = 0;
    for (size_t c = 0; c < sums.size(); ++c)
      if (c != own) other = std::min(other, sums[c] / sizes[c]);
    if (sizes[own] > 1) {
      const double inside = sums[own] / (sizes[own] - 1), greater = std::max(inside, other);
      if (greater > 0) value = (other - inside) / greater;
    }
    found.samples[i] = value;
    found.mean += value;
  }
  found.mean /= static_cast<double>(counted.size());
  return found;
}

}  // namespace curvature::maths
