// SPDX-License-Identifier: Apache-2.0
// The files that an analysis leaves: all of report/ for its user.
#pragma once

#include <functional>
#include <string>

#include "../results.hpp"

namespace curvature::report {

using Take = std::function<void(const std::string& name, const std::string& bytes)>;

// Makes the files one after the other, and gives each to `take`: results.json, results.csv, report.html; where there is
// something for them: rows.csv, phase.svg, phase.png, the same of umap or pca, response_perplexity.svg and
// response_auc.svg. Names are without a folder. Equal results give equal bytes. `cairo`: see png(). Returns a note for
// the log: what was left out and why; "": nothing. Throws std::invalid_argument if Results::facts is no JSON object,
// before the first file.
// Host memory beyond `results`: that of the largest file.
std::string make_files(const Results& results, const Take& take, const std::string& cairo = "");

// Like make_files in two parts: the texts, and the pictures. The pictures do not depend on Results::facts.
void make_texts(const Results& results, const Take& take);
std::string make_pictures(const Results& results, const Take& take, const std::string& cairo = "");

}  // namespace curvature::report
