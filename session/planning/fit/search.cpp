// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/search.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "session/cards/device_section.hpp"
#include "session/planning/fit/remedies.hpp"
#include "session/planning/fits.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {

namespace {

// The settings that differ in more than the micro-batch.
struct Family {
  Point point;
  Tried fastest;       // a bound of it: with the largest micro-batch, whether it fits or not
  bool rough = false;  // it is that of the same way without recomputing, which is faster, or less than any plan takes
};

constexpr double least_share = 0.97;  // of the first estimate of a pipeline, which rests on other plans than its own

class Search {
 public:
  Search(const Config& config, Registry& registry, const Target& target, const World& world, double most_seconds,
         bool lossy)
      : config_(config),
        world_(world),
        device_(target.info.total_bytes),
        lists_count_(target.host_memory()),
        wanted_(world.size > 1 ? 5 : 2),
        trial_(config, registry, most_seconds, world.size > 1),
        grid_(grid_of(config, registry, target, world, lossy)),
        whole_positions_(without(grid_.ways, {"sequence"})),
        leanest_(without(grid_.ways, {"virtual_stages", "reduce"})) {
    if (trial_.deep()) {
      std::erase_if(grid_.keeps,
                    [](const Keep& k) { return k.kind == Keep::Kind::budget || k.kind == Keep::Kind::blocks; });
      if (world.size > 1) grid_.keeps.insert(grid_.keeps.end(), {{Keep::Kind::every, 1, 4}, {Keep::Kind::every, 1, 2}});
    }
    for (size_t k = 0; k < grid_.keeps.size(); ++k)
      if (grid_.keeps[k].kind == Keep::Kind::none)
        plain_ = k;
      else if (grid_.keeps[k].kind == Keep::Kind::full)
        most_again_ = k;
  }

  void run(Fit& out) {
    constexpr double any = std::numeric_limits<double>::infinity();
    std::vector<Family> own = families(0, any, out);
    std::vector<Tried> mine = fastest(own, any, out.too_large);
    // Only what does not fit leaves the device: that costs time.
    if (mine.empty() && grid_.offloads.size() > 1) {
      own.clear();
      for (size_t o = 1; o < grid_.offloads.size(); ++o)
        for (Family& family : families(0, any, out, o)) own.push_back(std::move(family));
      sort(own);
      mine = fastest(own, any, out.too_large);
    }
    const double limit = mine.empty() ? any : other_format * mine[0].seconds;
    std::vector<Family> others;
    for (size_t f = 1; f < grid_.formats.size() && !cut_; ++f) try {
        for (Family& family : families(f, limit, out)) others.push_back(std::move(family));
      } catch (const Spent&) {
        cut_ = true;
      }
    sort(others);
    std::vector<Tried> found = fastest(others, limit, out.too_large);
    found.insert(found.end(), mine.begin(), mine.end());
    std::stable_sort(out.too_large.begin(), out.too_large.end(), [](const Tried& a, const Tried& b) {
      return std::pair(a.excess.bytes, a.edits.size()) < std::pair(b.excess.bytes, b.edits.size());
    });
    out.own_fits = !mine.empty();
    if (found.empty()) return;
    out.best = found[0];
    if (found.size() > 1) out.second = found[1];
    out.fastest.assign(found.begin(), found.begin() + static_cast<int64_t>(std::min(found.size(), wanted_)));
    out.same = out.best->effect.same_numbers ? *std::exchange(out.best, {}) : fastest_of_same_numbers(own);
    if (!mine.empty()) out.own_format = mine[0];
    for (const auto* told : {&out.same, &out.best, &out.second})
      if (*told && out.own_format && words_of((*told)->edits) == words_of(out.own_format->edits))
        out.own_format.reset();
  }

  bool cut() const { return cut_; }  // the search ended before its end
  Trial& trial() { return trial_; }
  const Grid& grid() const { return grid_; }

 private:
  static void sort(std::vector<Family>& families) {
    std::stable_sort(families.begin(), families.end(),
                     [](const Family& a, const Family& b) { return better(a.fastest, b.fastest); });
  }
  uint64_t row_bytes(const Point& point) {
    Edits edits = format_edits(grid_, point.format);
    for (const Edit& e : grid_.ways[point.way].degrees) edits.push_back(e);
    const auto [known, fresh] = row_bytes_.try_emplace(words_of(edits));
    if (fresh) known->second = trial_.row_bytes(edits, world_);
    return known->second;
  }
  Edits edits(const Point& point) {
    const bool share = grid_.keeps[point.keep].kind == Keep::Kind::budget;
    return edits_of(config_, grid_, point, share ? row_bytes(point) : 0);
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
    for (const size_t w : by_memory(grid_.ways)) {
      const Way& way = grid_.ways[w];
      const std::string degrees = words_of(way.degrees);
      const auto hopeless = hopeless_.find({degrees, format, offload});
      if (hopeless != hopeless_.end() || !needs_context(way, format, offload)) continue;
      if (way.stages > 1 || whole_positions_[w] != w) {
        add_rough(w, format, limit, offload, out);
        continue;
      }
      const Tried plain = bound({format, w, plain_, way.micro.front(), offload});
      if (!plain.refused.empty() && !degrees.empty() && !possible(way)) {
        for (size_t f = 0; f < grid_.formats.size(); ++f)
          for (size_t o = 0; o < grid_.offloads.size(); ++o) hopeless_.insert({degrees, f, o});
        continue;
      }
      if (device_ && plain.fixed > device_) {
        const Point point{format, w, 0, std::min(config_.section("train").integer("micro_batch"), way.rows), offload};
        fit.too_large.push_back(with(only_fixed(plain, edits(point), device_), point));
        if (!degrees.empty()) hopeless_.insert({degrees, format, offload});  // this is the way that takes least
        continue;
      }
      if (plain.computing >= limit) continue;
      for (size_t k = 0; k < grid_.keeps.size(); ++k) {
        const Point point{format, w, k, way.micro.front(), offload};
        if (grid_.keeps[k].kind == Keep::Kind::budget && !row_bytes(point)) continue;
        const bool rough = world_.size > 1 && plain.refused.empty() && k != plain_ &&
                           grid_.keeps[k].kind != Keep::Kind::given && grid_.keeps[k].kind != Keep::Kind::full;
        out.push_back({point, rough ? plain : bound(point), rough});
        // With so much at a time there may be no plan although there is one with less.
        if (!out.back().fastest.refused.empty()) out.back().fastest.seconds = 0;
      }
    }
    sort(out);
    return out;
  }

  // The families of a way with stages, or with `sequence`: with less than they take, until that may be fast enough.
  void add_rough(size_t w, size_t format, double limit, size_t offload, std::vector<Family>& out) {
    const Way& way = grid_.ways[w];
    // Both stages and tiers are for what is too large: those of the configuration are tried with the other.
    if ((offload && way.stages > 1 && !way.degrees.empty()) || (format && dominated({format, w, plain_, 1, 0}))) return;
    for (size_t k = 0; k < grid_.keeps.size(); ++k) {
      const Keep::Kind kind = grid_.keeps[k].kind;
      Point point{format, w, k, way.micro.front(), offload};
      if (!offered(way, grid_.keeps[k])) continue;
      Tried least;
      if (way.stages > 1) {
        point.micro = way.micro.back();
        least.seconds = least_seconds(point);
      } else {
        const size_t twin = whole_positions_[w];
        if (hopeless_.count({words_of(grid_.ways[twin].degrees), format, offload})) return;
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
  Tried one_group(Point point) {
    point.micro = grid_.ways[point.way].micro.front();
    const Edits edits = group_edits(config_, grid_, point);
    const int64_t ranks = degree_with(config_, edits, "tensor") * degree_with(config_, edits, "context");
    const auto all = static_cast<uint32_t>(ranks);
    return trial_.bound(edits, {0, all, 0, std::min(all, world_.local_size)});
  }
  // Less than a step of a pipeline takes.
  double least_seconds(const Point& point) {
    const Way& way = grid_.ways[point.way];
    const Tried one = one_group(point);
    if (!one.refused.empty()) return 0;
    const double sequences = double(way.rows) + double(point.micro * (way.stages - 1)) / double(way.parts);
    return least_share * one.pass / double(way.micro.front()) * sequences / double(way.stages);
  }
  // True if the configuration's number format takes neither more time nor more memory, and no more for activations,
  // which ranks send each other.
  bool dominated(Point point) {
    const Tried other = one_group(point);
    point.format = 0;
    const Tried own = one_group(point);
    if (!own.refused.empty() || !other.refused.empty()) return own.refused.empty();
    return own.pass <= other.pass && own.fixed <= other.fixed && own.peak.machine <= other.peak.machine &&
           own.peak.machine - own.fixed <= other.peak.machine - other.fixed;
  }
  // False if what takes less memory than a family with stages does not fit: with one part of the model on each stage
  // and the sums of each micro-batch, first with everything recomputed.
  bool may_fit(Point point) {
    point.way = leanest_[point.way];
    point.micro = grid_.ways[point.way].micro.back();
    const size_t keep = std::exchange(point.keep, most_again_);
    if (!fits(bound(point))) return false;
    point.keep = keep;
    return fits(bound(point));
  }
  // The fastest micro-batch of a family with stages that fits, by bounds. Smaller ones wait less, and need less memory.
  std::optional<Family> fastest_of_stages(Point point, std::vector<Tried>& too_large) {
    const Way& way = grid_.ways[point.way];
    std::optional<Family> best;
    if (no_stages_.count({point.way, point.format, point.offload})) return best;
    if (!lists_count_ && !may_fit(point)) return best;
    for (auto micro = way.micro.rbegin(); micro != way.micro.rend(); ++micro) {
      point.micro = *micro;
      if (best && least_seconds(point) >= best->fastest.seconds) break;
      Tried tried = bound(point);
      const bool first = micro == way.micro.rbegin(), fixed = device_ && tried.fixed > device_;
      if (first && (!tried.refused.empty() || fixed)) no_stages_.insert({point.way, point.format, point.offload});
      if (first && fixed) tried = with(only_fixed(tried, edits(point), device_), point);
      if (first && tried.refused.empty() && !fits(tried)) too_large.push_back(tried);
      if (!fits(tried) && !lists_count_) break;
      if (!fits(tried) || rejected_.count(words_of(tried.edits)) || (best && !better(tried, best->fastest))) continue;
      best = Family{point, std::move(tried)};
    }
    return best;
  }

  // False if one sequence at a time, of which fewer ranks have parts, fits without recomputing: as many tokens of a
  // rank are then whole sequences, with nothing to exchange. False, too, if weights and states alone do not fit: parts
  // of sequences do not change them.
  bool needs_context(const Way& way, size_t format, size_t offload) {
    const auto edited = [](const Edit& e) { return e.key == "context"; };
    if (std::none_of(way.degrees.begin(), way.degrees.end(), edited)) return true;
    const std::optional<Edits> less = with_less_context(config_, way.degrees);
    if (!less) return true;
    const auto [known, fresh] = context_helps_.try_emplace({words_of(*less), format, offload}, true);
    if (!fresh) return known->second;
    const size_t none = grid_.ways.size();
    size_t least = none;  // the way with these degrees that takes least memory
    for (size_t w = 0; w < grid_.ways.size(); ++w)
      if (words_of(grid_.ways[w].degrees) == words_of(*less) &&
          (least == none || grid_.ways[w].strategy.order > grid_.ways[least].strategy.order))
        least = w;
    if (least == none) return true;  // there are fewer sequences than such groups of ranks
    if (!needs_context(grid_.ways[least], format, offload)) return known->second = false;
    const Tried tried = bound({format, least, plain_, 1, offload});
    return known->second = !tried.refused.empty() || (!fits(tried) && (!device_ || tried.fixed <= device_));
  }
  // True if the ranks can divide the model so at all.
  bool possible(const Way& way) {
    Edits edits = way.degrees;
    for (Edit& e : batch_edits(config_, 1, way.rows)) edits.push_back(std::move(e));
    return trial_.bound(edits, world_).refused.empty();
  }

  // The fastest that fit and take less than `limit` seconds; of those that there is time for.
  std::vector<Tried> fastest(std::vector<Family> families, double limit, std::vector<Tried>& too_large) {
    std::vector<Tried> found;
    try {
      look_at(families, limit, found, too_large);
    } catch (const Spent&) {
      cut_ = true;
    }
    return found;
  }
  // Puts a family in its place, from this one on.
  static void put(std::vector<Family>& families, size_t from, Family one) {
    const auto faster = [](const Family& a, const Family& b) { return better(a.fastest, b.fastest); };
    families.insert(std::upper_bound(families.begin() + int64_t(from), families.end(), one, faster), one);
  }
  // The time without recomputing of a family whose first estimate is that of another way; else 0.
  double without_recomputing(Point point) {
    const Way& way = grid_.ways[point.way];
    if (way.stages > 1 || whole_positions_[point.way] == point.way || point.keep == plain_) return 0;
    point.keep = plain_;
    return bound(point).seconds;
  }
  void look_at(std::vector<Family>& families, double limit, std::vector<Tried>& found, std::vector<Tried>& too_large) {
    for (size_t k = 0; k < families.size(); ++k) {
      const Family family = families[k];
      // A family that cannot be faster is not looked at any further.
      if (family.fastest.seconds >= limit || (found.size() == wanted_ && !better(family.fastest, found.back()))) break;
      const bool stages = grid_.ways[family.point.way].stages > 1;
      if (family.rough) {  // its own bound is needed now
        if (const double least = without_recomputing(family.point); least > family.fastest.seconds) {
          Family later = family;
          later.fastest.seconds = least;
          put(families, k + 1, std::move(later));
          continue;
        }
        std::optional<Family> known =
            stages ? fastest_of_stages(family.point, too_large) : Family{family.point, bound(family.point)};
        if (!known) continue;
        put(families, k + 1, std::move(*known));
        continue;
      }
      const auto one = stages ? placed_stages(family, too_large) : largest_that_fits(family, too_large);
      if (!one || one->seconds >= limit) continue;
      found.insert(std::upper_bound(found.begin(), found.end(), *one, better), *one);
      if (found.size() > wanted_) found.pop_back();
    }
  }

  // The plan of the fastest micro-batch of a family with stages; if that does not fit, of the next one.
  std::optional<Tried> placed_stages(std::optional<Family> family, std::vector<Tried>& too_large) {
    for (; family; family = fastest_of_stages(family->point, too_large)) {
      Tried tried = whole(family->point);
      if (fits(tried)) return tried;
      rejected_.insert(words_of(tried.edits));
    }
    return std::nullopt;
  }

  // The largest micro-batch of a family that fits; else nothing, and the smallest is reported in `too_large`.
  std::optional<Tried> largest_that_fits(const Family& family, std::vector<Tried>& too_large) {
    const std::vector<int64_t>& micro = grid_.ways[family.point.way].micro;
    const auto at = [&](size_t index) {
      Point point = family.point;
      point.micro = micro[index];
      return point;
    };
    const auto placed = [&](size_t index) -> std::optional<Tried> {
      const Tried tried = whole(at(index));
      return fits(tried) ? std::optional(tried) : std::nullopt;
    };
    if (fits(family.fastest))
      if (auto one = placed(0)) return one;
    const size_t last = micro.size() - 1;
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
    for (const Family& family : own) try {
        if (best && family.fastest.seconds > best->seconds) break;
        Point point = family.point;
        point.micro = config_.section("train").integer("micro_batch");
        if (!effect_of(config_, grid_, point).same_numbers) continue;
        const std::vector<int64_t>& micro = grid_.ways[point.way].micro;
        if (std::find(micro.begin(), micro.end(), point.micro) == micro.end()) continue;
        const Tried tried = bound(point);
        if (!fits(tried) || (best && !better(tried, *best))) continue;
        if (Tried one = whole(point); fits(one)) best = std::move(one);
      } catch (const Spent&) {
        cut_ = true;
        break;
      }
    return best;
  }

  const Config& config_;
  const World world_;
  const uint64_t device_;   // bytes of memory
  const bool lists_count_;  // more micro-batches have longer lists, in the same memory
  const size_t wanted_;     // settings
  Trial trial_;
  Grid grid_;
  // Per way of Grid::ways: without `sequence`; with one part of the model on each stage, and the sums as they are.
  const std::vector<size_t> whole_positions_, leanest_;
  size_t most_again_ = 0;  // of Grid::keeps: everything is recomputed; likewise
  size_t plain_ = 0;       // of Grid::keeps: no recomputing; the first if the configuration says so itself
  std::map<std::string, uint64_t> row_bytes_;  // by number format and degrees
  // By degrees, number format and offload: `needs_context` of the next larger `context`.
  std::map<std::tuple<std::string, size_t, size_t>, bool> context_helps_;
  std::set<std::tuple<size_t, size_t, size_t>> no_stages_;  // ways, number formats and offloads of which no plan fits
  bool cut_ = false;
  std::set<std::string> rejected_;  // settings whose bound fits and whose plan does not
  // Degrees, number formats and offloads of which no way fits, or of which there is no plan.
  std::set<std::tuple<std::string, size_t, size_t>> hopeless_;
};

}  // namespace

Exit refusal(const Fit& fit) {
  if (fit.same || fit.best) return Exit::done;
  const Excess none{1, false};
  return refusal(fit.too_large.empty() ? none : fit.too_large.front().excess, fit.host_memory);
}

Fit find_fit(const Config& given, Registry& registry, const World& world, double most_seconds, bool lossy) {
  const std::optional<Card> card = described_card(given);
  Config config = given;
  const Section& device = config.section("device") = device_section(given, registry, card);
  std::unique_ptr<Kernels> kernels;
  if (has_kernels(config, card)) kernels = std::make_unique<Kernels>(registry, device.string("plugin"), device);
  const Target target = make_target(config, registry, card, device, kernels.get(), world.size);
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
  Search search(config, registry, target, world, most_seconds, lossy);
  const uint32_t data = data_ranks(config, world.size);
  out.rows = search.grid().ways[0].rows * data;
  out.tokens = out.rows * config.section("train").integer("sequence_length");
  try {
    search.run(out);
    out.cut = search.cut();
    find_smaller_workspace(config, world, search.trial(), out);
    // These take other numbers of ranks.
    if (!out.own_fits && data == world.size) find_remedies(config, registry, world, search.trial(), search.grid(), out);
  } catch (const Spent&) {
    out.cut = true;
  }
  out.plans = search.trial().plans();
  return out;
}

}  // namespace eng
