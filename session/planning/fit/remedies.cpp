// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/remedies.hpp"

#include <algorithm>
#include <numeric>

#include "session/cards/device_section.hpp"

namespace eng {
namespace {

constexpr uint32_t most_ranks = 1024;
constexpr int64_t shortest = 16;  // tokens

// A change that may make the step fit, and its meaning.
struct Measure {
  Edits edits;
  World world;
  int64_t rows = 1;  // sequences of a step, of each rank
  std::string effect;
};
using Measures = std::vector<Measure>;

// The first index from which on `holds` is true, for one that stays true; few calls if it is small.
template <class Holds>
size_t first_where(size_t n, Holds holds) {
  size_t from = 0, to = 0;
  while (to < n && !holds(to)) from = to + 1, to = 2 * to + 1;
  to = std::min(to, n);
  while (from < to) {
    const size_t at = from + (to - from) / 2;
    if (holds(at))
      to = at;
    else
      from = at + 1;
  }
  return to;
}

class Remedies {
 public:
  Remedies(const Config& config, const Registry& registry, const World& world, Trial& trial, const Grid& grid, Fit& fit)
      : config_(config), registry_(registry), world_(world), trial_(trial), grid_(grid), fit_(fit) {}

  // Any number of ranks: whole nodes, if their size is given, and divisors of [train] global_batch, if that is.
  void more_ranks() {
    const Section &comm = config_.section("comm"), &train = config_.section("train");
    const std::optional<Card> card = described_card(config_);
    const uint32_t node = comm.has("describe.ranks_per_node") ? ranks_per_host(comm, card) : 1;
    Measures all, same;
    for (uint32_t ranks = world_.size / node * node + node; ranks <= most_ranks; ranks += node) {
      const int64_t each = (fit_.rows + ranks - 1) / ranks;
      if (each * ranks != fit_.rows && train.given("global_batch")) continue;
      const std::string batch = each * ranks == fit_.rows
                                    ? "the same tokens per step"
                                    : fmt::format("{} sequences per step instead of {}", each * ranks, fit_.rows);
      all.push_back({{},
                     {0, ranks, 0, std::min(ranks, ranks_per_host(comm, card))},
                     each,
                     fmt::format("{}, summed over {} ranks, each with such a device", batch, ranks)});
      if (each * ranks == fit_.rows) same.push_back(all.back());
    }
    const size_t told = fit_.remedies.size();
    tell_least(all, false);
    // If that many ranks change the batch: the least that do not.
    if (fit_.remedies.size() > told && fit_.rows % fit_.remedies[told].ranks != 0) tell_least(same, false);
    const auto own = [](const Tried& t) {
      return std::none_of(t.edits.begin(), t.edits.end(), [](const Edit& e) { return e.section == "precision"; });
    };
    std::stable_partition(fit_.remedies.begin() + static_cast<std::ptrdiff_t>(told), fit_.remedies.end(), own);
  }

  void small_states() {
    for (const Offer& one : replacements(registry_, config_.section("optimizer").string("plugin")))
      tell_least({here({"optimizer", "plugin", one.name}, one.effect)});
  }

  void shorter() {
    Measures all;
    for (int64_t t = config_.section("train").integer("sequence_length") / 2; t >= shortest; t /= 2)
      all.push_back(here({"train", "sequence_length", t}, "less context"));
    tell_least(all);
  }

  void smaller_model() {
    const Section& model = config_.section("model");
    if (!model.has("num_hidden_layers") || model.has("from")) return;
    Measures all;
    for (int64_t n = model.integer("num_hidden_layers") - 1; n >= 1; --n)
      all.push_back(here({"model", "num_hidden_layers", n}, "another model"));
    tell_least(all);
  }

 private:
  Measure here(Edit edit, const std::string& effect) const {
    return {{std::move(edit)}, world_, grid_.ways[0].rows, effect};
  }

  // The configuration's strategy, then the others that save memory: none without several ranks.
  std::vector<std::string> stages(const World& world) const {
    std::vector<std::string> out = {grid_.strategies[0].name};
    for (size_t k = 1; k < grid_.strategies.size(); ++k)
      if (world.size > 1 && grid_.strategies[k].order > 0) out.push_back(grid_.strategies[k].name);
    return out;
  }
  // "; " and which numbers change by the edits' strategy.
  std::string stage_effect(const Edits& edits) const {
    for (const Edit& e : edits)
      for (const Offer& one : grid_.strategies)
        if (e.section == "zero" && e.value == Value(one.name))
          if (const std::string effect = effect_between(grid_.strategies[0], one); !effect.empty())
            return "; " + effect;
    return "";
  }
  // The configuration's micro-batch, or what divides both it and the batch; and 1.
  std::vector<int64_t> micros(const Measure& measure) const {
    const int64_t near = std::gcd(config_.section("train").integer("micro_batch"), measure.rows);
    return near > 1 ? std::vector<int64_t>{near, 1} : std::vector<int64_t>{near};
  }
  Edits edits(const Measure& measure, size_t format, const std::string& stage, const Keep& keep, int64_t micro) const {
    Edits out = batch_edits(config_, micro, measure.rows);
    for (const Edits& more : {keep_edits(config_, keep), measure.edits, format_edits(grid_, format)})
      out.insert(out.end(), more.begin(), more.end());
    if (stage != config_.section("zero").string("plugin")) out.push_back({"zero", "plugin", stage});
    return out;
  }
  // Settings of recompute that may need less than the configuration's.
  std::vector<Keep> keeps() const {
    std::vector<Keep> out;
    for (const Keep& keep : grid_.keeps)
      if (keep.kind != Keep::Kind::budget && keep.kind != Keep::Kind::none) out.push_back(keep);
    return out;
  }

  // True if anything fits, by bounds: first those that need least.
  bool possible(const Measure& measure, size_t format) {
    const std::vector<std::string> strategies = stages(measure.world);
    const std::vector<Keep> kept = keeps();
    for (auto stage = strategies.rbegin(); stage != strategies.rend(); ++stage)
      for (auto keep = kept.rbegin(); keep != kept.rend(); ++keep) {
        const Tried tried = trial_.bound(edits(measure, format, *stage, *keep, 1), measure.world);
        if (fits(tried)) return true;
        if (fit_.available.device && tried.fixed > fit_.available.device) break;
      }
    return false;
  }

  // The fewest edits with which it fits.
  std::optional<Tried> fewest(const Measure& measure, size_t format) {
    std::vector<Edits> all;
    for (const std::string& stage : stages(measure.world))
      for (const Keep& keep : keeps())
        for (const int64_t micro : micros(measure)) all.push_back(edits(measure, format, stage, keep, micro));
    std::stable_sort(all.begin(), all.end(), [](const Edits& a, const Edits& b) { return a.size() < b.size(); });
    std::optional<Tried> best;
    for (const Edits& one : all) {
      if (best && one.size() > best->edits.size()) break;
      const Tried bound = trial_.bound(one, measure.world);
      if (!fits(bound) || (best && !better(bound, *best))) continue;
      if (Tried whole = trial_.whole(one, measure.world); fits(whole)) best = std::move(whole);
    }
    return best;
  }

  // The first of `measures` with which something fits; each is larger than those before it.
  std::optional<size_t> least(const Measures& measures, size_t format, size_t before, std::optional<Tried>& found) {
    size_t k = first_where(before, [&](size_t at) { return possible(measures[at], format); });
    for (; k < before; ++k)
      if ((found = fewest(measures[k], format))) return k;
    return std::nullopt;
  }

  // Many ranks pad small models, so the last number of ranks need not be what needs least.
  void tell_least(const Measures& measures, bool last_is_least = true) {
    size_t before = measures.size();
    for (size_t format = 0; format < grid_.formats.size() && before > 0; ++format) {
      const bool ends = last_is_least || before < measures.size();
      if (ends && !possible(measures[before - 1], format)) continue;
      std::optional<Tried> found;
      const std::optional<size_t> at = least(measures, format, before, found);
      if (!at) continue;
      before = *at;
      const std::string effect = measures[*at].effect + stage_effect(found->edits);
      found->effect = {false, format ? effect + "; " + format_effect(grid_, format) : effect};
      fit_.remedies.push_back(std::move(*found));
    }
  }

  const Config& config_;
  const Registry& registry_;
  const World& world_;
  Trial& trial_;
  const Grid& grid_;
  Fit& fit_;
};

}  // namespace

void find_remedies(const Config& config, const Registry& registry, const World& world, Trial& trial, const Grid& grid,
                   Fit& fit) {
  Remedies remedies(config, registry, world, trial, grid, fit);
  remedies.more_ranks();
  remedies.small_states();
  remedies.shorter();
  remedies.smaller_model();
}

void find_smaller_workspace(const Config& config, const World& world, Trial& trial, Fit& fit) {
  const auto least = static_cast<int64_t>(usual_workspace(0));
  if (workspace_of(config.section("device")).value_or(0) <= usual_workspace(0) || fits(trial.whole({}, world))) return;
  Tried less = trial.whole({{"device", workspace_key, least}}, world);
  if (!fits(less)) return;
  less.effect = {false, "attention by other kernels, which are slower; the last bits differ"};
  fit.remedies.push_back(std::move(less));
}

}  // namespace eng
