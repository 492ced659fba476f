// SPDX-License-Identifier: Apache-2.0
// Measures how well an embedding keeps neighbourhoods. See points.hpp for errors.
#pragma once

#include "points.hpp"

namespace curvature::maths {

// The trustworthiness of an embedding of the points (J. Venna and S. Kaski, "Neighborhood preservation in nonlinear
// projection methods", ICANN 2001), as scikit-learn's: 1 if the k nearest neighbours of each point in the embedding are
// among its k nearest in the original space, less by how far down that list they are, and about 0.5 for random places.
// Distances are Euclidean; of equal ones, the point with the lower index is nearer. Time grows with k times the square
// of n. Throws unless both have the same n and 0 < k < n / 2.
double trustworthiness(const Points& points, const Points& embedding, size_t k);

}  // namespace curvature::maths
