// SPDX-License-Identifier: Apache-2.0
// Plans one setting: first without a layout, then, if that may fit, whole.
#pragma once

#include <functional>
#include <limits>
#include <map>

#include "session/planning/estimate.hpp"
#include "session/planning/fit/grid.hpp"
#include "session/planning/peak.hpp"
#include "session/planning/setup.hpp"

namespace eng {

// A setting that was planned.
struct Tried {
  Edits edits;
  Effect effect;
  uint32_t ranks = 1;
  int64_t micro = 0;  // sequences of a micro-batch
  Peak peak;
  // Bytes of the device that depend neither on [recompute] nor on the micro-batch, at least: of all ranks that share
  // it.
  uint64_t fixed = 0;
  Excess excess;         // of what is there
  double seconds = 0;    // of a step; in rates of no device in particular where the device states none
  double computing = 0;  // of these, what the actions take that compute, one after the other
  double memory = 0;     // of these, those that the memory bounds
  double pass = 0;       // of a micro-batch, without the update
  BoundBy bound = BoundBy::compute;
  std::string largest;      // what takes most where it does not fit: "arena cuda: optimizer 50.2 GiB, ..."
  std::string fixed_parts;  // what takes most of `fixed`
  std::string refused;      // why there is no such plan; else ""
  bool placed = false;      // false: what no layout can go below
};

bool fits(const Tried& tried);
// Faster; if equally fast, with fewer edits; if as many, with the same numbers.
bool better(const Tried& a, const Tried& b);
// The attempt with only the memory that no change of [recompute] and of the micro-batch avoids.
Tried only_fixed(Tried tried, Edits edits, uint64_t available);
// The rates of the device; of none in particular where it states none.
Machine rates_of(const Setup& setup, const Config& config);

// Thrown by the members of a Trial whose processor time is spent.
struct Spent {};

class Trial {
 public:
  // `most_seconds`: of processor time of this process, from now on. `several`: there are many settings to try.
  Trial(const Config& config, Registry& registry, double most_seconds = std::numeric_limits<double>::infinity(),
        bool several = false);
  // From now on, until the next call, this share of the time that is left.
  void allow(double share);
  // A lower bound of every layout of this setting, and its time; for a model with many layers, read off plans with few,
  // and for a pipeline, off plans of its first and its last stage with few micro-batches.
  Tried bound(const Edits& edits, const World& world);
  // Needs and time of the whole plan; of a pipeline, of its largest stage and of all. Both make a plan only once.
  Tried whole(const Edits& edits, const World& world);
  // Bytes that are kept of a sequence without recomputing, in this number format.
  uint64_t row_bytes(const Edits& format, const World& world);
  // True if a model has so many layers that nothing but plans with few is made of most settings.
  bool deep() const;
  size_t plans() const { return plans_; }

 private:
  Tried measured(const Setup& setup, const Config& config, const Edits& edits);
  // Pipelines: trial_stages.cpp. `stage`: one stage of a step with so many micro-batches, as one of all of them needs
  // it.
  struct Stage;
  Stage stage(const Edits& edits, const World& world, uint32_t number, uint32_t micro_batches, bool placed);
  Tried staged(const Edits& edits, const World& world, bool placed);
  Tried sketch(const Edits& edits, const World& world, int64_t layers);
  Tried new_bound(const Edits& edits, const World& world);
  Tried new_whole(const Edits& edits, const World& world);
  // True if plans with few layers tell about the whole one.
  bool on_few(const Edits& edits) const;
  Tried guarded(const Edits& edits, const World& world, const std::function<Tried()>& plan);
  const Config& config_;
  Registry& registry_;
  Available available_;
  size_t plans_ = 0;
  const double last_;                             // by processor_seconds
  double end_;                                    // likewise, of what is allowed
  const int64_t most_layers_;                     // of a model that is planned whole at once
  std::map<std::string, Tried> bounds_, wholes_;  // by their edits and ranks
};

}  // namespace eng
