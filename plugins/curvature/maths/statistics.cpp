// SPDX-License-Identifier: Apache-2.0
#include "statistics.hpp"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace curvature::maths {

void Moments::add(double sample) {
  ++n;
  const double before = sample - mean;
  mean += before / static_cast<double>(n);
  squares += before * (sample - mean);
}

void Moments::merge(const Moments& other) {
  if (other.n == 0) return;
  const double mine = static_cast<double>(n), theirs = static_cast<double>(other.n), all = mine + theirs;
  const double apart = other.mean - mean;
  mean += apart * (theirs / all);
  squares += other.squares + apart * apart * (mine * theirs / all);
  n += other.n;
}

double Moments::variance() const {
  if (n < 2)
    throw std::invalid_argument("a variance needs at least 2 samples, and there " +
                                std::string(n == 1 ? "is 1" : "are none"));
  return squares / static_cast<double>(n - 1);
}

double t_quantile(double probability, double degrees) {
  if (!(probability > 0 && probability < 1))
    throw std::invalid_argument("the probability of a quantile of Student's t is " + std::to_string(probability) +
                                ": it must lie between 0 and 1");
  if (!(degrees > 0))
    throw std::invalid_argument("Student's t has " + std::to_string(degrees) +
                                " degrees of freedom: it needs more than 0");
  return boost::math::quantile(boost::math::students_t(degrees), probability);
}

double half_width_factor(uint64_t n, double level) {
  if (n < 2)
    throw std::invalid_argument("a confidence interval needs at least 2 samples, and there " +
                                std::string(n == 1 ? "is 1" : "are none"));
  if (!(level > 0 && level < 1))
    throw std::invalid_argument("the level of a confidence interval is " + std::to_string(level) +
                                ": it must lie between 0 and 1, such as 0.95");
  // By the lower tail, whose probability does not round to 1.
  return -t_quantile((1 - level) / 2, static_cast<double>(n - 1)) / std::sqrt(static_cast<double>(n));
}

Interval mean_interval(const Moments& samples, double level) {
  const double factor = half_width_factor(samples.n, level);
  require_finite("a mean and its variance", std::vector{samples.mean, samples.variance()});
  const double half = factor * std::sqrt(samples.variance());
  return {samples.mean, samples.mean - half, samples.mean + half};
}

std::vector<double> quantiles(std::vector<double> values, std::span<const double> at) {
  if (values.empty()) throw std::invalid_argument("quantiles need at least one value");
  require_finite("the quantiles' input", values);
  std::sort(values.begin(), values.end());
  std::vector<double> found;
  for (const double place : at) {
    if (!(place >= 0 && place <= 1))
      throw std::invalid_argument("a quantile is at " + std::to_string(place) + ": it must lie in 0 .. 1");
    const double where = place * static_cast<double>(values.size() - 1);
    const size_t below = static_cast<size_t>(where), above = std::min(below + 1, values.size() - 1);
    const double part = where - static_cast<double>(below), step = values[above] - values[below];
    // From the nearer end, so that both ends are met exactly.
    found.push_back(part < 0.5 ? values[below] + step * part : values[above] - step * (1 - part));
  }
  return found;
}

double auc(std::span<const double> positives, std::span<const double> negatives) {
  if (positives.empty() || negatives.empty())
    throw std::invalid_argument(std::string("an AUC needs values in both groups, and there are no ") +
                                (positives.empty() ? "positive" : "negative") + " ones");
  require_finite("the positives of an AUC", positives);
  require_finite("the negatives of an AUC", negatives);
  std::vector<double> sorted(negatives.begin(), negatives.end());
  std::sort(sorted.begin(), sorted.end());
  uint64_t halves = 0;  // two for each negative below a positive, one for each equal one
  for (const double value : positives) {
    const auto [low, high] = std::equal_range(sorted.begin(), sorted.end(), value);
    halves += static_cast<uint64_t>((low - sorted.begin()) + (high - sorted.begin()));
  }
  return static_cast<double>(halves) /
         (2 * static_cast<double>(positives.size()) * static_cast<double>(negatives.size()));
}

std::vector<double> standardised(const Points& points) {
  std::vector<double> out(points.values().begin(), points.values().end());
  const double n = static_cast<double>(points.n()), eps = std::numeric_limits<double>::epsilon();
  for (size_t j = 0; j < points.d(); ++j) {
    Moments column;
    for (size_t i = 0; i < points.n(); ++i) column.add(points[i][j]);
    const double variance = points.n() ? column.squares / n : 0, error = n * eps * column.mean;
    const bool constant = variance <= n * eps * variance + error * error;
    for (size_t i = 0; i < points.n(); ++i) {
      double& value = out[i * points.d() + j];
      value = constant ? 0 : (value - column.mean) / std::sqrt(variance);
    }
  }
  return out;
}

}  // namespace curvature::maths
