// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "../results.hpp"

namespace curvature::report {

// The bytes of report.html: one file without a script, a font or a picture from elsewhere; readable in light and dark
// and on paper. Throws std::invalid_argument if Results::facts is no JSON object.
std::string report_page(const Results& results);

}  // namespace curvature::report
