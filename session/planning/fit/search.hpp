// SPDX-License-Identifier: Apache-2.0
// The fastest settings that fit, by real plans.
#pragma once

#include "session/planning/fit/families.hpp"

namespace eng {

// Another number format is proposed only if nothing fits in the configuration's own, or if its step takes less than
// this share of the time: estimates that are closer than that do not tell which is faster.
constexpr double other_format = 0.99;

struct Fit {
  std::string device;   // "a800-80g", or the name of the device's plugin
  Available available;  // memory
  uint64_t reserve = 0;
  bool assumed = false;  // the reserve has no source
  uint32_t ranks = 1;
  int64_t rows = 0;                 // sequences per step, of all ranks
  int64_t tokens = 0;               // likewise
  bool timed = false;               // the device states its rates
  bool host_memory = false;         // that of the device is host memory
  std::optional<Tried> same, best;  // the fastest that keeps the numbers; the fastest of all, if it does not
  std::optional<Tried> second;      // the fastest of the others with other settings than the micro-batch
  std::optional<Tried> own_format;  // the fastest in the configuration's number format, if that is none of these
  std::vector<Tried> fastest;       // of those that differ in more than the micro-batch, at most five for several ranks
  std::vector<Tried> too_large;     // with the smallest micro-batch; those that need least first
  bool own_fits = false;            // something in the configuration's number format
  // If nothing fits in the configuration's number format: the least changes that would fit, each with its effect.
  std::vector<Tried> remedies;
  size_t plans = 0;
  bool cut = false;  // the search ended before its end
};

// Exit::done if something fits; otherwise the code with which a run of the configuration ends.
Exit refusal(const Fit& fit);

// Plans for `world`'s rank. Of each setting but the micro-batch, the largest micro-batch that fits counts: it is the
// fastest of them. A plan is laid out only if the bytes that are live at a time fit; with one setting, memory falls
// with the micro-batch, but for a step of one micro-batch, which frees its gradients early and is planned separately.
// Models of many layers are planned with few first. The search ends after `most_seconds` of processor time,
// with the best that it has found: none of its parts takes all of the time.
// Throws Error(Exit::usage) if the memory of the device is unknown.
// `lossy`: also with options of strategies that change values which they move.
Fit find_fit(const Config& config, Registry& registry, const World& world,
             double most_seconds = std::numeric_limits<double>::infinity(), bool lossy = false);

}  // namespace eng
