// SPDX-License-Identifier: Apache-2.0
// Ops of which a rank computes some channels, and which read channels of all ranks of a tensor group.
#pragma once

#include "core/trace/graph.hpp"

namespace eng {

// Emits them into a template. Ids are those of its values, of this rank; `index` is its number of `n`, and `group` the
// attributes of the group's collectives.
struct AcrossRanks {
  Template& to;
  const uint32_t n, index;
  const Attrs group;

  // This rank's channels of a norm `op` over all, with a whole weight (and bias): in[0] is x. All ranks compute it
  // alike from the sum of all channels, each among zeros. What reads it gives each rank its summand of the gradient.
  Id normed(const Op& op, std::vector<Id> in, const Attrs& attrs);
  // This rank's channels, along an axis, of what is dropped of all: an element is dropped by its number in the whole.
  Id dropped(Id x, int64_t axis, const Attrs& attrs);
  // eng.mamba.ssd/1 of this rank's heads, where some ranks share a group: of B and C a rank has 1/N of all columns,
  // and reads those of its group. `attrs` are of all heads.
  Id scanned(const Op& op, std::vector<Id> in, const Attrs& attrs);
  // eng.mamba.gated_norm/1 where some ranks share a group, with a whole weight, as `normed`. `attrs` are of all groups.
  Id gated_normed(std::vector<Id> in, const Attrs& attrs);
  // The norm with this rank's part of the weight: only the sums of squares are of all ranks, in the order of
  // eng.fold/1.
  Id normed_by_sums(const std::vector<Id>& in, const Attrs& attrs);

 private:
  Id made(const char* id, std::vector<Id> in, Attrs attrs);
  std::vector<Id> split(Id x, int64_t axis, int64_t parts);
  Id all_channels(Id x);
  int64_t columns(Id x) const;
};

}  // namespace eng
