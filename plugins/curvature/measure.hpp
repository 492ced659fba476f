// SPDX-License-Identifier: Apache-2.0
// Measures of each tensor and row from the states, and of activations from the sites.
#pragma once

#include "host.hpp"
#include "results.hpp"

namespace curvature {

// Measures of every tensor, and with `rows` of every row. Sparsity and classes are filled later.
// `share`: of the expected sample, that job.max_parameters leaves.
std::vector<Tensor> measure_tensors(const Job& job, Host& host, double share, bool rows);

// A tensor without measures.
Tensor tensor_of(const eng_parameter& p);

// The counts at the sites, over `tokens` positions.
std::vector<Site> measure_sites(Host& host, uint64_t tokens);

// The sparsity of tensors and rows: docs/analysis.md, "Which sparsity a tensor has".
void add_sparsity(const Job& job, const std::vector<Site>& sites, std::vector<Tensor>& tensors);

}  // namespace curvature
