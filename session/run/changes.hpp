// SPDX-License-Identifier: Apache-2.0
// Changes of the configuration that a resumed run makes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"
#include "session/config/source.hpp"

namespace eng {

// The response of a resumed run to another value of a key: nothing, a note, or a refusal unless the user allows it.
enum class OnChange { free, note, refuse };

// One key whose value differs from the resolved text of the run; "" for no value.
struct Change {
  std::string key;  // "train.steps"
  std::string before, now;
  OnChange rule = OnChange::free;
  bool operator==(const Change& other) const = default;
};
// In the order of sections and keys. Keys without a value on both sides are not listed. A key that the run did not have
// and that has its default now is free, as is one that the section's new plugin does not have.
std::vector<Change> changes(const Document& before, const Config& now, const SchemaSource& plugins);
// Throws Error(Exit::usage) that lists the changes to refuse, but for those whose key is in `allowed`; and for a key in
// `allowed` that no section has.
void refuse_changes(const std::vector<Change>& all, const std::vector<std::string>& allowed, const Config& now);

// A run at the moment when it is resumed.
struct Resumption {
  const Document& before;  // its config.resolved.toml
  const Config& now;
  const std::vector<Change>& changes;
  uint32_t ranks_before, ranks;  // ranks_before: 0 if it is not known
  int64_t step;                  // the last completed step
  Registry& registry;            // has the schedules of plugins
};
// One text for each change that a user might overlook: another number of tokens per step, a jump of the learning rate;
// and one for all others that are not free.
std::vector<std::string> resume_notes(const Resumption& resumption);

}  // namespace eng
