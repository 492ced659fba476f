// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/grid.hpp"

#include <algorithm>
#include <cmath>

#include "engine/policy.h"
#include "engine/tier.h"

namespace eng {
namespace {

// The plugins that are tried, where they are installed. zero1 is left out: it is the program of zero2.
const std::vector<std::string> formats = {"fp32", "bf16", "bf16_sr", "fp16"}, stages = {"none", "zero2", "zero3"};
constexpr double shares[] = {0.75, 0.5, 0.25};
// Offloads that save most for their traffic come first.
const std::vector<std::vector<const char*>> offloads = {
    {"optimizer"}, {"optimizer", "gradients"}, {"optimizer", "gradients", "parameters"}};

bool has(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// `now` first, then the others that are installed.
std::vector<std::string> choices(const std::string& now, const std::vector<std::string>& all, const Registry& registry,
                                 const char* kind) {
  const std::vector<std::string> installed = registry.names(kind);
  std::vector<std::string> out = {now};
  for (const std::string& name : all)
    if (name != now && has(installed, name) && !(now == "zero1" && name == "zero2")) out.push_back(name);
  return out;
}

}  // namespace

Grid grid_of(const Config& config, const Registry& registry, const Target& target, uint32_t ranks) {
  const Section &train = config.section("train"), &model = config.section("model"),
                &recompute = config.section("recompute");
  Grid grid;
  grid.formats = choices(config.section("precision").string("plugin"), formats, registry, ENG_PRECISION_KIND);
  grid.stages = {config.section("zero").string("plugin")};
  if (ranks > 1) grid.stages = choices(grid.stages[0], stages, registry, ENG_ZERO_KIND);
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
  const auto try_tier = [&](const char* tier, bool useful) {
    if (free && useful && registry.find(ENG_TIER_KIND, tier))
      for (const auto& keys : offloads) grid.offloads.push_back({tier, keys});
  };
  try_tier("host", !target.host_memory());
  try_tier("nvme", offload.has("nvme_paths") && !offload.strings("nvme_paths").empty());
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
  if (point.stage) out.push_back({"zero", "plugin", grid.stages[point.stage]});
  for (Edit& e : format_edits(grid, point.format)) out.push_back(std::move(e));
  const Tiered& home = grid.offloads[point.offload];
  for (const char* key : home.keys) out.push_back({"offload", key, std::string(home.tier)});
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
  return format ? Edits{{"precision", "plugin", grid.formats[format]}} : Edits{};
}

std::string format_effect(const Grid& grid, size_t format) {
  return format ? fmt::format("number format {} instead of {}", grid.formats[format], grid.formats[0]) : "";
}

Effect effect_of(const Config& config, const Grid& grid, const Point& point) {
  std::string text;
  if (point.micro != config.section("train").integer("micro_batch"))
    text = "the same tokens per step, summed in another order";
  // With the library's own order of sums no strategy keeps the bits of another.
  if (point.stage && config.section("comm").string("reduce") == "fast")
    text += fmt::format("{}sums over ranks in another order", text.empty() ? "" : "; ");
  if (point.format) text += (text.empty() ? "" : "; ") + format_effect(grid, point.format);
  return {text.empty(), text.empty() ? "the same numbers" : text};
}

}  // namespace eng
