// SPDX-License-Identifier: Apache-2.0
// The order in which a rank of a pipeline does its passes and its exchanges with others.
#pragma once

#include <cstdint>
#include <vector>

namespace eng {

// `ranks` ranks have `parts` virtual stages each: rank r the virtual stages r, r + ranks, r + 2 ranks, ... Through all
// of them, in turn, go the micro-batches of a step. The first `reference` parts, none or half of them, are of a
// reference model: nothing goes back through them.
struct Pipeline {
  uint32_t ranks = 1, parts = 1, micro_batches = 1, reference = 0;
  uint32_t stages() const { return ranks * parts; }
  uint32_t first_back() const { return ranks * reference; }  // the first virtual stage with a backward
  uint32_t stage(uint32_t rank, uint32_t part) const { return part * ranks + rank; }
};

// A part of the step of a rank: what happens to a micro-batch in its virtual stage `part`, counted from 0. `..._back`:
// gradients.
struct StageTurn {
  enum What : uint8_t { receive, forward, send, receive_back, backward, send_back } what;
  uint32_t micro, part = 0;
  bool operator==(const StageTurn&) const = default;
  bool back() const { return what >= receive_back; }
  bool computes() const { return what == forward || what == backward; }
  bool sends() const { return what == send || what == send_back; }
};

// The steps of all ranks. Each does some forwards, then one forward and one backward in turn, then the backwards that
// are left: 1F1B (Narayanan et al. 2019, arXiv 1806.03377), with several parts interleaved (Narayanan et al. 2021,
// arXiv 2104.04473, section 2.2): a rank takes `ranks` micro-batches through a part, then the same ones through the
// next. Exchanges are in the order in which their values are made, if all virtual stages are equal: all ranks have
// their part of one order of everything, so none waits in a circle. Throws Error(Exit::bug) if there is no such order.
std::vector<std::vector<StageTurn>> turns_of(const Pipeline& pipeline);

// Seconds of a micro-batch in a virtual stage.
struct StageTime {
  double forward = 0, backward = 0;
};
// The seconds until all ranks have ended, if an exchange takes `exchange` seconds of both its ranks, beside their
// passes. `times`: per rank and part.
double pipeline_seconds(const Pipeline& pipeline, const std::vector<std::vector<StageTime>>& times, double exchange);

// The part of a step in which a rank waits, if all virtual stages are equal: (P - 1) / (V M + P - 1) for P ranks with V
// parts, if P divides the M micro-batches; with a reference (P - 1) / (4 / 3 V M + P - 1), V parts of each model.
double equal_bubble(const Pipeline& pipeline);

}  // namespace eng
