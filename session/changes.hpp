// SPDX-License-Identifier: Apache-2.0
// What a run that goes on does otherwise than before.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "session/config/source.hpp"

namespace eng {

// One key whose value is another one than in the text that the run was resolved to; "" where there is none.
struct Change {
  std::string key;  // "train.steps"
  std::string before, now;
};
// In the order of sections and keys. Keys that have no value on both sides are not listed.
std::vector<Change> changes(const Document& before, const Config& now);

// A run at the moment when it goes on.
struct Resumption {
  const Document& before;  // its config.resolved.toml
  const Config& now;
  uint32_t ranks_before, ranks;
  int64_t step;  // that is done
};
// One text for each change that makes the next steps other ones than a user would expect: another number of tokens in a
// step, a jump of the learning rate.
std::vector<std::string> resume_notes(const Resumption& resumption);
// The same of a run's own files, before they are written again; nothing where they cannot be read. `before`: its
// config.resolved.toml where that has been read, else nullptr.
std::vector<std::string> resume_notes(const std::filesystem::path& run, const Document* before, const Config& now,
                                      uint32_t ranks, int64_t step);

}  // namespace eng
