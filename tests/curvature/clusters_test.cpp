// SPDX-License-Identifier: Apache-2.0
#include "plugins/curvature/maths/clusters.hpp"

#include "golden.hpp"

using namespace curvature::maths;
using Catch::Matchers::Contains;
using curvature::test::apart;
using curvature::test::golden;
using curvature::test::refused;
using Doubles = std::vector<double>;
using Labels = std::vector<int>;

namespace {

// The samples of the points that count.
Doubles counted(const Silhouette& found) {
  Doubles kept;
  for (const double value : found.samples)
    if (!std::isnan(value)) kept.push_back(value);
  return kept;
}

void check_silhouette(const nlohmann::json& expected, const std::optional<Silhouette>& found) {
  REQUIRE(found.has_value() == !expected.is_null());
  if (!found) return;
  CHECK(std::abs(found->mean - expected.at("mean").get<double>()) <= 1e-12);
  CHECK(apart(counted(*found), expected.at("samples").get<Doubles>()) <= 1e-12);
}

}  // namespace

TEST_CASE("labels of DBSCAN are scikit-learn's, and silhouettes of them") {
  int runs = 0, defined = 0, with_noise = 0;
  for (const auto& cloud : golden("clusters", "clouds")) {
    const auto values = cloud.at("points").get<Doubles>();
    const Points points(values, cloud.at("columns"));
    for (const auto& run : cloud.at("runs")) {
      INFO(cloud.at("name") << ", eps " << run.at("eps") << ", min_samples " << run.at("min_samples"));
      const Labels labels = dbscan(points, run.at("eps"), run.at("min_samples"));
      CHECK(labels == run.at("labels").get<Labels>());
      check_silhouette(run.at("a_cluster"), silhouette(points, labels, NoisePoints::a_cluster));
      check_silhouette(run.at("left_out"), silhouette(points, labels, NoisePoints::left_out));
      ++runs, defined += !run.at("left_out").is_null();
      with_noise += run.at("a_cluster") != run.at("left_out");
    }
  }
  CHECK(runs == 22);
  CHECK(defined > 10);
  CHECK(with_noise > 8);
}

TEST_CASE("a point between two clusters belongs to the first") {
  // 2 is within 1 of the core points 1 and 3, and no core point itself.
  const Doubles line{0, 0.5, 1, 2, 3, 3.5, 4}, back(line.rbegin(), line.rend());
  CHECK(dbscan(Points(line, 1), 1, 4) == Labels{0, 0, 0, 0, 1, 1, 1});
  CHECK(dbscan(Points(back, 1), 1, 4) == Labels{0, 0, 0, 0, 1, 1, 1});
}

TEST_CASE("DBSCAN of few and of equal points") {
  const Doubles one{3, 4}, equal(12, 2.5);
  CHECK(dbscan(Points({}, 2), 1, 2).empty());
  CHECK(dbscan(Points(one, 2), 1, 1) == Labels{0});
  CHECK(dbscan(Points(one, 2), 1, 2) == Labels{noise_label});
  CHECK(dbscan(Points(equal, 3), 1e-3, 4) == Labels(4, 0));
  CHECK(dbscan(Points(equal, 3), 1e-3, 5) == Labels(4, noise_label));
}

TEST_CASE("silhouettes that are 0 or not defined") {
  const Doubles line{0, 1, 5, 6};
  const Points points(line, 1);
  CHECK_FALSE(silhouette(Points({}, 1), {}, NoisePoints::a_cluster));
  CHECK_FALSE(silhouette(points, Labels{0, 0, 0, 0}, NoisePoints::a_cluster));     // one cluster
  CHECK_FALSE(silhouette(points, Labels{0, 1, 2, 3}, NoisePoints::a_cluster));     // each alone
  CHECK_FALSE(silhouette(points, Labels{0, 0, -1, -1}, NoisePoints::left_out));    // one without noise
  CHECK_FALSE(silhouette(points, Labels{-1, -1, -1, -1}, NoisePoints::left_out));  // none without noise
  CHECK(silhouette(points, Labels{0, 0, -1, -1}, NoisePoints::a_cluster));
  const auto alone = silhouette(points, Labels{0, 0, 7, -1}, NoisePoints::left_out);
  REQUIRE(alone);
  CHECK(alone->samples[0] == 0.8);
  CHECK(alone->samples[1] == 0.75);
  CHECK(alone->samples[2] == 0);
  CHECK(std::isnan(alone->samples[3]));
  CHECK(alone->mean == Approx(1.55 / 3));
  const auto equal = silhouette(Points(Doubles(4, 1.0), 1), Labels{0, 0, 1, 1}, NoisePoints::a_cluster);
  REQUIRE(equal);
  CHECK(equal->mean == 0);
}

TEST_CASE("clusters refuse what they cannot use, and say why") {
  const Doubles line{0, 1, 5, 6}, bad{0, 1, 2, std::nan("")};
  const Points points(line, 1);
  for (const double eps : {0.0, -1.0, static_cast<double>(INFINITY), std::nan("")})
    CHECK_THAT(refused([&] { dbscan(points, eps, 2); }), Contains("eps") && Contains("greater than 0"));
  CHECK_THAT(refused([&] { dbscan(points, 1, 0); }), Contains("min_samples is 0"));
  CHECK_THAT(refused([&] {
               silhouette(points, Labels{0, 1}, NoisePoints::a_cluster);
             }),
             Contains("2 labels for 4 points"));
  CHECK_THAT(refused([&] {
               silhouette(points, Labels{0, 1, 0, -2}, NoisePoints::a_cluster);
             }),
             Contains("label of point 3 is -2"));
  CHECK_THAT(refused([&] { Points(bad, 2); }), Contains("column 1 of point 1 is nan"));
  CHECK_THAT(refused([&] { Points(Doubles{1, -INFINITY}, 1); }), Contains("column 0 of point 1 is -inf"));
  CHECK_THAT(refused([&] { Points(line, 3); }), Contains("4 values are no whole number of points of 3 columns"));
  CHECK_THAT(refused([&] { Points(line, 0); }), Contains("at least one column"));
}
