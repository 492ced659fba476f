// SPDX-License-Identifier: Apache-2.0
// The files that an analysis leaves: all of report/ for its user.
#pragma once

#include <string>
#include <vector>

#include "../results.hpp"

namespace curvature::report {

struct File {
  std::string name;  // without a folder
  std::string bytes;
};

struct Files {
  std::vector<File> files;  // results.json, results.csv, report.html; where there is something for them: rows.csv,
                            // phase.png, and umap.png or pca.png
  std::string note;         // for the log: what was left out and why; "": nothing
};

// Equal results give equal bytes. `cairo`: see png(). Throws std::invalid_argument if Results::facts is no JSON object.
// Host memory beyond `results`, measured: 9 MiB, 1.3 KiB for each measured row with its point, 2 KiB for each tensor,
// 170 bytes for each unit of an activation.
Files files(const Results& results, const std::string& cairo = "");

}  // namespace curvature::report
