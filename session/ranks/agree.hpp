// SPDX-License-Identifier: Apache-2.0
// What all ranks must have alike before the first step, and which rank has it otherwise.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/registry/registry.hpp"
#include "session/checkpoint/share.hpp"
#include "session/config/config.hpp"

namespace eng {

struct Item {
  std::string name;             // "configuration": for people
  Exit exit;                    // where it differs
  std::string text;             // lines, mostly "KEY = VALUE"
  std::vector<uint32_t> ranks;  // who must have it; none: all
};

// Throws on every rank the same Error where one of the items, told apart by name and ranks, differs or is missing on a
// rank that must have it: it names the first line that differs, and the ranks. All ranks call it.
void agree(const Exchange& exchange, const std::vector<Item>& items);

// All keys but what belongs to a machine: [device] threads, [run] out, [plugins] path.
Item config_item(const Config& config);
// Those that are loaded, with the hashes of their files.
Item plugins_item(const Registry& registry);
// One for each group of this rank: what its members do together, in order.
std::vector<Item> collective_items(const Plan& plan);
// Of all of those.
std::string collective_hash(const Plan& plan);

}  // namespace eng
