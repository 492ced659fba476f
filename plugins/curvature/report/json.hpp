// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "../results.hpp"

namespace curvature::report {

// The bytes of results.json: docs/analysis.md has its fields. Equal results give equal bytes. Numbers come back as they
// were; one that is not finite is null. Throws std::invalid_argument if Results::facts is no JSON object.
std::string results_json(const Results& results);

// The bytes of results_flat.json: the main numbers under the names that circulate, as docs/analysis.md maps them.
// Throws as above.
std::string results_flat_json(const Results& results);

// The facts as lines of a table: "model.plugin", "opt". Throws as above.
std::vector<std::pair<std::string, std::string>> facts_table(const Results& results);

}  // namespace curvature::report
