// SPDX-License-Identifier: Apache-2.0
// Files that parts of the job give to later ones (eng_job.part), in the order of bytes of this machine, with a
// checksum.
#pragma once

#include <string>
#include <vector>

#include "results.hpp"

namespace curvature {

// Facts of the whole model, from before the first probe.
struct Survey {
  double step = 0;    // of the differences
  double share = 1;   // of the expected sample, that job.max_parameters leaves
  bool rows = false;  // are measured one by one
  std::vector<Site> sites;
};

inline constexpr const char *survey_file = "survey", *measures_file = "measures";

std::string survey_bytes(const Survey& survey);
// Throws Error for other bytes than those of survey_bytes.
Survey survey_of(const std::string& bytes);

// The measures of tensors and their rows, before sparsity and classes.
std::string measures_bytes(const std::vector<Tensor>& tensors);
// Fills those of `tensors` that the bytes have, by their names. Throws Error for other bytes than those of
// measures_bytes, and for a tensor that `tensors` lacks or that was filled before.
void add_measures(const std::string& bytes, std::vector<Tensor>& tensors);

}  // namespace curvature
