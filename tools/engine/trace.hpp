// SPDX-License-Identifier: Apache-2.0
// engine run --trace: when every action of some steps ran, as a file for chrome://tracing or ui.perfetto.dev.
#pragma once

#include <memory>
#include <string>

#include "core/execute/trace.hpp"

namespace eng {

// `steps`: "auto" (the second to the fourth that this process does), "7", "2-4". nullptr where it is empty.
// `done`: steps done before. Throws Error(Exit::usage).
std::unique_ptr<Trace> make_trace(const std::string& steps, int64_t done, const Plan& plan);
// The traces of several ranks of one machine have one clock, and may be opened together.
std::string trace_text(const Trace& trace, const Plan& plan, uint32_t rank);
std::string trace_name(uint32_t rank);  // of the file in the run directory

}  // namespace eng
