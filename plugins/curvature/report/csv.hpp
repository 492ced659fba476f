// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "../results.hpp"

namespace curvature::report {

// The bytes of results.csv, one record for each tensor, and of rows.csv, one for each measured row ("" if there is
// none). As RFC 4180 says, with a header; equal results give equal bytes. A number that is not finite is an empty
// field.
std::string tensors_csv(const Results& results);
std::string rows_csv(const Results& results);

}  // namespace curvature::report
