// SPDX-License-Identifier: Apache-2.0
// The estimated step over time: engine plan --timeline. It draws the simulation that the estimate is made of.
#pragma once

#include <string>
#include <vector>

#include "session/planning/estimate.hpp"

namespace eng {

// One row of the drawing. `link`, `network`: collectives whose group lies in one node, or in several.
enum class Lane : uint8_t { compute, link, network, to_device, to_host, host, reads, writes };
constexpr size_t lane_count = 8;
const char* to_string(Lane lane);

// Times are in seconds from the start of the step.
struct Slice {
  double start = 0, seconds = 0;
  Lane lane = Lane::compute;
  uint32_t call = 0, label = 0;  // indices into Plan::calls and Plan::labels
};
struct Stretch {
  std::string name;               // of the segment
  double start = 0, seconds = 0;  // of its first repetition
  uint32_t repeat = 1;
  std::vector<Slice> slices;  // of its first repetition; the others are the same, `seconds` apart
};
struct Timeline {
  std::vector<Stretch> stretches;  // in order
  double seconds = 0;              // StepTimes::step
};
Timeline timeline_of(const Plan& plan, const Machine& machine);

// A chart of `columns` characters for each lane, and the ops that take most of the time of each.
std::string timeline_text(const Timeline& timeline, const Plan& plan, size_t columns = 96);
// A file for chrome://tracing or ui.perfetto.dev. Repetitions are drawn action by action while the file has at most
// `most` of them, and as one slice each from then on.
std::string timeline_trace(const Timeline& timeline, const Plan& plan, size_t most = 200'000);

}  // namespace eng
