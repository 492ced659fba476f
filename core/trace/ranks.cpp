// SPDX-License-Identifier: Apache-2.0
#include "core/trace/ranks.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/error.hpp"

namespace eng {

Ranks::Ranks(const World& w) : world(w), groups(1, std::vector<uint32_t>(w.size)) {
  std::iota(groups[0].begin(), groups[0].end(), 0u);
}

uint32_t Ranks::data_rank() const {
  const std::vector<uint32_t>& members = group(data_group);
  return static_cast<uint32_t>(std::find(members.begin(), members.end(), world.rank) - members.begin());
}

const Part& Ranks::part(Id id) const {
  static const Part whole;
  return id ? parts[id - 1] : whole;
}

bool Ranks::counts(Id id) const {
  if (!id) return data_rank() == 0;
  const std::vector<uint32_t>& holders = group(part(id).group);
  return std::count(holders.begin(), holders.end(), group(data_group)[0]) > 0;
}

Id RanksBuilder::group(std::vector<uint32_t> ranks) {
  const std::set<uint32_t> distinct(ranks.begin(), ranks.end());
  if (ranks.empty() || distinct.size() != ranks.size() || *distinct.rbegin() >= ranks_.world.size)
    throw fault("a group of ranks {} is invalid: it needs distinct ranks below {}", fmt::join(ranks, ", "),
                ranks_.world.size);
  ranks_.groups.push_back(std::move(ranks));
  return static_cast<Id>(ranks_.groups.size());
}

Id RanksBuilder::part(const eng_part& p) {
  const bool known = p.group && p.group <= ranks_.groups.size();
  const auto* members = known ? &ranks_.group(p.group) : nullptr;
  if (!members || p.count != members->size() || p.index >= p.count ||
      !std::count(members->begin(), members->end(), ranks_.world.rank))
    throw fault("part {} of {} does not fit group {} of this rank", p.index, p.count, p.group);
  if (ranks_.data_size() % p.count) throw fault("{} parts do not divide {} ranks", p.count, ranks_.data_size());
  ranks_.parts.push_back({p.count, p.index, p.group});
  return static_cast<Id>(ranks_.parts.size());
}

}  // namespace eng
