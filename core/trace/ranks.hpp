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

// The ranks that policies know: those that divide the rows of a batch, the states of units and the sums of
// gradients. To them these are all ranks, and this is the group of all.
constexpr Id data_group = 1;

// All ranks, as `tensor` x data ranks. Neighbours are a tensor group: they divide the tensors of one model and read the
// same rows. The ranks of the same number in their tensor groups are a data group. `context` neighbours in it are a
// context group: they read the same rows, of which each computes 1/context of the positions. To policies they are data
// ranks like others.
struct Ranks {
  World world;  // all ranks
  uint32_t tensor, context;
  std::vector<std::vector<uint32_t>> groups;  // index: id - 1; the first is all ranks
  std::vector<Part> parts;                    // index: id - 1
  // `tensor` x `context` divides the number of ranks.
  explicit Ranks(const World& world = {}, uint32_t tensor = 1, uint32_t context = 1);
  const Part& part(Id id) const;  // 0: the whole
  const std::vector<uint32_t>& group(Id id) const { return groups[id - 1]; }
  // This rank's groups, its numbers in them, and their sizes.
  Id data() const { return tensor == 1 ? data_group : 2 + tensor_rank(); }
  Id tensor_group() const { return 2 + tensor + data_rank(); }
  uint32_t data_rank() const { return world.rank / tensor; }
  uint32_t tensor_rank() const { return world.rank % tensor; }
  uint32_t data_size() const { return world.size / tensor; }
  Id context_group() const { return static_cast<Id>(context_base() + row_rank() * tensor + tensor_rank() + 1); }
  uint32_t context_rank() const { return data_rank() % context; }
  // This rank's number among the sets of ranks with rows of their own, how many ranks such a set has, and their number.
  uint32_t row_rank() const { return world.rank / same_rows(); }
  uint32_t same_rows() const { return tensor * context; }
  uint32_t row_size() const { return world.size / same_rows(); }
  bool single() const { return data_size() == 1; }
  World data_world() const { return {data_rank(), data_size(), 0, 1}; }
  // True for one group of ranks that together hold all of what is kept as this part; for what every rank of a data
  // group holds whole, for its first rank alone.
  bool counts(Id part) const;

 private:
  size_t context_base() const { return tensor == 1 ? 1 : 1 + tensor + data_size(); }
};

// The builder that a policy gets when it is created.
class RanksBuilder final : public Builder {
 public:
  explicit RanksBuilder(Ranks& ranks) : ranks_(ranks) {}
  eng_desc shape(Id) override { refuse("asking for a shape"); }
  std::vector<Id> emit(const Op&, std::vector<Id>, std::vector<Id>, Attrs) override { refuse("emitting an op"); }
  World world() override { return ranks_.data_world(); }
  Id group(std::vector<uint32_t> ranks) override;
  Id part(const eng_part& part) override;

 private:
  Ranks& ranks_;
};

}  // namespace eng
