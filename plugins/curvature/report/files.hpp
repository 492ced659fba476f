// SPDX-License-Identifier: Apache-2.0
// The files that an analysis leaves: all of report/ for its user.
#pragma once

#include <functional>
#include <string>

#include "../results.hpp"

namespace curvature::report {

using Take = std::function<void(const std::string& name, const std::string& bytes)>;

// Makes the files one after the other, and gives each to `take`: results.json, results_flat.json, results.csv,
// report.html; where there is something for them: rows.csv, and as .svg, .png and .pdf the pictures phase, umap or pca,
// response, response_perplexity and response_auc. Names are without a folder. Equal results give equal bytes. `cairo`:
// see picture(). Returns a note for the log: what was left out and why; "": nothing. Throws std::invalid_argument if
// Results::facts is no JSON object, before the first file.
// Host memory beyond `results`: that of the largest file.
std::string make_files(const Results& results, const Take& take, const std::string& cairo = "");

// Like make_files in two parts: the texts, and the pictures. The pictures do not depend on Results::facts.
void make_texts(const Results& results, const Take& take);
std::string make_pictures(const Results& results, const Take& take, const std::string& cairo = "");

}  // namespace curvature::report
