// SPDX-License-Identifier: Apache-2.0
// The keys of [job] for this job. plugin.cpp documents each.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base.h"

namespace curvature {

struct Options {
  bool fisher = false;
  uint32_t probes = 0, windows = 0, micro_batch = 0, held_windows = 0, train_windows = 0;
  double step = 0, confidence = 0, sparsity_threshold = 0;
  uint64_t samples_per_tensor = 0, max_parameters = 0, max_rows = 0;  // 0: all
  bool by_row = false;
  bool quantiles = true;
  double h_functional = 0, sparsity_functional = 0, h_sensitive = 0, sparsity_sensitive = 0;
  std::vector<double> noise;
  bool noise_relative = false;
  uint32_t noise_seeds = 0;
  std::string embedding;  // auto, umap, pca, none
  uint32_t neighbours = 0, cluster_points = 0, points = 0, save_every = 0;
  double cluster_radius = 0;
  int64_t seed = 0;
  std::vector<std::string> activations, unit_tensors;
  std::vector<std::pair<std::string, std::string>> texts;  // every key with its value, in the order of the schema

  // Throws Error for a value that does not serve; the text names the key.
  explicit Options(const eng_options* given);
  bool responds() const { return noise_seeds > 0 && !noise.empty(); }
};

}  // namespace curvature
