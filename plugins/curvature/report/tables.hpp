// SPDX-License-Identifier: Apache-2.0
// The tables of report.html, as HTML.
#pragma once

#include <string>
#include <vector>

#include "../results.hpp"

namespace curvature::report {

struct Cell {
  std::string text;  // is escaped when it is written
  bool number = false;
};

// The first cell of each line is its heading.
std::string html_table(const std::vector<Cell>& heading, const std::vector<std::vector<Cell>>& lines);

std::string summary_table(const Results& results);
std::string partition_table(const Results& results);
std::string tensors_table(const Results& results);
std::string rows_table(const Results& results);  // "" if no row was measured
std::string sites_table(const Results& results);
// A table of classes and noise, its cells coloured by size: of the perplexity and of the AUC.
std::string response_heat(const ResponseMap& map, const Interval Response::*of, double base, const char* title);
std::string trials_table(const ResponseMap& map);
std::string pairs_table(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace curvature::report
