// SPDX-License-Identifier: Apache-2.0
#include "core/plan/units.hpp"

#include <set>

#include "core/plan/emitter.hpp"

namespace eng {

Units::Units(const PlanRequest& request, Plan& plan) : model_(request.model), plan_(plan), rules_(request) {
  const auto sort_of = [&](uint32_t p) {
    const uint32_t packed = model_.params[p].packed ? ENG_PARAM_FROZEN : 0;
    return std::pair((model_.params[p].flags & ENG_PARAM_FP32) | packed, rules_.of(p).sort);
  };
  const Model& model = model_;
  std::vector<char> taken(model.params.size(), 0);
  unit_of_.resize(taken.size()), offset_of_.resize(taken.size()), user_.resize(taken.size(), UINT32_MAX);
  for (auto b = static_cast<uint32_t>(model.blocks.size()); b-- > 0;)
    for (uint32_t p : model.blocks[b].params)
      if (model.owns(b)) user_[p] = b;
  for (uint32_t b = 0; b < model.blocks.size(); ++b) {
    std::set<std::pair<uint32_t, uint32_t>> sorts;  // flags, sort
    for (uint32_t p : model.blocks[b].params) sorts.insert(sort_of(p));
    for (const auto& sort : sorts) {
      Unit unit{model.blocks[b].name, b, 0, 0, sort.first, {}};
      for (uint32_t p : model.blocks[b].params) {
        if (taken[p] || sort_of(p) != sort) continue;
        taken[p] = 1;
        unit_of_[p] = plan.units.size(), offset_of_[p] = unit.count;
        unit.params.push_back(p), unit.user = std::min(unit.user, user_[p]);
        unit.count += padded(p).count;
      }
      if (unit.params.empty()) continue;
      unit.count = std::max(up(unit.count, grid()), grid());
      const bool moves = plan.ranks.data_size() > 1 || plan.has_tiers();
      unit.piece = !moves ? unit.count : std::clamp(request.bucket / 4 / grid() * grid(), grid(), unit.count);
      plan.units.push_back(std::move(unit));
    }
  }
}

std::vector<size_t> Units::units_of(uint32_t block) const {
  std::vector<size_t> out;
  for (size_t u = 0; u < units(); ++u)
    if (unit(u).user == block) out.push_back(u);
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
  return {offset_of_[p], spare(p).end() - offset_of_[p]};
}

Range Units::spare(uint32_t p) const {
  const uint64_t own = up(elements(p).count, chunk), all = static_cast<uint64_t>(eng::count(model_.params[p].held()));
  return {offset_of_[p] + own, all > own ? up(all - own, grid()) : 0};
}

std::vector<Range> Units::outside(size_t u, Range (Units::*of)(uint32_t) const) const {
  std::vector<Range> out{{0, unit(u).count}};
  for (uint32_t p : unit(u).params)
    if (const Range r = (this->*of)(p); r.count) {
      out.back().count = r.first - out.back().first;
      out.push_back({r.end(), unit(u).count - r.end()});
    }
  std::erase_if(out, [](const Range& r) { return !r.count; });
  return out;
}

View Units::parameter(const View& unit, uint32_t p, bool held) const {
  eng_desc desc = held ? model_.params[p].held() : model_.params[p].desc;
  desc.dtype = unit.desc.dtype;
  return reshape(slice(unit, offset_of_[p], static_cast<uint64_t>(eng::count(desc))), desc);
}

std::vector<HeldRange> Units::ranges(const Home& home, uint32_t p, bool own) const {
  Range mine = elements(p);
  const bool divided = !own && model_.params[p].cut.count > 1;
  mine.count = up(mine.count, home.per);  // its last block may be shorter
  std::vector<HeldRange> out;
  for (const Range& piece : pieces(unit_of_[p], !home.part && !home.back)) {
    const Range range = kept(home, piece), held = overlap(range, mine);
    if (!held.count || !home.view.buffer) continue;
    const View all = slice(view(home, piece), home.values(held.first - range.first), home.values(held.count));
    const uint64_t begin = (held.first - mine.first) / home.per, n = held.count / home.per;
    for (uint64_t done = 0, some = 0; done < n; done += some) {
      const Range whole = divided ? model_.params[p].place(begin + done) : Range{begin + done, n - done};
      some = std::min(n - done, whole.count);
      out.push_back({{whole.first, some}, some == n ? all : slice(all, done, some)});
    }
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
