// SPDX-License-Identifier: Apache-2.0
#include "core/plan/units.hpp"

#include <algorithm>
#include <set>

#include "core/plan/emitter.hpp"

namespace eng {

Units::Units(const PlanRequest& request, Plan& plan) : model_(request.model), plan_(plan), rules_(request) {
  const auto sort_of = [&](uint32_t p) {
    const uint32_t packed = model_.params[p].packed ? ENG_PARAM_FROZEN : 0;
    return std::pair((model_.params[p].flags & ENG_PARAM_FP32) | packed, rules_.of(p).sort);
  };
  const Model& model = model_;
  const uint64_t grid = chunk * plan.ranks.data_size();
  std::vector<char> taken(model.params.size(), 0);
  unit_of_.resize(taken.size()), offset_of_.resize(taken.size());
  for (uint32_t b = 0; b < model.blocks.size(); ++b) {
    std::set<std::pair<uint32_t, uint32_t>> sorts;  // flags, sort
    for (uint32_t p : model.blocks[b].params) sorts.insert(sort_of(p));
    for (const auto& sort : sorts) {
      Unit unit{model.blocks[b].name, b, 0, 0, sort.first, {}};
      for (uint32_t p : model.blocks[b].params) {
        if (taken[p] || sort_of(p) != sort) continue;
        taken[p] = 1;
        unit_of_[p] = plan.units.size(), offset_of_[p] = unit.count;
        unit.params.push_back(p);
        unit.count += padded(p).count;
      }
      if (unit.params.empty()) continue;
      unit.count = std::max<uint64_t>(1, (unit.count + grid - 1) / grid) * grid;
      const bool moves = plan.ranks.data_size() > 1 || plan.has_tiers();
      unit.piece = !moves ? unit.count : std::clamp(request.bucket / 4 / grid * grid, grid, unit.count);
      plan.units.push_back(std::move(unit));
    }
  }
}

std::vector<size_t> Units::units_of(uint32_t block) const {
  auto at =
      std::partition_point(plan_.units.begin(), plan_.units.end(), [&](const Unit& u) { return u.block < block; });
  std::vector<size_t> out;
  for (; at != plan_.units.end() && at->block == block; ++at) out.push_back(size_t(at - plan_.units.begin()));
  return out;
}

std::vector<Range> Units::pieces(size_t u, bool whole) const {
  const uint64_t all = unit(u).count, step = whole ? all : unit(u).piece;
  std::vector<Range> out;
  for (uint64_t first = 0; first < all; first += step) out.push_back({first, std::min(step, all - first)});
  return out;
}

Range Units::kept(const Home& home, Range piece) const {
  const Part& part = plan_.ranks.part(home.part);
  const uint64_t n = piece.count / part.count;
  return {piece.first + n * part.index, n};
}

View Units::view(const Home& home, Range piece) const {
  if (piece.first >= home.cut) return view(*home.back, {piece.first - home.cut, piece.count});
  const Range range = kept(home, piece);
  const bool in_place = home.nested || !home.part;
  const uint64_t first = in_place ? range.first : piece.first / plan_.ranks.part(home.part).count;
  return slice(home.view, home.values(first), home.values(range.count));
}

View Units::part(const View& piece, Id part) const {
  const Part& p = plan_.ranks.part(part);
  const uint64_t n = static_cast<uint64_t>(eng::count(piece.desc)) / p.count;
  return slice(piece, n * p.index, n);
}

Range Units::padded(uint32_t p) const {
  Range r = elements(p);
  r.count = (r.count + chunk - 1) / chunk * chunk;
  return r;
}

std::vector<Range> Units::padding(size_t u) const {
  std::vector<Range> out;
  uint64_t end = 0;
  auto gap = [&](uint64_t to) {
    if (to > end) out.push_back({end, to - end});
  };
  for (uint32_t p : unit(u).params) {
    gap(offset_of_[p]);
    end = offset_of_[p] + elements(p).count;
  }
  gap(unit(u).count);
  return out;
}

View Units::parameter(const View& unit, uint32_t p) const {
  eng_desc desc = model_.params[p].desc;
  desc.dtype = unit.desc.dtype;
  return reshape(slice(unit, offset_of_[p], elements(p).count), desc);
}

std::vector<HeldRange> Units::ranges(const Home& home, uint32_t p) const {
  Range mine = elements(p);
  mine.count = (mine.count + home.per - 1) / home.per * home.per;  // its last block may be shorter
  std::vector<HeldRange> out;
  for (const Range& piece : pieces(unit_of_[p], !home.part && !home.back)) {
    const Range range = kept(home, piece), held = overlap(range, mine);
    if (!held.count) continue;
    const uint64_t n = held.count / home.per;
    out.push_back({{(held.first - mine.first) / home.per, n},
                   slice(view(home, piece), home.values(held.first - range.first), home.values(held.count))});
  }
  return out;
}

std::vector<eng_range> Units::shown(size_t u, Range range) const {
  std::vector<eng_range> out;
  for (uint32_t p : unit(u).params) {
    const Range own = elements(p), some = overlap(own, range);
    if (some.count) out.push_back({&rules_.of(p).shown, some.first - own.first, some.count, some.first - range.first});
  }
  return out;
}

}  // namespace eng
