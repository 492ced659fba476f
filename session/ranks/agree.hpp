// SPDX-License-Identifier: Apache-2.0
// The items that must be equal on all ranks before the first step, and which rank differs.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/registry/registry.hpp"
#include "session/config/config.hpp"
#include "session/ranks/exchange.hpp"

namespace eng {

struct Item {
  std::string name;             // "configuration": for people
  Exit exit;                    // the exit code if it differs
  std::string text;             // lines, mostly "KEY = VALUE"
  std::vector<uint32_t> ranks;  // ranks that must have it; empty: all
  bool optional = false;        // no rank must have it, and those that do must have the same
};

// Compares items with equal name and ranks. If one differs, or is missing on a rank that must have it, throws the same
// Error on every rank; it names the first line that differs, and the ranks. All ranks call it.
void agree(const Exchange& exchange, const std::vector<Item>& items);

// All keys except those that belong to a machine: [device] threads, [run] out, [plugins] path.
Item config_item(const Config& config);
// The loaded plugins, with the hashes of their files. The stages of a pipeline have other ops, and may have opened
// other files of kernels: these are the same in a stage, and each is the same wherever it was opened.
std::vector<Item> plugins_items(const Registry& registry, const Ranks& ranks);
// One for each group of this rank: the collectives of its members, in order.
std::vector<Item> collective_items(const Plan& plan);
// Hash of all collective items.
std::string collective_hash(const Plan& plan);

}  // namespace eng
