// SPDX-License-Identifier: Apache-2.0
// Values whose last dimension consists of several parts, as [gate | up] does, each of which ranks divide for itself.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/trace/builder.hpp"

namespace eng {

// The columns at which the parts but for the first one begin; none: the value is one part.
using Borders = std::set<int64_t>;

// The borders that the readers of a value need, each of which takes whole parts.
Borders borders_wanted(const Template& t, Id value);
// The borders of a node's outputs from those of its inputs, which are divided along the last dimension or have none.
// nullopt: the op would mix parts, so that a rank would need channels of others.
std::optional<std::vector<Borders>> borders_behind(const Graph& graph, const Node& node,
                                                   const std::vector<Borders>& in);
// The sizes of the parts of so many columns.
std::vector<int64_t> parts_of(const Borders& borders, int64_t columns);
// The range `cut` of a tensor, of each of these parts along its dimension.
Divided divided_in(const eng_desc& whole, const std::vector<int64_t>& parts, Divided cut);
// True if both divide a tensor alike, whichever range each is.
bool alike(const Divided& a, const Divided& b);
inline bool is_one_of(const Node& node, std::initializer_list<const char*> ids) {
  return std::any_of(ids.begin(), ids.end(), [&](const char* id) { return node.op->id == std::string(id); });
}
// True if an attribute of a reshape, a split or a concatenation is a number of elements along a dimension of its
// outputs.
bool is_size_along(int32_t dim, const Node& node, const std::string& key);
// True for a reshape that leaves the last dimension what it is.
bool keeps_last(const Graph& graph, const Node& node);

}  // namespace eng
