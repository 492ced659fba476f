// SPDX-License-Identifier: Apache-2.0
// A build without the headers of umappp.
#include "umap.hpp"

namespace curvature::maths {

bool has_umap() {
  return false;
}

std::optional<std::vector<double>> umap(const Points&, int, uint64_t, int) {
  return std::nullopt;
}

}  // namespace curvature::maths
