// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"
#include "plugins/curvature/maths/pca.hpp"
#include "plugins/curvature/maths/statistics.hpp"
#include "plugins/curvature/maths/trustworthiness.hpp"

using namespace curvature::maths;
using Catch::Matchers::Contains;
using curvature::test::apart;
using curvature::test::golden;
using curvature::test::refused;
using Doubles = std::vector<double>;

TEST_CASE("two components are scikit-learn's, signs too") {
  const auto cases = golden("components", "cases");
  CHECK(cases.size() == 7);
  for (const auto& c : cases) {
    INFO(c.at("name"));
    const auto values = c.at("points").get<Doubles>(), expected = c.at("coordinates").get<Doubles>();
    const Components found = principal_components(Points(values, c.at("columns")));
    const double scale = std::fmax(1, *std::max_element(expected.begin(), expected.end()));
    CHECK(apart(found.coordinates, expected, scale) <= 1e-10);
    CHECK(apart(found.directions, c.at("directions").get<Doubles>()) <= 1e-10);
    const auto variance = c.at("variance").get<Doubles>();
    CHECK(apart({found.variance.begin(), found.variance.end()}, variance, variance[0]) <= 1e-10);
    CHECK(apart({found.variance_share.begin(), found.variance_share.end()}, c.at("share").get<Doubles>()) <= 1e-10);
  }
}

TEST_CASE("standardised columns are scikit-learn's") {
  for (const auto& c : golden("components", "cases")) {
    INFO(c.at("name"));
    const auto values = c.at("points").get<Doubles>();
    CHECK(apart(standardised(Points(values, c.at("columns"))), c.at("standardised").get<Doubles>()) <= 1e-10);
  }
}

TEST_CASE("a column that varies by rounding alone becomes 0") {
  Doubles values;
  for (int i = 0; i < 7; ++i)
    values.insert(values.end(), {i % 2 ? 1e6 : std::nextafter(1e6, 2e6), static_cast<double>(i)});
  const Doubles found = standardised(Points(values, 2));
  for (size_t i = 0; i < 7; ++i) CHECK(found[2 * i] == 0);
  CHECK(found[13] == Approx(1.5));
  CHECK(standardised(Points({}, 2)).empty());
  CHECK(standardised(Points(Doubles{5, 6}, 2)) == Doubles{0, 0});
}

TEST_CASE("trustworthiness is scikit-learn's") {
  int compared = 0;
  for (const auto& c : golden("components", "cases")) {
    const auto values = c.at("points").get<Doubles>(), embedding = c.at("coordinates").get<Doubles>();
    for (const auto& [k, expected] : c.at("trustworthiness").items()) {
      INFO(c.at("name") << ", " << k << " neighbours");
      CHECK(trustworthiness(Points(values, c.at("columns")), Points(embedding, 2), std::stoul(k)) ==
            Approx(expected.get<double>()).epsilon(1e-12));
      ++compared;
    }
  }
  CHECK(compared == 22);
}

TEST_CASE("eigenvalues of a matrix with known ones") {
  // The second differences on 4 points: 2 - 2 cos(k pi / 5).
  const EigenPairs found = symmetric_eigen({2, -1, 0, 0, -1, 2, -1, 0, 0, -1, 2, -1, 0, 0, -1, 2}, 4);
  for (int k = 0; k < 4; ++k)
    CHECK(found.values[static_cast<size_t>(k)] == Approx(2 + 2 * std::cos((k + 1) * M_PI / 5)).epsilon(1e-14));
  for (size_t a = 0; a < 4; ++a)
    for (size_t b = 0; b < 4; ++b) {
      double product = 0;
      for (size_t j = 0; j < 4; ++j) product += found.vectors[a * 4 + j] * found.vectors[b * 4 + j];
      CHECK(product == Approx(a == b).margin(1e-15));
    }
  CHECK(symmetric_eigen({0, 1, 1, 0}, 2).values[1] == Approx(-1));
  CHECK(symmetric_eigen({0, 0, 0, 0}, 2).vectors == Doubles{1, 0, 0, 1});
}

TEST_CASE("components of few, equal and one-dimensional points") {
  CHECK(principal_components(Points({}, 3)).coordinates.empty());
  CHECK(principal_components(Points(Doubles{1, 2, 3}, 3)).coordinates == Doubles{0, 0});
  const Components equal = principal_components(Points(Doubles(9, 0.1), 3));
  CHECK(equal.coordinates == Doubles(6, 0.0));
  CHECK(equal.variance_share[0] == 0);
  const Components line = principal_components(Points(Doubles{1, 3}, 1));
  CHECK(line.coordinates == Doubles{-1, 0, 1, 0});
  CHECK(line.directions == Doubles{1, 0});
  CHECK(line.variance == std::array<double, 2>{2, 0});
}

TEST_CASE("components refuse what they cannot use, and say why") {
  CHECK_THAT(refused([] { principal_components(Points(Doubles{1e200, -1e200}, 1)); }), Contains("too large"));
  CHECK_THAT(refused([] { symmetric_eigen({1, 2}, 2); }), Contains("2 x 2 has 2 values"));
  CHECK_THAT(refused([] { symmetric_eigen({1, std::nan(""), 1, 1}, 2); }), Contains("is nan"));
  const Doubles line{0, 1, 2, 3, 4};
  const Points points(line, 1);
  for (const size_t k : {0, 3, 5})
    CHECK_THAT(refused([&] { trustworthiness(points, points, k); }), Contains("neighbours"));
  CHECK(trustworthiness(points, points, 2) == 1);
  CHECK_THAT(refused([&] { trustworthiness(points, Points({}, 1), 1); }), Contains("5 points has 0"));
}
