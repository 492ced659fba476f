// SPDX-License-Identifier: Apache-2.0
#include "umap.hpp"

#include <knncolle/knncolle.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <umappp/umappp.hpp>

namespace curvature::maths {

bool has_umap() {
  return true;
}

std::optional<std::vector<double>> umap(const Points& points, int neighbours, uint64_t seed, int threads) {
  if (neighbours < 2 || static_cast<size_t>(neighbours) >= points.n())
    throw std::invalid_argument("UMAP of " + std::to_string(points.n()) + " points is asked for " +
                                std::to_string(neighbours) +
                                " neighbours: there must be at least 2 and fewer than points");
  if (threads < 1)
    throw std::invalid_argument("UMAP is asked for " + std::to_string(threads) + " threads: it needs at least 1");
  umappp::Options options;
  options.num_neighbors = neighbours;
  options.num_threads = threads;
  options.initialize_seed = seed;
  options.optimize_seed = ~seed;  // another stream than that of random first places
  const knncolle::VptreeBuilder<size_t, double, double> search(
      std::make_shared<knncolle::EuclideanDistance<double, double>>());
  std::vector<double> coordinates(points.n() * 2);
  auto state =
      umappp::initialize(points.d(), points.n(), points.values().data(), search, 2, coordinates.data(), options);
  state.run(coordinates.data());
  return coordinates;
}

}  // namespace curvature::maths
