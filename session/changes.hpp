// SPDX-License-Identifier: Apache-2.0
// What a resumed run does differently from before.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "session/config/source.hpp"

namespace eng {

// One key whose value differs from the resolved text of the run; "" for no value.
struct Change {
  std::string key;  // "train.steps"
  std::string before, now;
};
// In the order of sections and keys. Keys without a value on both sides are not listed.
std::vector<Change> changes(const Document& before, const Config& now);

// A run at the moment when it is resumed.
struct Resumption {
  const Document& before;  // its config.resolved.toml
  const Config& now;
  uint32_t ranks_before, ranks;
  int64_t step;  // the last completed step
};
// One text for each change that a user might overlook: another number of tokens per step, a jump of the learning rate.
std::vector<std::string> resume_notes(const Resumption& resumption);
// The same, from a run's own files before they are written again; empty if they cannot be read. `before`: its
// config.resolved.toml if it has been read, otherwise nullptr.
std::vector<std::string> resume_notes(const std::filesystem::path& run, const Document* before, const Config& now,
                                      uint32_t ranks, int64_t step);

}  // namespace eng
