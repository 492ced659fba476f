// SPDX-License-Identifier: Apache-2.0
// The ranks that share a step: who this is, groups of them, and the parts that states are kept in.
#pragma once

#include "core/trace/builder.hpp"

namespace eng {

// Of every piece of a unit: of `count` equal ranges, number `index`. Member k of `group` keeps another index each.
struct Part {
  uint32_t count = 1, index = 0;
  Id group = 1;
};

// The ranks that share data parallelism: they hold the same model, and cut the rows of a batch, the states of units and
// the sums of gradients between them. In this version all ranks of the world do.
constexpr Id data_group = 1;

struct Ranks {
  World world;                                // all ranks, whatever they share
  std::vector<std::vector<uint32_t>> groups;  // id - 1; the first is `data_group`
  std::vector<Part> parts;                    // id - 1
  explicit Ranks(const World& world = {});
  const Part& part(Id id) const;  // 0: the whole
  const std::vector<uint32_t>& group(Id id) const { return groups[id - 1]; }
  uint32_t data_size() const { return static_cast<uint32_t>(group(data_group).size()); }
  uint32_t data_rank() const;  // which member of `data_group` this rank is, from 0
};

// What a policy gets at its creation.
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
