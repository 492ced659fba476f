// SPDX-License-Identifier: Apache-2.0
#include "core/trace/ranks.hpp"

#include <algorithm>
#include <set>

#include "core/base/error.hpp"

namespace eng {

Ranks::Ranks(const World& w, uint32_t divided, uint32_t shards)
    : world(w), tensor(divided), context(shards), groups(context_base() + (context == 1 ? 0 : world.size / context)) {
  for (uint32_t r = 0; r < w.size; ++r) {
    groups[0].push_back(r);
    if (context > 1) groups[context_base() + r / same_rows() * tensor + r % tensor].push_back(r);
    if (tensor == 1) continue;
    groups[1 + r % tensor].push_back(r);
    groups[1 + tensor + r / tensor].push_back(r);
  }
}

const Part& Ranks::part(Id id) const {
  static const Part whole;
  return id ? parts[id - 1] : whole;
}

bool Ranks::counts(Id id) const {
  if (!id) return data_rank() == 0;
  const std::vector<uint32_t>& holders = group(part(id).group);
  return std::count(holders.begin(), holders.end(), group(data())[0]) > 0;
}

Id RanksBuilder::group(std::vector<uint32_t> ranks) {
  const std::set<uint32_t> distinct(ranks.begin(), ranks.end());
  if (ranks.empty() || distinct.size() != ranks.size() || *distinct.rbegin() >= ranks_.data_size())
    throw fault("a group of ranks {} is invalid: it needs distinct ranks below {}", fmt::join(ranks, ", "),
                ranks_.data_size());
  const auto first = static_cast<Id>(ranks_.groups.size() + 1);
  for (uint32_t t = 0; t < ranks_.tensor; ++t) {  // all ranks make the same groups
    auto& members = ranks_.groups.emplace_back(ranks);
    for (uint32_t& r : members) r = r * ranks_.tensor + t;
  }
  return first + ranks_.tensor_rank();
}

Id RanksBuilder::part(const eng_part& given) {
  eng_part p = given;
  if (p.group == data_group) p.group = ranks_.data();
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
