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

class Search {
 public:
  Search(const Config& config, Registry& registry, const Target& target, const World& world, double most_seconds,
         bool lossy)
      : families_(config, registry, target, world, most_seconds, lossy),
        config_(config),
        device_(target.info.total_bytes),
        lists_count_(target.host_memory()),
        wanted_(world.size > 1 ? 5 : 2) {}

  // If time is short, each part of the search gets a share of what is left, so that what one part finds is looked at.
  void run(Fit& out) {
    constexpr double any = std::numeric_limits<double>::infinity(), half = 0.5, most = 0.75, all = 1;
    const size_t formats = grid().formats.size(), offloads = grid().offloads.size();
    std::vector<Family> own = families({0}, {0}, any, half, out.too_large);
    std::vector<Tried> mine = fastest(own, any, formats > 1 || offloads > 1 ? most : all, out.too_large);
    // Only what does not fit leaves the device: that costs time.
    if (mine.empty() && offloads > 1) {
      own = families({0}, after_first(offloads), any, half, out.too_large);
      mine = fastest(own, any, formats > 1 ? most : all, out.too_large);
    }
    const double limit = mine.empty() ? any : other_format * mine[0].seconds;
    const std::vector<Family> others = families(after_first(formats), {0}, limit, half, out.too_large);
    std::vector<Tried> found = fastest(others, limit, all, out.too_large);
    found.insert(found.end(), mine.begin(), mine.end());
    std::stable_sort(out.too_large.begin(), out.too_large.end(), [](const Tried& a, const Tried& b) {
      return std::pair(a.excess.bytes, a.edits.size()) < std::pair(b.excess.bytes, b.edits.size());
    });
    out.own_fits = !mine.empty();
    if (found.empty()) return;
    std::optional<Tried> same = found[0];
    if (!same->effect.same_numbers) same = fastest_of_same_numbers(own);
    // A smaller micro-batch than the largest of its family may be faster: a library may compute its attention.
    if (same && better(*same, found[0])) found.insert(found.begin(), *same);
    out.best = found[0];
    if (found.size() > 1) out.second = found[1];
    out.fastest.assign(found.begin(), found.begin() + static_cast<int64_t>(std::min(found.size(), wanted_)));
    if (out.best->effect.same_numbers) out.best.reset();
    out.same = same;
    if (!mine.empty()) out.own_format = mine[0];
    for (const auto* told : {&out.same, &out.best, &out.second})
      if (*told && out.own_format && words_of((*told)->edits) == words_of(out.own_format->edits))
        out.own_format.reset();
  }

  bool cut() const { return cut_; }  // the search ended before its end
  Trial& trial() { return families_.trial; }
  const Grid& grid() const { return families_.grid; }

 private:
  static std::vector<size_t> after_first(size_t all) {
    std::vector<size_t> out(all ? all - 1 : 0);
    std::iota(out.begin(), out.end(), size_t{1});
    return out;
  }
  // The families of these number formats and offloads, the fastest first; of those that there is time for.
  std::vector<Family> families(const std::vector<size_t>& formats, const std::vector<size_t>& offloads, double limit,
                               double share, std::vector<Tried>& too_large) {
    std::vector<Family> out;
    trial().allow(share);
    try {
      for (const size_t f : formats)
        for (const size_t o : offloads) families_.add(f, limit, o, out, too_large);
    } catch (const Spent&) {
      cut_ = true;
    }
    sort(out);
    return out;
  }
  // The fastest micro-batch of a family with stages that fits, by bounds. Smaller ones wait less, and need less memory.
  std::optional<Family> fastest_of_stages(Point point, std::vector<Tried>& too_large) {
    const Way& way = grid().ways[point.way];
    std::optional<Family> best;
    if (no_stages_.count({point.way, point.format, point.offload})) return best;
    if (!lists_count_ && !families_.may_fit(point)) return best;
    for (auto micro = way.micro.rbegin(); micro != way.micro.rend(); ++micro) {
      point.micro = *micro;
      if (best && families_.least_seconds(point) >= best->fastest.seconds) break;
      Tried tried = families_.bound(point);
      const bool first = micro == way.micro.rbegin(), fixed = device_ && tried.fixed > device_;
      if (first && (!tried.refused.empty() || fixed)) no_stages_.insert({point.way, point.format, point.offload});
      if (first && fixed) tried = families_.with(only_fixed(tried, families_.edits(point), device_), point);
      if (first && tried.refused.empty() && !fits(tried)) too_large.push_back(tried);
      if (!fits(tried) && !lists_count_) break;
      if (!fits(tried) || rejected_.count(words_of(tried.edits)) || (best && !better(tried, best->fastest))) continue;
      best = Family{point, std::move(tried)};
    }
    return best;
  }

  // The fastest that fit and take less than `limit` seconds; of those that there is time for.
  std::vector<Tried> fastest(std::vector<Family> families, double limit, double share, std::vector<Tried>& too_large) {
    std::vector<Tried> found;
    trial().allow(share);
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
  void look_at(std::vector<Family>& families, double limit, std::vector<Tried>& found, std::vector<Tried>& too_large) {
    for (size_t k = 0; k < families.size(); ++k) {
      const Family family = families[k];
      // A family that cannot be faster is not looked at any further.
      if (family.fastest.seconds >= limit || (found.size() == wanted_ && !better(family.fastest, found.back()))) break;
      const bool stages = grid().ways[family.point.way].stages > 1;
      if (family.rough) {  // its own bound is needed now
        if (const double least = families_.without_recomputing(family.point); least > family.fastest.seconds) {
          Family later = family;
          later.fastest.seconds = least;
          put(families, k + 1, std::move(later));
          continue;
        }
        std::optional<Family> known =
            stages ? fastest_of_stages(family.point, too_large) : Family{family.point, families_.bound(family.point)};
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
      Tried tried = families_.whole(family->point);
      if (fits(tried)) return tried;
      rejected_.insert(words_of(tried.edits));
    }
    return std::nullopt;
  }

  // The largest micro-batch of a family that fits; else nothing, and the smallest is reported in `too_large`.
  std::optional<Tried> largest_that_fits(const Family& family, std::vector<Tried>& too_large) {
    const std::vector<int64_t>& micro = grid().ways[family.point.way].micro;
    const auto at = [&](size_t index) {
      Point point = family.point;
      point.micro = micro[index];
      return point;
    };
    const auto placed = [&](size_t index) -> std::optional<Tried> {
      const Tried tried = families_.whole(at(index));
      return fits(tried) ? std::optional(tried) : std::nullopt;
    };
    if (fits(family.fastest))
      if (auto one = placed(0)) return one;
    const size_t last = micro.size() - 1;
    Tried least = families_.bound(at(last));
    if (fits(least)) {
      size_t from = 1, to = last;
      while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (fits(families_.bound(at(middle))))
          to = middle;
        else
          from = middle + 1;
      }
      for (; to <= last; ++to)
        if (auto one = placed(to)) return one;
      least = families_.whole(at(last));  // its bound fits, and its layout does not
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
        if (!effect_of(config_, grid(), point).same_numbers) continue;
        const std::vector<int64_t>& micro = grid().ways[point.way].micro;
        if (std::find(micro.begin(), micro.end(), point.micro) == micro.end()) continue;
        const Tried tried = families_.bound(point);
        if (!fits(tried) || (best && !better(tried, *best))) continue;
        if (Tried one = families_.whole(point); fits(one)) best = std::move(one);
      } catch (const Spent&) {
        cut_ = true;
        break;
      }
    return best;
  }

  Families families_;
  const Config& config_;
  const uint64_t device_;                                   // bytes of memory
  const bool lists_count_;                                  // more micro-batches have longer lists, in the same memory
  const size_t wanted_;                                     // settings
  std::set<std::tuple<size_t, size_t, size_t>> no_stages_;  // ways, number formats and offloads of which no plan fits
  bool cut_ = false;
  std::set<std::string> rejected_;  // settings whose bound fits and whose plan does not
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
    find_smaller_workspace(config, world, search.trial(), out);  // before a search takes all time
    search.run(out);
    out.cut = search.cut();
    // These take other numbers of ranks.
    if (!out.own_fits && data == world.size) find_remedies(config, registry, world, search.trial(), search.grid(), out);
  } catch (const Spent&) {
    out.cut = true;
  }
  out.plans = search.trial().plans();
  return out;
}

}  // namespace eng
