// SPDX-License-Identifier: Apache-2.0
// The facts that a report prints in addition to the plan.
#pragma once

#include "session/planning/setup.hpp"
#include "session/report/report.hpp"

namespace eng {

ReportContext report_context(const Setup& setup, const Config& config);

}  // namespace eng
