// SPDX-License-Identifier: Apache-2.0
// [device] as its plugin gets it: with a number for the scratch of attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/registry/registry.hpp"
#include "session/cards/card.hpp"
#include "session/config/config.hpp"

namespace eng {

// The key of the plugin of the engine's cards, and its word for what is found by planning
// (session/planning/free_workspace.hpp).
constexpr const char* workspace_key = "attention_workspace";
constexpr const char* free_word = "free";

// The key by default, for a card of so many bytes (0: unknown): 1/64 of them, to the nearest multiple of 256 MiB, at
// least 512 MiB. Cards of one kind report totals that differ by some 100 MiB; the steps are far from those of all cards
// (tests/session/report/workspace_test.cpp), so that a described card has the value of a real one. The value depends on
// nothing else: neither on the strategy nor on what is recomputed or offloaded, which change no bit of a run.
constexpr uint64_t usual_workspace(uint64_t memory) {
  constexpr uint64_t mib = uint64_t{1} << 20, step = 256 * mib;
  return std::max(512 * mib, (memory / 64 + step / 2 - 1) / step * step);
}

// That of a card; a card's file may give a kernel more.
uint64_t usual_workspace(const Card& card);
// Its number, if [device] plugin is that one and it has one.
std::optional<uint64_t> workspace_of(const Section& device);
// True if [device] plugin is that one, and its value is no number yet: it is absent, or "free".
bool unsettled_workspace(const Section& device);
// [device] with the number by default if `unsettled_workspace`; otherwise as it is. `card`: of [device] describe;
// without one, the plugin is asked for the memory of the device that is here.
Section device_section(const Config& config, Registry& registry, const std::optional<Card>& card);
void set_workspace(Section& device, uint64_t bytes, const std::string& origin);

}  // namespace eng
