// SPDX-License-Identifier: Apache-2.0
// Devices that need not be there: [device] describe. One TOML file for each; users add theirs by path.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace eng {

// The contents of a card's file. 0: not said. Rates are in bytes per second in one direction, or FLOP/s without
// sparsity.
struct Card {
  std::string name;    // "a800-80g"; a path; a size, as given
  std::string plugin;  // the device plugin that drives it; "" for a size: the one of [device]
  uint32_t arch = 0;
  uint64_t memory = 0;        // bytes, as the driver reports them
  uint64_t reserve = 0;       // of these, for the driver's context and libraries
  uint64_t communicator = 0;  // of these, with several ranks
  uint64_t workspace = 0;     // the most scratch of a kernel
  double peak_f32 = 0, peak_tf32 = 0, peak_bf16 = 0, peak_f16 = 0, peak_fp8 = 0;
  double reach = 0;  // the part of its peaks that products reach; 0: as usual
  double memory_bandwidth = 0;
  double pcie = 0;                               // to and from the host
  double link = 0;                               // to the other cards of its host; where it has none, they use `pcie`
  uint32_t node = 0;                             // cards of a host
  double network = 0;                            // of each card, to other hosts
  double link_latency = 0, network_latency = 0;  // seconds of a message in addition to its bytes
  std::vector<std::string> assumed;              // keys whose figures have no source
  bool assumes(const std::string& name) const {
    return std::find(assumed.begin(), assumed.end(), name) != assumed.end();
  }
};

// The names of the cards that come with the engine.
std::vector<std::string> card_names();
// The whole name of the card that people call so: "4090" is rtx4090, "h100" is h100-80g. The text itself if there is
// none, or more than one.
std::string card_meant(const std::string& text);
// True if a text is a number of bytes so small that it is hardly meant: below 1 MiB, without a unit.
bool lacks_unit(const std::string& text);
// By name; by path, relative to `base_dir`, if the text has a slash or ends in ".toml"; or "24GiB": a device of the
// configured plugin with that much memory. `whose` is the key or flag with this text, for messages. Throws
// Error(Exit::usage).
Card find_card(const std::string& text, const std::filesystem::path& base_dir, const std::string& whose);
// The text of a card's file; `where` is its name in messages. Throws Error(Exit::usage).
Card read_card(const std::string& text, const std::string& where);

}  // namespace eng
