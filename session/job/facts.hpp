// SPDX-License-Identifier: Apache-2.0
// The engine's facts about an analysis, as JSON: docs/analysis.md, "facts".
#pragma once

#include <string>

#include "session/job/analysis.hpp"

namespace eng {

struct FactsOf {
  const AnalysisStart& start;
  std::string model_hash, config_hash;
  std::string weights;  // where they were read; "" if they were made
  std::string began;    // this attempt
  int64_t attempt = 1;
  uint32_t ranks = 1;
  const JobParts* parts = nullptr;  // of a job that was done in parts
};
std::string facts_json(const FactsOf& facts);
// The bytes that the run has allocated on its device.
uint64_t device_bytes(const Setup& setup);

}  // namespace eng
