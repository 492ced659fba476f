// SPDX-License-Identifier: Apache-2.0
// Means, their confidence intervals, quantiles, and the AUC of two groups. See points.hpp for errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "points.hpp"

namespace curvature::maths {

// The mean and the variance of samples that come one by one, in f64 (B. P. Welford, Technometrics 4 (1962) 419-420).
struct Moments {
  uint64_t n = 0;
  double mean = 0;     // of the samples; 0 without any
  double squares = 0;  // the sum of the squared differences to the mean

  void add(double sample);
  // As if the samples of `other` had been added too, up to rounding (T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating
  // formulae and a pairwise algorithm for computing sample variances", 1979).
  void merge(const Moments& other);
  // Unbiased: divided by n - 1. Throws if n < 2.
  double variance() const;
};

struct Interval {
  double mean, low, high;  // low <= mean <= high
};

// The value below which a variable of Student's t distribution lies with the given probability. Throws unless
// 0 < probability < 1 and degrees > 0 (degrees of freedom, which may be fractional). Boost.Math computes it.
double t_quantile(double probability, double degrees);

// The factor from the standard deviation of n samples to half of the width of the confidence interval of their mean:
// t_quantile((1 + level) / 2, n - 1) / sqrt(n). For many elements with the same n. Throws unless n >= 2 and 0 < level <
// 1.
double half_width_factor(uint64_t n, double level);

// The confidence interval of the mean by Student's t: in the fraction `level` of all repetitions it contains the true
// mean, if the samples are normal and independent. Throws unless n >= 2, 0 < level < 1 and the moments are finite.
Interval mean_interval(const Moments& samples, double level);

// The quantiles of the values at each of `at`, which lie in 0 .. 1: linear between the two nearest values, as NumPy's
// default. Throws without values, for one that is not finite, and for a place outside of 0 .. 1. Sorts its copy.
std::vector<double> quantiles(std::vector<double> values, std::span<const double> at);

// The area under the ROC curve: the probability that a random positive is greater than a random negative, where equal
// ones count one half (H. B. Mann and D. R. Whitney, 1947). Exact up to the one division at the end, up to 2^31 values
// a group. Throws if a group is empty or has a value that is not finite.
double auc(std::span<const double> positives, std::span<const double> negatives);

// The n x d values with the mean 0 and the standard deviation 1 (divided by n) in each column, as scikit-learn's
// StandardScaler. A column whose variance is within the rounding error of its computation counts as constant and
// becomes all 0. The bound of that error is n eps variance + (n eps mean)^2 (T. F. Chan, G. H. Golub, R. J. LeVeque,
// The American Statistician 37 (1983) 242-247).
std::vector<double> standardised(const Points& points);

}  // namespace curvature::maths
