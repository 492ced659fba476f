// SPDX-License-Identifier: Apache-2.0
// UMAP: an embedding of points in the plane that keeps neighbourhoods. Computed by the headers of umappp, where the
// build has them (option `umap`, tools/umappp-headers). See points.hpp for errors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "points.hpp"

namespace curvature::maths {

// True if this build has UMAP. Without it, principal_components of pca.hpp gives two coordinates too.
bool has_umap();

// Coordinates n x 2, row by row; none if this build has no UMAP. (L. McInnes, J. Healy, J. Melville, "UMAP: uniform
// manifold approximation and projection for dimension reduction", arXiv:1802.03426.) Distances are Euclidean:
// standardise columns of different units first. `neighbours` is how many nearest points, without the point itself,
// count as a point's neighbourhood: 15 is usual, fewer show finer structure. Everything else is umappp's default, which
// is that of umap-learn where it has the setting: minimal distance 0.1, spread 1, 500 epochs up to 10,000 points and
// towards 200 above, places at first by the graph's spectrum, or random by `seed` if the graph is in several pieces.
// The result depends on the points, `neighbours` and `seed` alone, for one build. More threads speed up the search for
// neighbours and the spectrum, and not the optimisation of places, which takes most of the time.
// Directions and scale of the plane mean nothing, and the distance of clusters little.
// Throws unless 2 <= neighbours < n and threads >= 1: for few points, lower `neighbours` to n - 1.
std::optional<std::vector<double>> umap(const Points& points, int neighbours, uint64_t seed, int threads = 1);

}  // namespace curvature::maths
