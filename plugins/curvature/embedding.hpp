// SPDX-License-Identifier: Apache-2.0
// Tensors or rows as points in the plane.
#pragma once

#include "job.hpp"
#include "results.hpp"

namespace curvature {

// Places units with like features near each other, and finds clusters of them. If there are more than job.points, that
// many are drawn.
Embedding embed(const Job& job, const std::vector<Tensor>& tensors);

}  // namespace curvature
