// SPDX-License-Identifier: Apache-2.0
// The ranks of a run: this rank, groups of ranks, and the parts in which states are kept.
#pragma once

#include "core/trace/builder.hpp"

namespace eng {

// A part of every piece of a unit: range `index` of `count` equal ones. Each member of `group` keeps another index.
struct Part {
  uint32_t count = 1, index = 0;
  Id group = 1;
};

// The data-parallel ranks: they hold the same model and divide the rows of a batch, the states of units and the sums of
// gradients among them. In this version, these are all ranks of the world.
constexpr Id data_group = 1;

struct Ranks {
  World world;                                // all ranks
  std::vector<std::vector<uint32_t>> groups;  // index: id - 1; the first is `data_group`
  std::vector<Part> parts;                    // index: id - 1
  explicit Ranks(const World& world = {});
  const Part& part(Id id) const;  // 0: the whole
  const std::vector<uint32_t>& group(Id id) const { return groups[id - 1]; }
  uint32_t data_size() const { return static_cast<uint32_t>(group(data_group).size()); }
  bool single() const { return data_size() == 1; }
  uint32_t data_rank() const;  // this rank's index in `data_group`
  // True for one group of ranks that together hold all of what is kept as this part; for what every rank holds whole,
  // for the first rank alone.
  bool counts(Id part) const;
};

// The builder that a policy gets when it is created.
class RanksBuilder final : public Builder {
 public:
  explicit RanksBuilder(Ranks& ranks) : ranks_(ranks) {}
  eng_desc shape(Id) override { refuse("asking for a shape"); }
  std::vector<Id> emit(const Op&, std::vector<Id>, std::vector<Id>, Attrs) override { refuse("emitting an op"); }
  World world() override { return ranks_.world; }
  Id group(std::vector<uint32_t> ranks) override;
  Id part(const eng_part& part) override;

 private:
  Ranks& ranks_;
};

}  // namespace eng
