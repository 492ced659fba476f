// SPDX-License-Identifier: Apache-2.0
// The charts of an analysis.
#pragma once

#include <string>
#include <vector>

#include "../results.hpp"
#include "plot.hpp"
#include "scene.hpp"

namespace curvature::report {

struct Chart {
  Scene scene;
  std::string note;  // what a reader must know to read it
};

// The number of marks in a chart of n tensors, rows or points: more cannot be told apart.
size_t drawn(size_t n);

// Mean |H| against sparsity: a mark for each tensor, or each measured row if the partition is by rows. Without any, a
// scene without marks.
Chart phase_diagram(const Results& results, Where where = Where::page);
// Without an embedding, a scene without marks.
Chart embedding_map(const Results& results, Where where = Where::page);
// H of the tensors with the same role in several blocks, over the blocks: "layers.*.fc1.weight".
std::vector<Chart> hessian_profiles(const Results& results);
// Sparsity over the blocks, and of the units of each activation.
std::vector<Chart> activation_charts(const Results& results);
// Perplexity and AUC over the noise.
std::vector<Chart> response_charts(const Results& results, Where where = Where::page);
// The response map for a paper: a cell for each class and noise, coloured by the change of perplexity and of the AUC.
// Without one, a scene without marks.
Chart response_map(const Results& results);
// "spread of the noise" with its unit.
const char* noise_title(const ResponseMap& map);
// The spreads of the noise that occur, ascending.
std::vector<double> sigmas(const ResponseMap& map);

}  // namespace curvature::report
