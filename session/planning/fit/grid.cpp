// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/grid.hpp"

#include <algorithm>
#include <cmath>

#include "engine/policy.h"

namespace eng {
namespace {

constexpr double shares[] = {0.75, 0.5, 0.25};
// Offloads that save most for their traffic come first.
const std::vector<std::vector<const char*>> offloads = {
    {"optimizer"}, {"optimizer", "gradients"}, {"optimizer", "gradients", "parameters"}};

// A strategy that changes values on purpose has an effect, whether its description says so or not. One that cannot be
// loaded is refused when it is planned.
Offers strategies_of(const Config& config, Registry& registry) {
  Offers out = offers(registry, ENG_ZERO_KIND, config.section("zero").string("plugin"));
  for (Offer& one : out) try {
      if (one.effect.empty() && registry.find(ENG_ZERO_KIND, one.name) &&
          (registry.table<eng_axis>(ENG_ZERO_KIND, one.name).flags & ENG_AXIS_LOSSY))
        one.effect = fmt::format("{} changes values that it moves", one.name);
    } catch (const Error&) {
    }
  return out;
}

void append(std::string& text, const std::string& more) {
  if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
}

}  // namespace

Grid grid_of(const Config& config, Registry& registry, const Target& target, uint32_t ranks) {
  const Section &train = config.section("train"), &model = config.section("model"),
                &recompute = config.section("recompute");
  Grid grid;
  grid.formats = offers(registry, ENG_PRECISION_KIND, config.section("precision").string("plugin"));
  grid.strategies = strategies_of(config, registry);
  grid.stages = ranks > 1 ? grid.strategies : Offers{grid.strategies[0]};
  const bool given = std::any_of(recompute.settings().begin(), recompute.settings().end(),
                                 [](const auto& s) { return s.second.given; });
  const std::string policy = recompute.string("policy");
  const bool by_policy = !given || recompute.given("policy");
  using Kind = Keep::Kind;
  grid.offloads = {{}};
  const Section& offload = config.section("offload");
  const bool free = std::none_of(offload.settings().begin(), offload.settings().end(), [](const auto& s) {
    return s.second.given && is_engine_key("offload", s.first);  // options of tiers say what there is
  });
  // Beside adapters nearly all that a card holds are frozen weights, which have neither states nor gradients.
  const bool adapts = !config.section("transforms").as<Tables>("list").empty();
  for (const Offer& tier : free ? tiers_given(registry, offload) : Offers{}) {
    if (tier.discrete && target.host_memory()) continue;
    if (adapts) grid.offloads.push_back({tier, {"parameters"}});
    for (const auto& keys : offloads) grid.offloads.push_back({tier, keys});
  }
  grid.keeps = {{}};
  if (!by_policy || policy != "none") grid.keeps.push_back({Kind::none});
  for (const double share : shares) grid.keeps.push_back({Kind::budget, share});
  if (!by_policy || policy != "full") grid.keeps.push_back({Kind::full});
  const int64_t layers = model.has("num_hidden_layers") ? model.integer("num_hidden_layers") : 0;
  if (layers >= 4)
    grid.keeps.push_back({Kind::blocks, 1, static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(layers))))});
  const int64_t length = train.integer("sequence_length");
  grid.rows = train.integer("micro_batch") * train.integer("accumulate");
  for (int64_t n = 1; n * n <= grid.rows; ++n)
    if (grid.rows % n == 0)
      for (const int64_t b : {n, grid.rows / n})
        if (b <= (int64_t{1} << 40) / length) grid.micro.push_back(b);  // as the rules of [train] have it
  std::sort(grid.micro.rbegin(), grid.micro.rend());
  grid.micro.erase(std::unique(grid.micro.begin(), grid.micro.end()), grid.micro.end());
  return grid;
}

Edits edits_of(const Config& config, const Grid& grid, const Point& point, uint64_t row_bytes) {
  Edits out = batch_edits(config, point.micro, grid.rows);
  const Keep& keep = grid.keeps[point.keep];
  const auto budget = static_cast<int64_t>(keep.share * static_cast<double>(row_bytes)) * point.micro;
  const Edits how =
      keep.kind == Keep::Kind::budget ? recompute_edits(config, "budget", budget) : keep_edits(config, keep);
  out.insert(out.end(), how.begin(), how.end());
  if (point.stage) out.push_back({"zero", "plugin", grid.stages[point.stage].name});
  for (Edit& e : format_edits(grid, point.format)) out.push_back(std::move(e));
  const Tiered& home = grid.offloads[point.offload];
  for (const char* key : home.keys) out.push_back({"offload", key, home.tier.name});
  return out;
}

Edits keep_edits(const Config& config, const Keep& keep) {
  using Kind = Keep::Kind;
  return keep.kind == Kind::none     ? recompute_edits(config, "policy", std::string("none"))
         : keep.kind == Kind::full   ? recompute_edits(config, "policy", std::string("full"))
         : keep.kind == Kind::blocks ? recompute_edits(config, "blocks", keep.blocks)
                                     : Edits{};
}

Edits format_edits(const Grid& grid, size_t format) {
  return format ? Edits{{"precision", "plugin", grid.formats[format].name}} : Edits{};
}

std::string format_effect(const Grid& grid, size_t format) {
  if (!format) return "";
  const Offer &from = grid.formats[0], &to = grid.formats[format];
  return to.effect.empty() ? fmt::format("number format {} instead of {}", to.name, from.name) : to.effect;
}

Effect effect_of(const Config& config, const Grid& grid, const Point& point) {
  std::string text;
  if (point.micro != config.section("train").integer("micro_batch"))
    text = "the same tokens per step, summed in another order";
  // With the library's own order of sums no strategy keeps the bits of another.
  if (point.stage && config.section("comm").string("reduce") == "fast")
    append(text, "sums over ranks in another order");
  append(text, effect_between(grid.stages[0], grid.stages[point.stage]));
  append(text, grid.offloads[point.offload].tier.effect);
  append(text, format_effect(grid, point.format));
  return {text.empty(), text.empty() ? "the same numbers" : text};
}

}  // namespace eng
