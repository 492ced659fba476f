// SPDX-License-Identifier: Apache-2.0
#include "session/planning/free_workspace.hpp"

#include <set>

#include "engine/ops_attention.h"
#include "session/cards/device_section.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/stages.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

const std::string free_origin = std::string(free_word) + ": ";

std::string in_units(uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// The plans of the first rank of each stage, with this or that cap.
class Stages {
 public:
  Stages(const Config& config, Registry& registry, const World& world, const Readable& readable)
      : config_(config), registry_(registry), world_(world), readable_(readable), ranks_(divided_ranks(config, world)) {
    // Further micro-batches take the same memory with every cap.
    const auto all = static_cast<uint32_t>(config.section("train").integer("accumulate"));
    if (ranks_.pipeline > 1)
      config_.section("train").set("accumulate", int64_t{enough_micro_batches(pipeline_of(ranks_, all))}, "derived");
    readable_.traced = {};
  }
  uint32_t count() const { return std::max(ranks_.pipeline, 1U); }
  Setup plan(uint32_t stage, uint64_t cap) {
    set_workspace(config_.section("device"), cap, "derived");
    World world = world_;
    world.rank = stage * ranks_.stage_size(), world.local_rank = world.rank % std::max(world.local_size, 1U);
    return make_plan_only(config_, registry_, world, readable_);
  }
  uint64_t peak(uint32_t stage, uint64_t cap) { return device_peak(plan(stage, cap)); }
  static uint64_t device_peak(const Setup& setup) { return peak_of(setup.plan, beside(setup)).device; }

 private:
  Config config_;
  Registry& registry_;
  const World world_;
  Readable readable_;
  const Ranks ranks_;
};

bool is_attention(const Call& call) {
  for (const char* op :
       {ENG_OP_ATTENTION, ENG_OP_ATTENTION_GRAD, ENG_OP_ATTENTION_WINDOW, ENG_OP_ATTENTION_WINDOW_GRAD})
    if (call.op->id == std::string_view(op)) return true;
  return false;
}

}  // namespace

std::optional<Workspace> planned_workspace(const Config& config, Registry& registry, const World& world,
                                           const Readable& readable) {
  const Section& device = config.section("device");
  if (!unsettled_workspace(device)) return {};
  const Section by_default = device_section(config, registry, described_card(config));
  const auto usual = static_cast<uint64_t>(by_default.integer(workspace_key));
  if (!device.has(workspace_key) || readable.forward || readable.job) return Workspace{usual, "derived"};
  if (device.has("attention") && device.string("attention") == "cudnn")
    throw Error(Exit::usage,
                "device.attention_workspace = \"free\": it leaves calls that take more to other kernels, and "
                "device.attention = \"cudnn\" has none",
                "device.attention = \"auto\", or a number of bytes for device.attention_workspace");
  Stages stages(config, registry, world, readable);
  // Without a cap, the scratch of a call is what it takes by whoever serves it then: no smaller cap has other calls.
  std::vector<uint64_t> peaks;
  std::set<uint64_t, std::greater<>> caps;
  for (uint32_t s = 0; s < stages.count(); ++s) {
    const Setup with_usual = stages.plan(s, usual);
    peaks.push_back(Stages::device_peak(with_usual));
    std::set<uint64_t> before;  // by own kernels, too, which no cap limits
    for (const Call& call : with_usual.plan.calls)
      if (is_attention(call)) before.insert(call.workspace);
    for (const Call& call : stages.plan(s, INT64_MAX).plan.calls)
      if (is_attention(call) && call.workspace > usual && !before.contains(call.workspace)) caps.insert(call.workspace);
  }
  for (const uint64_t cap : caps) {
    bool grows = false;
    for (uint32_t s = 0; s < stages.count() && !grows; ++s) grows = stages.peak(s, cap) > peaks[s];
    if (!grows)
      return Workspace{cap, fmt::format("{}{} more than by default, the planned peak of a device does not grow",
                                        free_origin, in_units(cap - usual))};
  }
  return Workspace{usual, fmt::format("{}as by default, {}", free_origin,
                                      caps.empty() ? "no call of attention takes more"
                                                   : "the planned peak of a device would grow with more")};
}

void settle(Config& config, const std::optional<Workspace>& workspace) {
  if (workspace) set_workspace(config.section("device"), workspace->bytes, workspace->origin);
}

void unsettle(Section& device) {
  if (workspace_text(device).empty()) return;
  device.set(workspace_key, {}, "default");
  device.set(workspace_key, std::string(free_word), "given");
}

std::string workspace_text(const Section& device) {
  const auto found = device.settings().find(workspace_key);
  if (found == device.settings().end() || !found->second.origin.starts_with(free_origin)) return "";
  return fmt::format("{}, {}", in_units(static_cast<uint64_t>(device.integer(workspace_key))), found->second.origin);
}

}  // namespace eng
