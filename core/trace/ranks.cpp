// SPDX-License-Identifier: Apache-2.0
#include "core/trace/ranks.hpp"

#include <algorithm>
#include <set>

#include "core/base/error.hpp"

namespace eng {

Ranks::Ranks(const World& w, uint32_t divided, uint32_t shards, uint32_t stages)
    : world(w), tensor(divided), context(shards), pipeline(stages), groups(1) {
  for (uint32_t r = 0; r < w.size; ++r) groups[0].push_back(r);
  // Makes `number` groups, unless there are no such ones.
  const auto divide = [&](uint32_t degree, uint32_t number, auto group_of) {
    const auto before = static_cast<Id>(groups.size());
    own_.push_back(degree == 1 ? data_group : before + 1 + group_of(w.rank));
    groups.resize(before + (degree == 1 ? 0 : number));
    for (uint32_t r = 0; degree > 1 && r < w.size; ++r) groups[before + group_of(r)].push_back(r);
  };
  divide(tensor * pipeline, tensor * pipeline, [&](uint32_t r) { return r / stage_size() * tensor + r % tensor; });
  divide(tensor, w.size / tensor, [&](uint32_t r) { return r / tensor; });
  divide(context, w.size / context, [&](uint32_t r) { return r / same_rows() * tensor + r % tensor; });
  divide(pipeline, stage_size(), [&](uint32_t r) { return r % stage_size(); });
  own_.push_back(static_cast<Id>(groups.size() + 1));
  for (uint32_t r = 0, n = stage_size(); pipeline > 1 && r < w.size; ++r)
    groups.push_back({std::min(r, (r + n) % w.size), std::max(r, (r + n) % w.size)});
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
  for (uint32_t k = 0; k < ranks_.tensor * ranks_.pipeline; ++k) {  // all ranks make the same groups
    auto& members = ranks_.groups.emplace_back(ranks);
    for (uint32_t& r : members) r = k / ranks_.tensor * ranks_.stage_size() + r * ranks_.tensor + k % ranks_.tensor;
  }
  return first + ranks_.stage() * ranks_.tensor + ranks_.tensor_rank();
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
