// SPDX-License-Identifier: Apache-2.0
#include "embedding.hpp"

#include <algorithm>
#include <cmath>

#include "draw.hpp"
#include "maths/clusters.hpp"
#include "maths/pca.hpp"
#include "maths/statistics.hpp"
#include "maths/umap.hpp"

namespace curvature {
namespace {

struct Unit {
  uint32_t tensor;
  int64_t row;
  const Measures* measures;
};

std::vector<Unit> units_of(const Job& job, const std::vector<Tensor>& tensors) {
  std::vector<Unit> all;
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    if (!job.options.by_row) all.push_back({t, -1, &tensors[t].measures});
    if (job.options.by_row)
      for (const Row& row : tensors[t].measured_rows)
        all.push_back({t, static_cast<int64_t>(row.index), &row.measures});
  }
  std::erase_if(all, [](const Unit& u) { return std::isnan(u.measures->magnitude); });
  return all;
}

// The units with the smallest random words, in their order.
void draw(const Job& job, std::vector<Unit>& all) {
  if (all.size() <= job.options.points) return;
  const Drawing drawing{static_cast<uint64_t>(job.options.seed), 0};
  std::vector<std::pair<uint32_t, size_t>> words(all.size());
  for (size_t i = 0; i < all.size(); ++i) words[i] = {drawing.words(4, 0, i)[0], i};
  std::nth_element(words.begin(), words.begin() + job.options.points, words.end());
  words.resize(job.options.points);
  std::sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<Unit> some;
  for (const auto& word : words) some.push_back(all[word.second]);
  all = std::move(some);
}

// A magnitude of 0 has the logarithm of the smallest other one; a unit without sparsity has the mean of the others.
std::vector<double> features_of(const std::vector<Unit>& units) {
  double least = HUGE_VAL, sparsity = 0;
  size_t n = 0;
  for (const Unit& u : units) {
    if (u.measures->magnitude > 0) least = std::min(least, u.measures->magnitude);
    if (!std::isnan(u.measures->below)) sparsity += u.measures->below, ++n;
  }
  if (least == HUGE_VAL) least = 1;
  const double mean = n ? sparsity / static_cast<double>(n) : 0;
  std::vector<double> out;
  for (const Unit& u : units) {
    out.push_back(std::log10(std::max(u.measures->magnitude, least)));
    out.push_back(std::isnan(u.measures->below) ? mean : u.measures->below);
    out.push_back(u.measures->gradient_norm), out.push_back(u.measures->weight_norm);
  }
  return out;
}

}  // namespace

Embedding embed(const Job& job, const std::vector<Tensor>& tensors) {
  const Options& o = job.options;
  Embedding out;
  out.features = {"log10_hessian", "sparsity", "gradient_norm", "weight_norm"};
  out.dbscan_radius = o.cluster_radius, out.dbscan_points = o.cluster_points;
  if (o.embedding == "none") return out.silhouette_reason = "job.embedding = \"none\"", out;
  std::vector<Unit> units = units_of(job, tensors);
  draw(job, units);
  if (units.size() < 3) return out.silhouette_reason = "there are fewer than three points", out;
  const std::vector<double> values = maths::standardised(maths::Points(features_of(units), out.features.size()));
  const maths::Points points(values, out.features.size());
  std::optional<std::vector<double>> plane;
  const int neighbours = static_cast<int>(std::min<size_t>(o.neighbours, units.size() - 1));
  if (o.embedding != "pca") plane = maths::umap(points, neighbours, static_cast<uint64_t>(o.seed));
  out.method = plane ? "umap" : "pca";
  if (!plane) plane = maths::principal_components(points).coordinates;
  const maths::Points places(*plane, 2);
  const std::vector<int> labels = maths::dbscan(places, o.cluster_radius, o.cluster_points);
  for (size_t i = 0; i < units.size(); ++i)
    out.points.push_back({units[i].tensor, units[i].row, (*plane)[2 * i], (*plane)[2 * i + 1], labels[i]});
  if (const auto s = maths::silhouette(places, labels, maths::NoisePoints::left_out))
    out.silhouette = s->mean;
  else
    out.silhouette_reason = "fewer than two clusters were found";
  return out;
}

}  // namespace curvature
