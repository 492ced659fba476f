// SPDX-License-Identifier: Apache-2.0
#include "plugins/curvature/maths/umap.hpp"

#include <algorithm>
#include <numeric>

#include "golden.hpp"
#include "plugins/curvature/maths/clusters.hpp"
#include "plugins/curvature/maths/trustworthiness.hpp"

using namespace curvature::maths;
using Catch::Matchers::Contains;
using curvature::test::refused;
using Doubles = std::vector<double>;

namespace {

// `each` points near each of three corners of a cube of five dimensions, one corner after the other.
Doubles three_clouds(size_t each) {
  uint64_t state = 7;
  Doubles values;
  for (size_t i = 0; i < 3 * each; ++i)
    for (size_t j = 0; j < 5; ++j) {
      state = state * 6364136223846793005 + 1442695040888963407;
      values.push_back((j == i / each ? 8 : 0) + static_cast<double>(state >> 33) / 2147483648.0);
    }
  return values;
}

bool all_finite(const Doubles& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

}  // namespace

TEST_CASE("a build with the headers has UMAP") {
  CHECK(has_umap());
}

TEST_CASE("UMAP keeps three clouds apart and their neighbourhoods") {
  const size_t each = 60;
  const Doubles values = three_clouds(each);
  const Points points(values, 5);
  const auto found = umap(points, 15, 1);
  REQUIRE(found);
  REQUIRE(found->size() == 3 * each * 2);
  const Points embedded(*found, 2);
  std::vector<int> clouds;
  for (int cloud = 0; cloud < 3; ++cloud) clouds.insert(clouds.end(), each, cloud);
  const auto separated = silhouette(embedded, clouds, NoisePoints::a_cluster);
  REQUIRE(separated);
  CHECK(separated->mean > 0.7);
  CHECK(trustworthiness(points, embedded, 10) > 0.85);
  // Equal places in another order keep nothing.
  Doubles shuffled;
  for (size_t i = 0; i < 3 * each; ++i)
    shuffled.insert(shuffled.end(), {(*found)[i * 74 % 360], (*found)[i * 74 % 360 + 1]});
  CHECK(trustworthiness(points, Points(shuffled, 2), 10) < 0.7);
}

TEST_CASE("UMAP depends on the seed alone") {
  const Doubles values = three_clouds(30);
  const Points points(values, 5);
  const auto first = umap(points, 10, 5);
  CHECK(umap(points, 10, 5) == first);
  CHECK(umap(points, 10, 5, 2) == first);
  CHECK(umap(points, 10, 6) != first);
  CHECK(umap(points, 11, 5) != first);
  // Points in one piece, whose first places do not depend on the seed.
  Doubles line(60);
  std::iota(line.begin(), line.end(), 0.0);
  CHECK(umap(Points(line, 1), 10, 5) != umap(Points(line, 1), 10, 6));
}

TEST_CASE("UMAP of few and of equal points") {
  const Doubles few{0, 0, 1, 0, 0, 1, 5, 5}, equal(80, 2.0);
  const auto of_few = umap(Points(few, 2), 3, 1), of_three = umap(Points(Doubles{0, 1, 2}, 1), 2, 1),
             of_equal = umap(Points(equal, 4), 10, 1);
  REQUIRE(of_few->size() == 8);
  CHECK(all_finite(*of_few));
  REQUIRE(of_three->size() == 6);
  CHECK(all_finite(*of_three));
  REQUIRE(of_equal->size() == 40);
  CHECK(all_finite(*of_equal));
}

TEST_CASE("UMAP refuses what it cannot use, and says why") {
  const Doubles line{0, 1, 2, 3, 4, 5};
  const Points points(line, 1);
  for (const int neighbours : {-1, 0, 1, 6, 15})
    CHECK_THAT(refused([&] { umap(points, neighbours, 1); }), Contains("UMAP of 6 points") && Contains("neighbours"));
  for (const int threads : {-1, 0}) CHECK_THAT(refused([&] { umap(points, 3, 1, threads); }), Contains("at least 1"));
  CHECK_THAT(refused([&] { umap(Points({}, 1), 2, 1); }), Contains("UMAP of 0 points"));
}
