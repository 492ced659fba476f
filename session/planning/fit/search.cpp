// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/search.hpp"

#include <algorithm>
#include <tuple>

#include "session/planning/fit/remedies.hpp"
#include "session/planning/fits.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {

bool fits(const Tried& tried) {
  return tried.refused.empty() && tried.excess.bytes == 0;
}

bool better(const Tried& a, const Tried& b) {
  const auto key = [](const Tried& t) { return std::tuple(t.seconds, t.edits.size(), !t.effect.same_numbers); };
  return key(a) < key(b);
}

namespace {

// The settings that differ in more than the micro-batch.
struct Family {
  Point point;
  Tried fastest;  // a bound of it: with the largest micro-batch, whether it fits or not
};

class Search {
 public:
  Search(const Config& config, Registry& registry, const Target& target, const World& world, double most_seconds)
      : config_(config),
        world_(world),
        trial_(config, registry, most_seconds),
        grid_(grid_of(config, registry, target, world.size)) {
    if (trial_.deep({}))
      std::erase_if(grid_.keeps,
                    [](const Keep& k) { return k.kind == Keep::Kind::budget || k.kind == Keep::Kind::blocks; });
    for (size_t k = 0; k < grid_.keeps.size(); ++k)
      if (grid_.keeps[k].kind == Keep::Kind::none) plain_ = k;
    row_bytes_.resize(grid_.formats.size());
  }

  void run(Fit& out) {
    constexpr double any = std::numeric_limits<double>::infinity();
    std::vector<Family> own = families(0, any, out);
    std::vector<Tried> mine = two_fastest(own, any, out.too_large);
    // Only what does not fit leaves the device: that costs time.
    if (mine.empty() && grid_.offloads.size() > 1) {
      own.clear();
      for (size_t o = 1; o < grid_.offloads.size(); ++o)
        for (Family& family : families(0, any, out, o)) own.push_back(std::move(family));
      sort(own);
      mine = two_fastest(own, any, out.too_large);
    }
    const double limit = mine.empty() ? any : other_format * mine[0].seconds;
    std::vector<Family> others;
    for (size_t f = 1; f < grid_.formats.size(); ++f)
      for (Family& family : families(f, limit, out)) others.push_back(std::move(family));
    sort(others);
    std::vector<Tried> found = two_fastest(others, limit, out.too_large);
    found.insert(found.end(), mine.begin(), mine.end());
    std::stable_sort(out.too_large.begin(), out.too_large.end(), [](const Tried& a, const Tried& b) {
      return std::pair(a.excess.bytes, a.edits.size()) < std::pair(b.excess.bytes, b.edits.size());
    });
    out.own_fits = !mine.empty();
    if (found.empty()) return;
    out.best = found[0];
    if (found.size() > 1) out.second = found[1];
    out.same = out.best->effect.same_numbers ? *std::exchange(out.best, {}) : fastest_of_same_numbers(own);
    if (!mine.empty()) out.own_format = mine[0];
    for (const auto* told : {&out.same, &out.best, &out.second})
      if (*told && out.own_format && words_of((*told)->edits) == words_of(out.own_format->edits))
        out.own_format.reset();
  }

  Trial& trial() { return trial_; }
  const Grid& grid() const { return grid_; }

 private:
  static void sort(std::vector<Family>& families) {
    std::stable_sort(families.begin(), families.end(),
                     [](const Family& a, const Family& b) { return better(a.fastest, b.fastest); });
  }
  uint64_t row_bytes(size_t format) {
    std::optional<uint64_t>& known = row_bytes_[format];
    if (!known) known = trial_.row_bytes(format_edits(grid_, format), world_);
    return *known;
  }
  Edits edits(const Point& point) {
    const bool share = grid_.keeps[point.keep].kind == Keep::Kind::budget;
    return edits_of(config_, grid_, point, share ? row_bytes(point.format) : 0);
  }
  Tried with(Tried tried, const Point& point) const {
    tried.effect = effect_of(config_, grid_, point);
    tried.micro = point.micro;
    return tried;
  }
  Tried bound(const Point& point) { return with(trial_.bound(edits(point), world_), point); }
  Tried whole(const Point& point) { return with(trial_.whole(edits(point), world_), point); }

  // The families of settings of a number format, the fastest first, without strategies that are ruled out by their plan
  // without recomputing: weights, states and gradients alone are too large, or computing alone takes `limit` seconds.
  std::vector<Family> families(size_t format, double limit, Fit& fit, size_t offload = 0) {
    std::vector<Family> out;
    for (size_t s = 0; s < grid_.stages.size(); ++s) {
      const Tried plain = bound({format, s, plain_, grid_.micro.front(), offload});
      if (fit.available.device && plain.fixed > fit.available.device) {
        const Point point{format, s, 0, config_.section("train").integer("micro_batch"), offload};
        fit.too_large.push_back(with(only_fixed(plain, edits(point), fit.available.device), point));
        continue;
      }
      if (plain.computing >= limit) continue;
      for (size_t k = 0; k < grid_.keeps.size(); ++k) {
        if (grid_.keeps[k].kind == Keep::Kind::budget && !row_bytes(format)) continue;
        const Point point{format, s, k, grid_.micro.front(), offload};
        out.push_back({point, bound(point)});
        // With so much at a time there may be no plan although there is one with less.
        if (!out.back().fastest.refused.empty()) out.back().fastest.seconds = 0;
      }
    }
    sort(out);
    return out;
  }

  // The attempt with only the memory that no change of [recompute] and of the micro-batch avoids.
  static Tried only_fixed(Tried tried, Edits edits, uint64_t available) {
    tried.edits = std::move(edits);
    tried.peak.rank = tried.peak.machine = tried.fixed;
    tried.excess = {tried.fixed - available, false};
    tried.largest = tried.fixed_parts;
    return tried;
  }

  // The two fastest that fit and take less than `limit` seconds.
  std::vector<Tried> two_fastest(const std::vector<Family>& families, double limit, std::vector<Tried>& too_large) {
    std::vector<Tried> found;
    for (const Family& family : families) {
      // A family that cannot be faster is not looked at any further.
      if (family.fastest.seconds >= limit || (found.size() == 2 && !better(family.fastest, found[1]))) break;
      const auto one = largest_that_fits(family, too_large);
      if (!one || one->seconds >= limit) continue;
      found.insert(std::upper_bound(found.begin(), found.end(), *one, better), *one);
      if (found.size() > 2) found.pop_back();
    }
    return found;
  }

  // The largest micro-batch of a family that fits; else nothing, and the smallest is reported in `too_large`.
  std::optional<Tried> largest_that_fits(const Family& family, std::vector<Tried>& too_large) {
    const auto at = [&](size_t index) {
      Point point = family.point;
      point.micro = grid_.micro[index];
      return point;
    };
    const auto placed = [&](size_t index) -> std::optional<Tried> {
      const Tried tried = whole(at(index));
      return fits(tried) ? std::optional(tried) : std::nullopt;
    };
    if (fits(family.fastest))
      if (auto one = placed(0)) return one;
    const size_t last = grid_.micro.size() - 1;
    Tried least = bound(at(last));
    if (fits(least)) {
      size_t from = 1, to = last;
      while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (fits(bound(at(middle))))
          to = middle;
        else
          from = middle + 1;
      }
      for (; to <= last; ++to)
        if (auto one = placed(to)) return one;
      least = whole(at(last));  // its bound fits, and its layout does not
    }
    if (least.refused.empty()) too_large.push_back(least);
    return std::nullopt;
  }

  // With the micro-batch and the number format of the configuration.
  std::optional<Tried> fastest_of_same_numbers(const std::vector<Family>& own) {
    std::optional<Tried> best;
    for (const Family& family : own) {
      if (best && family.fastest.seconds > best->seconds) break;
      Point point = family.point;
      point.micro = config_.section("train").integer("micro_batch");
      const Tried tried = bound(point);
      if (!tried.effect.same_numbers || !fits(tried) || (best && !better(tried, *best))) continue;
      if (Tried one = whole(point); fits(one)) best = std::move(one);
    }
    return best;
  }

  const Config& config_;
  const World world_;
  Trial trial_;
  Grid grid_;
  size_t plain_ = 0;  // of Grid::keeps: no recomputing; the first if the configuration says so itself
  std::vector<std::optional<uint64_t>> row_bytes_;  // by number format
};

}  // namespace

Exit refusal(const Fit& fit) {
  if (fit.same || fit.best) return Exit::done;
  const Excess none{1, false};
  return refusal(fit.too_large.empty() ? none : fit.too_large.front().excess, fit.host_memory);
}

Fit find_fit(const Config& config, Registry& registry, const World& world, double most_seconds) {
  const std::optional<Card> card = described_card(config);
  std::unique_ptr<Kernels> kernels;
  if (has_kernels(config, card))
    kernels = std::make_unique<Kernels>(registry, config.section("device").string("plugin"), config.section("device"));
  const Target target = make_target(config, registry, card, kernels.get(), world.size);
  Fit out;
  out.device = card ? card->name : target.device;
  out.available = {target.info.total_bytes, target.host_bytes, target.arena_bytes};
  out.reserve = target.info.device_overhead_bytes;
  out.assumed = card && (card->assumes("reserve") || (world.size > 1 && card->assumes("communicator")));
  out.ranks = world.size;
  out.host_memory = target.host_memory();
  out.timed = machine_of(config.section("comm"), target).flops > 0;
  if (!out.available.device && !out.available.host)
    throw Error(Exit::usage, fmt::format("device {} does not tell how much memory it has", target.device),
                "give the amount or a card: --fit 24GiB, or device.describe=\"24GiB\"");
  Search search(config, registry, target, world, most_seconds);
  const uint32_t data = data_ranks(config, world.size);
  out.rows = search.grid().rows * data;
  try {
    search.run(out);
    // These take other numbers of ranks.
    if (!out.own_fits && data == world.size) find_remedies(config, registry, world, search.trial(), search.grid(), out);
  } catch (const Spent&) {
    out.cut = true;
  }
  out.plans = search.trial().plans();
  return out;
}

}  // namespace eng
