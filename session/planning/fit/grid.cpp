// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/grid.hpp"

#include <algorithm>
#include <cmath>

#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

constexpr double shares[] = {0.75, 0.5, 0.25};
// Offloads that save most for their traffic come first.
const std::vector<std::vector<const char*>> offloads = {
    {"optimizer"}, {"optimizer", "gradients"}, {"optimizer", "gradients", "parameters"}};

void append(std::string& text, const std::string& more) {
  if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
}

}  // namespace

Grid grid_of(const Config& config, Registry& registry, const Target& target, const World& world, bool lossy) {
  const Section &model = config.section("model"), &recompute = config.section("recompute");
  Grid grid;
  grid.formats = offers(registry, ENG_PRECISION_KIND, config.section("precision").string("plugin"));
  grid.strategies = strategies_of(config, registry);
  grid.ways = ways_of(config, grid.strategies, world, lossy);
  for (size_t k = grid.strategies.size(); k-- > 1;)
    if (!grid.strategies[k].group.empty()) grid.strategies.erase(grid.strategies.begin() + static_cast<int64_t>(k));
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
  return grid;
}

bool offered(const Way& way, const Keep& keep) {
  return way.stages == 1 || (keep.kind != Keep::Kind::budget && keep.kind != Keep::Kind::blocks);
}

Edits edits_of(const Config& config, const Grid& grid, const Point& point, uint64_t row_bytes) {
  const Way& way = grid.ways[point.way];
  Edits out = batch_edits(config, point.micro, way.rows);
  const Keep& keep = grid.keeps[point.keep];
  const auto budget = static_cast<int64_t>(keep.share * static_cast<double>(row_bytes)) * point.micro;
  const Edits how =
      keep.kind == Keep::Kind::budget ? recompute_edits(config, "budget", budget) : keep_edits(config, keep);
  out.insert(out.end(), how.begin(), how.end());
  out.insert(out.end(), way.edits.begin(), way.edits.end());
  for (Edit& e : format_edits(grid, point.format)) out.push_back(std::move(e));
  const Tiered& home = grid.offloads[point.offload];
  for (const char* key : home.keys) out.push_back({"offload", key, home.tier.name});
  return out;
}

Edits group_edits(const Config& config, const Grid& grid, const Point& point) {
  Edits out = without_stages(config, grid.ways[point.way].degrees);
  for (const Edits& more : {keep_edits(config, grid.keeps[point.keep]), format_edits(grid, point.format)})
    out.insert(out.end(), more.begin(), more.end());
  out.insert(
      out.end(),
      {{"train", "global_batch", {}}, {"train", "micro_batch", point.micro}, {"train", "accumulate", int64_t{2}}});
  return out;
}

Edits keep_edits(const Config& config, const Keep& keep) {
  using Kind = Keep::Kind;
  return keep.kind == Kind::none     ? recompute_edits(config, "policy", std::string("none"))
         : keep.kind == Kind::full   ? recompute_edits(config, "policy", std::string("full"))
         : keep.kind == Kind::blocks ? recompute_edits(config, "blocks", keep.blocks)
         : keep.kind == Kind::every  ? recompute_edits(config, "every", keep.blocks)
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
  append(text, grid.ways[point.way].effect);
  append(text, grid.offloads[point.offload].tier.effect);
  append(text, format_effect(grid, point.format));
  return {text.empty(), text.empty() ? "the same numbers" : text};
}

}  // namespace eng
