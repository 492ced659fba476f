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

// All ranks, as `pipeline` stages of `tensor` x data ranks. A stage has some of the model's blocks, and its ranks
// follow each other; those of the same number in their stages are a column, and read the same rows. Neighbours in a
// stage are a tensor group: they divide the tensors of one model and read the same rows. The ranks of the same number
// in the tensor groups of a stage are a data group. `context` neighbours in it are a context group: they read the same
// rows, of which each computes 1/context of the positions. To policies they are data ranks like others. A stage may
// have several parts of the model: virtual stages, which follow each other through all stages, and then again. The
// first `reference_stages` parts of a stage are of a reference model, and nothing goes back through them.
struct Ranks {
  World world;  // all ranks
  uint32_t tensor, context, pipeline, virtual_stages = 1, reference_stages = 0;
  std::vector<std::vector<uint32_t>> groups;  // index: id - 1; the first is all ranks
  std::vector<Part> parts;                    // index: id - 1
  // `tensor` x `context` x `pipeline` divides the number of ranks.
  explicit Ranks(const World& world = {}, uint32_t tensor = 1, uint32_t context = 1, uint32_t pipeline = 1);
  const Part& part(Id id) const;  // 0: the whole
  const std::vector<uint32_t>& group(Id id) const { return groups[id - 1]; }
  // This rank's groups, its numbers in them, and their sizes.
  Id data() const { return own_[0]; }
  Id tensor_group() const { return own_[1]; }
  uint32_t data_rank() const { return column_rank() / tensor; }
  uint32_t tensor_rank() const { return world.rank % tensor; }
  uint32_t data_size() const { return stage_size() / tensor; }
  Id context_group() const { return own_[2]; }
  uint32_t context_rank() const { return data_rank() % context; }
  // Its stage, the ranks of a stage, its number among these, the ranks of this number in all stages, and those in
  // `stage` and the next one; after the last stage comes the first.
  uint32_t stage() const { return world.rank / stage_size(); }
  uint32_t stage_size() const { return world.size / pipeline; }
  uint32_t column_rank() const { return world.rank % stage_size(); }
  Id column() const { return own_[3]; }
  Id pair(uint32_t stage) const { return own_[4] + stage * stage_size() + column_rank(); }
  // Its number among the sets of ranks of a stage with rows of their own, how many ranks such a set has, and how many
  // sets there are.
  uint32_t row_rank() const { return column_rank() / same_rows(); }
  uint32_t same_rows() const { return tensor * context; }
  uint32_t row_size() const { return stage_size() / same_rows(); }
  bool single() const { return data_size() == 1; }
  World data_world() const { return {data_rank(), data_size(), 0, 1}; }
  // True for one group of ranks that together hold all of what is kept as this part; for what every rank of a data
  // group holds whole, for its first rank alone.
  bool counts(Id part) const;

 private:
  std::vector<Id> own_;  // data group, tensor group, context group, column; and the first pair
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
