// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/families.hpp"

#include <algorithm>

namespace eng {
namespace {

constexpr double least_share = 0.97;  // of the first estimate of a pipeline, which rests on other plans than its own

Grid tried_grid(const Config& config, Registry& registry, const Target& target, const World& world, bool lossy,
                bool deep) {
  Grid out = grid_of(config, registry, target, world, lossy);
  if (!deep) return out;
  std::erase_if(out.keeps, [](const Keep& k) { return k.kind == Keep::Kind::budget || k.kind == Keep::Kind::blocks; });
  if (world.size > 1) out.keeps.insert(out.keeps.end(), {{Keep::Kind::every, 1, 4}, {Keep::Kind::every, 1, 2}});
  return out;
}

}  // namespace

void sort(std::vector<Family>& families) {
  std::stable_sort(families.begin(), families.end(),
                   [](const Family& a, const Family& b) { return better(a.fastest, b.fastest); });
}

Families::Families(const Config& config, Registry& registry, const Target& target, const World& world,
                   double most_seconds, bool lossy)
    : trial(config, registry, most_seconds, world.size > 1),
      grid(tried_grid(config, registry, target, world, lossy, trial.deep())),
      config_(config),
      world_(world),
      device_(target.info.total_bytes),
      whole_positions_(without(grid.ways, {"sequence"})),
      leanest_(without(grid.ways, {"virtual_stages", "reduce"})) {
  for (size_t k = 0; k < grid.keeps.size(); ++k)
    if (grid.keeps[k].kind == Keep::Kind::none)
      plain_ = k;
    else if (grid.keeps[k].kind == Keep::Kind::full)
      most_again_ = k;
}

uint64_t Families::row_bytes(const Point& point) {
  Edits edits = format_edits(grid, point.format);
  for (const Edit& e : grid.ways[point.way].degrees) edits.push_back(e);
  const std::string words = words_of(edits);
  if (const auto known = row_bytes_.find(words); known != row_bytes_.end()) return known->second;
  return row_bytes_[words] = trial.row_bytes(edits, world_);
}

Edits Families::edits(const Point& point) {
  const bool share = grid.keeps[point.keep].kind == Keep::Kind::budget;
  return edits_of(config_, grid, point, share ? row_bytes(point) : 0);
}

Tried Families::with(Tried tried, const Point& point) const {
  tried.effect = effect_of(config_, grid, point);
  tried.micro = point.micro;
  return tried;
}

Tried Families::bound(const Point& point) {
  return with(trial.bound(edits(point), world_), point);
}

Tried Families::whole(const Point& point) {
  return with(trial.whole(edits(point), world_), point);
}

void Families::add(size_t format, double limit, size_t offload, std::vector<Family>& out,
                   std::vector<Tried>& too_large) {
  for (const size_t w : by_memory(grid.ways)) {
    const Way& way = grid.ways[w];
    const std::string degrees = words_of(way.degrees);
    const auto hopeless = hopeless_.find({degrees, format, offload});
    if (hopeless != hopeless_.end() || !needs_context(way, format, offload)) continue;
    if (way.stages > 1 || whole_positions_[w] != w) {
      add_rough(w, format, limit, offload, out);
      continue;
    }
    const Tried plain = bound({format, w, plain_, way.micro.front(), offload});
    if (!plain.refused.empty() && !degrees.empty() && !possible(way)) {
      for (size_t f = 0; f < grid.formats.size(); ++f)
        for (size_t o = 0; o < grid.offloads.size(); ++o) hopeless_.insert({degrees, f, o});
      continue;
    }
    if (device_ && plain.fixed > device_) {
      const Point point{format, w, 0, std::min(config_.section("train").integer("micro_batch"), way.rows), offload};
      too_large.push_back(with(only_fixed(plain, edits(point), device_), point));
      if (!degrees.empty()) hopeless_.insert({degrees, format, offload});  // this is the way that takes least
      continue;
    }
    if (plain.computing >= limit) continue;
    for (size_t k = 0; k < grid.keeps.size(); ++k) {
      const Point point{format, w, k, way.micro.front(), offload};
      if (grid.keeps[k].kind == Keep::Kind::budget && !row_bytes(point)) continue;
      const bool rough = world_.size > 1 && plain.refused.empty() && k != plain_ &&
                         grid.keeps[k].kind != Keep::Kind::given && grid.keeps[k].kind != Keep::Kind::full;
      out.push_back({point, rough ? plain : bound(point), rough});
      // With so much at a time there may be no plan although there is one with less.
      if (!out.back().fastest.refused.empty()) out.back().fastest.seconds = 0;
    }
  }
}

void Families::add_rough(size_t w, size_t format, double limit, size_t offload, std::vector<Family>& out) {
  const Way& way = grid.ways[w];
  // Both stages and tiers are for what is too large: those of the configuration are tried with the other.
  if ((offload && way.stages > 1 && !way.degrees.empty()) || (format && dominated({format, w, plain_, 1, 0}))) return;
  for (size_t k = 0; k < grid.keeps.size(); ++k) {
    const Keep::Kind kind = grid.keeps[k].kind;
    Point point{format, w, k, way.micro.front(), offload};
    if (!offered(way, grid.keeps[k])) continue;
    Tried least;
    if (way.stages > 1) {
      point.micro = way.micro.back();
      least.seconds = least_seconds(point);
    } else {
      const size_t twin = whole_positions_[w];
      if (hopeless_.count({words_of(grid.ways[twin].degrees), format, offload})) return;
      least = bound({format, twin, kind == Keep::Kind::full ? k : plain_, way.micro.front(), offload});
      if (device_ && least.refused.empty() && least.fixed > device_) return;
      // The ranks divide at most what the memory bounds.
      const double part = 1.0 / static_cast<double>(degree_with(config_, way.degrees, "tensor"));
      least.seconds = least.refused.empty() ? least.seconds - (1 - part) * least.memory : 0;
      if (kind == Keep::Kind::budget && !row_bytes(point)) continue;
    }
    if (least.seconds >= limit) continue;
    least.edits = edits(point);
    out.push_back({point, with(std::move(least), point), true});
  }
}

Tried Families::one_group(Point point) {
  point.micro = grid.ways[point.way].micro.front();
  const Edits edits = group_edits(config_, grid, point);
  const int64_t ranks = degree_with(config_, edits, "tensor") * degree_with(config_, edits, "context");
  const auto all = static_cast<uint32_t>(ranks);
  return trial.bound(edits, {0, all, 0, std::min(all, world_.local_size)});
}

double Families::least_seconds(const Point& point) {
  const Way& way = grid.ways[point.way];
  const Tried one = one_group(point);
  if (!one.refused.empty()) return 0;
  const double sequences = double(way.rows) + double(point.micro * (way.stages - 1)) / double(way.parts);
  return least_share * one.pass / double(way.micro.front()) * sequences / double(way.stages);
}

double Families::without_recomputing(Point point) {
  const Way& way = grid.ways[point.way];
  if (way.stages > 1 || whole_positions_[point.way] == point.way || point.keep == plain_) return 0;
  point.keep = plain_;
  return bound(point).seconds;
}

bool Families::dominated(Point point) {
  const Tried other = one_group(point);
  point.format = 0;
  const Tried own = one_group(point);
  if (!own.refused.empty() || !other.refused.empty()) return own.refused.empty();
  return own.pass <= other.pass && own.fixed <= other.fixed && own.peak.machine <= other.peak.machine &&
         own.peak.machine - own.fixed <= other.peak.machine - other.fixed;
}

bool Families::may_fit(Point point) {
  point.way = leanest_[point.way];
  point.micro = grid.ways[point.way].micro.back();
  const size_t keep = std::exchange(point.keep, most_again_);
  if (!fits(bound(point))) return false;
  point.keep = keep;
  return fits(bound(point));
}

bool Families::needs_context(const Way& way, size_t format, size_t offload) {
  const auto edited = [](const Edit& e) { return e.key == "context"; };
  if (std::none_of(way.degrees.begin(), way.degrees.end(), edited)) return true;
  const std::optional<Edits> less = with_less_context(config_, way.degrees);
  if (!less) return true;
  const std::tuple key(words_of(*less), format, offload);
  if (const auto known = context_helps_.find(key); known != context_helps_.end()) return known->second;
  const size_t none = grid.ways.size();
  size_t least = none;  // the way with these degrees that takes least memory
  for (size_t w = 0; w < grid.ways.size(); ++w)
    if (words_of(grid.ways[w].degrees) == words_of(*less) &&
        (least == none || grid.ways[w].strategy.order > grid.ways[least].strategy.order))
      least = w;
  if (least == none) return true;  // there are fewer sequences than such groups of ranks
  if (!needs_context(grid.ways[least], format, offload)) return context_helps_[key] = false;
  const Tried tried = bound({format, least, plain_, 1, offload});
  return context_helps_[key] = !tried.refused.empty() || (!fits(tried) && (!device_ || tried.fixed <= device_));
}

bool Families::possible(const Way& way) {
  Edits edits = way.degrees;
  for (Edit& e : batch_edits(config_, 1, way.rows)) edits.push_back(std::move(e));
  return trial.bound(edits, world_).refused.empty();
}

}  // namespace eng
