// SPDX-License-Identifier: Apache-2.0
// Clusters of points by density, and how well they are separated. Distances are Euclidean. See points.hpp for errors.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "points.hpp"

namespace curvature::maths {

inline constexpr int noise_label = -1;  // the label of a point in no cluster

// DBSCAN (M. Ester et al., "A density-based algorithm for discovering clusters", KDD 1996). Returns a label for each
// point. A point with at least `min_samples` points within `eps`, itself among them, is a core point. Core points
// within `eps` of each other are in one cluster; clusters are numbered from 0 by their first core point. A point that
// is no core point gets the lowest number among the clusters of the core points within `eps`, or `noise_label`. Labels
// are those of scikit-learn's DBSCAN. Time grows with the square of n at worst; memory with n. Throws unless eps is
// finite and > 0, and min_samples > 0.
std::vector<int> dbscan(const Points& points, double eps, size_t min_samples);

// The treatment of points labelled `noise_label` in a silhouette.
enum class NoisePoints {
  left_out,   // as if they were not there
  a_cluster,  // they are a cluster like any other, as for scikit-learn
};

struct Silhouette {
  double mean;                  // over the points that count
  std::vector<double> samples;  // of each point, in -1 .. 1; NaN for a point left out
};

// The silhouette (P. J. Rousseeuw, J. Comput. Appl. Math. 20 (1987) 53-65), as scikit-learn's silhouette_samples and
// silhouette_score. For a point with the mean distance a to the others of its cluster and b to those of the nearest
// other cluster it is (b - a) / max(a, b): near 1 well inside, near -1 in the wrong cluster. It is 0 for a point alone
// in its cluster, and where a = b = 0. None if it is not defined: fewer than two clusters, or each point a cluster of
// its own. Time grows with the square of n. Throws unless there is one label for each point, all >= noise_label.
std::optional<Silhouette> silhouette(const Points& points, std::span<const int> labels, NoisePoints noise);

}  // namespace curvature::maths
