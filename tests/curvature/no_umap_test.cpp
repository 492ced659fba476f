// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "plugins/curvature/maths/umap.hpp"

using namespace curvature::maths;

TEST_CASE("a build without the headers of umappp embeds nothing, and says so") {
  CHECK_FALSE(has_umap());
  const std::vector<double> line{0, 1, 2, 3, 4, 5};
  CHECK_FALSE(umap(Points(line, 1), 3, 1));
}
