// SPDX-License-Identifier: Apache-2.0
// Classes of tensors or rows, as the job writes them into the state `kinds`.
#pragma once

#include "host.hpp"
#include "results.hpp"

namespace curvature {

// Chooses the thresholds, gives each tensor, or each row, its class, and counts parameters.
Partition make_partition(const Job& job, std::vector<Tensor>& tensors);

// Writes the class of every element, and what the noise of a tensor is multiplied by: its standard deviation with
// job.noise_relative, else 1.
void write_classes(const Job& job, Host& host, const std::vector<Tensor>& tensors);

}  // namespace curvature
