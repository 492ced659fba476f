// SPDX-License-Identifier: Apache-2.0
// The past of a run, read from its directory for `engine report`.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "session/json.hpp"

namespace eng {

// One quantity at the steps that have it, in ascending order.
struct Series {
  std::string name;  // as scalars_of calls it
  std::vector<int64_t> steps;
  std::vector<double> values;  // finite
};

struct History {
  std::string title;            // of the run among others
  std::vector<Series> series;   // in the order in which they occur
  std::vector<int64_t> starts;  // the first step of each attempt
  uint64_t steps = 0;           // lines that count
  uint64_t unreadable = 0;      // lines that are no record of a step
  bool cut = false;             // a line is too long: it and what follows it is left out
  Json record, state;           // run.json and state.json; null if they cannot be read
  // The resolved configuration as "section.key" -> TOML; empty if it cannot be read.
  std::map<std::string, std::string> settings;

  std::unordered_map<std::string, size_t> place;  // of each name in `series`

  const Series* find(const std::string& name) const;
};

// Reads metrics.jsonl. Each step counts once: of a step that was taken again, the later line counts, and all lines of
// later steps that are before that one do not. Lines that cannot be read, as the last one of a run that was killed, are
// counted and left out; after one of more than longest_metrics_line bytes nothing is read. Throws Error(Exit::usage) if
// `run` is no run directory.
History read_history(const std::filesystem::path& run);

}  // namespace eng
