// SPDX-License-Identifier: Apache-2.0
#include "session/model/across_ranks.hpp"

#include <fmt/format.h>

#include "engine/ops_parallel.h"
#include "session/model/divided_ops.hpp"

namespace eng {

Id AcrossRanks::made(const char* id, std::vector<Id> in, Attrs attrs) {
  return to.graph.emit(op(id), std::move(in), std::move(attrs))[0];
}
std::vector<Id> AcrossRanks::split(Id x, int64_t axis, int64_t parts) {
  return to.graph.emit(op(ENG_OP_SPLIT), {x}, {{{"axis", axis, 0}, {"parts", parts, 0}}});
}
int64_t AcrossRanks::columns(Id x) const {
  const eng_desc& d = to.graph.value(x).desc;
  return d.dims[d.ndim - 1];
}

// The sum of the ranks' channels, each among zeros.
Id AcrossRanks::all_channels(Id x) {
  const int64_t axis = to.graph.value(x).desc.ndim - 1;
  Attrs joined{{{"axis", axis, 0}}};
  std::vector<Id> channels(n, 0);
  for (uint32_t k = 0; k < n; ++k) joined.list.push_back({fmt::format("size{}", k), columns(x), 0});
  channels[index] = x;
  return made(ENG_OP_GROUP_SUM, {made(ENG_OP_CONCAT, std::move(channels), std::move(joined))}, group);
}

Id AcrossRanks::normed(const Op& op, std::vector<Id> in, const Attrs& attrs) {
  in[0] = all_channels(in[0]);
  const Id y = to.graph.emit(op, std::move(in), attrs)[0];
  to.summed[y] = group;
  return split(y, to.graph.value(y).desc.ndim - 1, n)[index];
}

Id AcrossRanks::dropped(Id x, int64_t axis, const Attrs& attrs) {
  const Id all = made(ENG_OP_CONCAT, std::vector<Id>(n, x), {{{"axis", axis, 0}}});
  return split(made(ENG_OP_DROPOUT, {all}, attrs), axis, n)[index];
}

Id AcrossRanks::scanned(const Op& op, std::vector<Id> in, const Attrs& attrs) {
  const int64_t groups = attrs.i("groups"), sharing = n / groups, mine = index / sharing;
  const int64_t shared = groups * attrs.i("states") / n, channels = columns(in[0]) - 2 * shared;
  const std::vector<Id> own =
      to.graph.emit(eng::op(ENG_OP_SPLIT), {in[0]},
                    {{{"axis", 2, 0}, {"parts", 2, 0}, {"size0", channels, 0}, {"size1", 2 * shared, 0}}});
  const std::vector<Id> all = split(made(ENG_OP_GATHER_CHANNELS, {own[1]}, group), 2, n);  // [B | C] of each rank
  std::vector<Id> b, c;
  for (int64_t k = mine * sharing; k < (mine + 1) * sharing; ++k) {
    const std::vector<Id> both = split(all[static_cast<size_t>(k)], 2, 2);
    b.push_back(both[0]), c.push_back(both[1]);
  }
  const Attrs last{{{"axis", 2, 0}}};
  const auto joined = [&](std::vector<Id> list) {
    return list.size() == 1 ? list[0] : made(ENG_OP_CONCAT, std::move(list), last);
  };
  const Id b_all = joined(std::move(b)), c_all = joined(std::move(c));
  in[0] = made(ENG_OP_CONCAT, {own[0], b_all, c_all}, last);
  Attrs one = attrs;
  for (Attr& a : one.list)
    if (a.key == "groups") a.i = 1;
  return to.graph.emit(op, std::move(in), std::move(one))[0];
}

Id AcrossRanks::normed_by_sums(const std::vector<Id>& in, const Attrs& attrs) {
  const int64_t groups = attrs.i("groups"), sharing = n / groups;
  const Attr at{"at", index / sharing, 0};
  const Id mine = made(op_gated_squares, {in[0], in[1]}, {{{"groups", groups, 0}, at}});
  const Id sums = made(ENG_OP_GROUP_SUM, {mine}, group);
  to.summed[sums] = group;  // the gradient of each group's sum has summands of the ranks that share it
  const Attr width{"columns", columns(in[0]) * sharing, 0};
  return made(op_gated_norm_part, {in[0], in[1], in[2], sums}, {{at, width, {"eps", 0, attrs.f("eps")}}});
}

Id AcrossRanks::gated_normed(std::vector<Id> in, const Attrs& attrs) {
  const int64_t groups = attrs.i("groups"), sharing = n / groups;
  const Attrs eps{{{"eps", 0, attrs.f("eps")}}};
  const Id x = made(ENG_OP_GATED, {in[1], in[0]}, {{{"act", ENG_ACT_SILU, 0}}});
  if (groups == 1) return normed(eng::op(ENG_OP_RMS_NORM), {x, in[2]}, eps);
  const Id all = all_channels(x);
  to.summed[all] = group;
  const auto mine = static_cast<size_t>(index / sharing);
  const Id y = made(ENG_OP_RMS_NORM, {split(all, 2, groups)[mine], split(in[2], 0, groups)[mine]}, eps);
  return split(y, 2, sharing)[static_cast<size_t>(index % sharing)];
}

}  // namespace eng
