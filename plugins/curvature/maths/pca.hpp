// SPDX-License-Identifier: Apache-2.0
// Principal components: the two directions in which points spread most. See points.hpp for errors.
#pragma once

#include <array>
#include <vector>

#include "points.hpp"

namespace curvature::maths {

// The eigenvalues of a symmetric matrix, descending, and its eigenvectors.
struct EigenPairs {
  std::vector<double> values;   // d
  std::vector<double> vectors;  // d x d: row k is the eigenvector of values[k], of length 1
};

// The eigenvalues and eigenvectors of the symmetric d x d matrix, by Jacobi's cyclic rotations (G. H. Golub and C. F.
// Van Loan, "Matrix computations", 8.5). Meant for small d: each of the usual 6 to 10 sweeps costs about 6 d^3
// operations. Equal eigenvalues keep the order of their columns. Throws if the matrix has not d x d values, all finite.
EigenPairs symmetric_eigen(std::vector<double> matrix, size_t d);

struct Components {
  std::vector<double> coordinates;       // n x 2: the centred points along the two components
  std::vector<double> directions;        // 2 x d, of length 1, orthogonal
  std::array<double, 2> variance;        // along each component, divided by n - 1
  std::array<double, 2> variance_share;  // of the sum over all columns; 0 if nothing varies
};

// Sign: in each direction, the entry of the largest absolute value (the first of those) is positive, as for
// scikit-learn's PCA. With d = 1 the second component is 0 everywhere; with fewer than two points, or equal ones, all
// coordinates are 0. Throws if values are so large that their variance overflows.
Components principal_components(const Points& points);

}  // namespace curvature::maths
