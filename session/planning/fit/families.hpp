// SPDX-License-Identifier: Apache-2.0
// The families of settings that a search looks at, the fastest first, by bounds of one of their members.
#pragma once

#include <set>
#include <tuple>

#include "session/planning/fit/trial.hpp"

namespace eng {

// The settings that differ in more than the micro-batch.
struct Family {
  Point point;
  Tried fastest;       // a bound of it: with the largest micro-batch, whether it fits or not
  bool rough = false;  // it is that of the same way without recomputing, which is faster, or less than any plan takes
};
// By `better`.
void sort(std::vector<Family>& families);

// All members that make plans throw Spent if there is no time left for them.
class Families {
 public:
  Families(const Config& config, Registry& registry, const Target& target, const World& world, double most_seconds,
           bool lossy);
  Trial trial;
  const Grid grid;

  // Adds the families of settings of a number format, without strategies that are ruled out by their plan without
  // recomputing: weights, states and gradients alone are too large, which `too_large` is told, or computing alone takes
  // `limit` seconds.
  void add(size_t format, double limit, size_t offload, std::vector<Family>& out, std::vector<Tried>& too_large);

  Edits edits(const Point& point);
  Tried with(Tried tried, const Point& point) const;
  Tried bound(const Point& point);
  Tried whole(const Point& point);
  // Less than a step of a pipeline takes.
  double least_seconds(const Point& point);
  // The time without recomputing of a family whose first estimate is that of another way; else 0.
  double without_recomputing(Point point);
  // False if what takes less memory than a family with stages does not fit: with one part of the model on each stage
  // and the sums of each micro-batch, first with everything recomputed.
  bool may_fit(Point point);

 private:
  // The families of a way with stages, or with `sequence`: with less than they take, until that may be fast enough.
  void add_rough(size_t w, size_t format, double limit, size_t offload, std::vector<Family>& out);
  uint64_t row_bytes(const Point& point);
  Tried one_group(Point point);
  // True if the configuration's number format takes neither more time nor more memory, and no more for activations,
  // which ranks send each other.
  bool dominated(Point point);
  // False if one sequence at a time, of which fewer ranks have parts, fits without recomputing: as many tokens of a
  // rank are then whole sequences, with nothing to exchange. False, too, if weights and states alone do not fit: parts
  // of sequences do not change them.
  bool needs_context(const Way& way, size_t format, size_t offload);
  // True if the ranks can divide the model so at all.
  bool possible(const Way& way);

  const Config& config_;
  const World world_;
  const uint64_t device_;  // bytes of memory
  // Per way of Grid::ways: without `sequence`; with one part of the model on each stage, and the sums as they are.
  const std::vector<size_t> whole_positions_, leanest_;
  size_t most_again_ = 0;  // of Grid::keeps: everything is recomputed; likewise
  size_t plain_ = 0;       // of Grid::keeps: no recomputing; the first if the configuration says so itself
  std::map<std::string, uint64_t> row_bytes_;  // by number format and degrees
  // By degrees, number format and offload: `needs_context` of the next larger `context`.
  std::map<std::tuple<std::string, size_t, size_t>, bool> context_helps_;
  // Degrees, number formats and offloads of which no way fits, or of which there is no plan.
  std::set<std::tuple<std::string, size_t, size_t>> hopeless_;
};

}  // namespace eng
