// SPDX-License-Identifier: Apache-2.0
// Observers: shows them the sites of a training step, and takes their results to the host with the losses.
#pragma once

#include "core/plan/exchange.hpp"
#include "core/plan/homes.hpp"

namespace eng {

class Observing {
 public:
  // Asks for the results of every block's outputs: they make the rows of the losses longer.
  Observing(const PlanRequest& request, Plan& plan, Emitter& emitter);
  void start(const Homes& homes, Exchange& exchange) { homes_ = &homes, exchange_ = &exchange; }
  bool any() const { return !observers().empty(); }

  // The outputs of a block, in a micro-batch; `row` is that of its results.
  void block(uint32_t b, const std::vector<View>& outputs, const View& row);
  // Emits the observations of gradients, between the micro-batches and the update.
  void gradients();
  // Before and after the update of a part of unit u that this rank has, at `place`, or instead of both where it has
  // none. `part`: that of the master. What the first returns the second is given.
  View before_update(size_t u, Id part, const View& master, uint32_t place);
  void after_update(size_t u, Id part, const std::vector<eng_range>& ranges, const View& master, const View& old);
  void no_update(size_t u) { after_update(u, 0, {}, {}, {}); }
  // The scalars; then room for all results.
  void finish();

 private:
  struct Result {
    std::string name;
    uint32_t combine, flags;
  };
  const std::vector<Observer>& observers() const { return r_.observers; }
  eng_site site(uint32_t what, uint32_t block, uint32_t output = 0) const;
  std::vector<Result> results(size_t observer, const eng_site& site) const;
  // Records a result's place: the number of its value in a row, or among those of a step.
  void take(size_t observer, const Result& result, bool in_row, uint32_t number);
  // The places of the results of a step that an observer gives at a site.
  std::vector<View> places(size_t observer, const std::vector<Result>& results);
  bool wants(const eng_site& site) const;
  // Every observer's results of a site, into places of a step. Without a value this rank has none.
  void observe(eng_site site, const View& value, const std::vector<eng_range>& ranges);
  void emit(size_t observer, eng_site site, const View& value, const std::vector<Result>& results,
            const std::vector<View>& places);
  View scalars_beside(const View& value);
  bool watched(uint32_t what, size_t u) const;

  const PlanRequest& r_;
  Plan& plan_;
  Emitter& emit_;
  const Homes* homes_ = nullptr;
  Exchange* exchange_ = nullptr;
  std::map<std::tuple<size_t, uint32_t, uint32_t>, uint32_t> rows_;  // observer, block, output -> first value in a row
  std::map<uint32_t, View> scalars_;                                 // per arena of a tier
};

}  // namespace eng
