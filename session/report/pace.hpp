// SPDX-License-Identifier: Apache-2.0
// The step and the rate of a run, by the last lines of its metrics.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>

namespace eng {

struct RunPace {
  int64_t step = 0;              // the last that is complete; 0 if none is
  int64_t attempt = 0;           // the start of the run that made it
  int64_t steps = 0;             // of this attempt, among the lines that were read; the first one does not count
  double tokens_per_second = 0;  // the median over these; 0 without any
};
// Reads the end of the file, which may be written meanwhile. All zeros if it cannot be read. Never throws.
RunPace pace_of(const std::filesystem::path& run) noexcept;

}  // namespace eng
