// SPDX-License-Identifier: Apache-2.0
#include "session/planning/notes.hpp"

#include <algorithm>
#include <set>

#include "engine/policy.h"
#include "session/ranks/groups.hpp"

namespace eng {

// The keys are the same for every strategy and number of ranks, so a key without effect is not an error.
std::vector<std::string> idle_keys(const Section& zero, const Plan& plan) {
  std::vector<std::string> notes;
  const bool alone = plan.ranks.data_size() == 1;
  // Pieces on their way to or from a tier follow [zero], too.
  const bool tiers = plan.first_tier < plan.arenas.size();
  const bool leases =
      std::any_of(plan.buffers.begin(), plan.buffers.end(), [](const Buffer& b) { return b.line == Line::leases; });
  for (const auto& [key, setting] : zero.settings())
    if (setting.given && (alone ? setting.value != Value(std::string("none")) && (!tiers || key == "plugin")
                                : key == "prefetch" && !leases))
      notes.push_back(fmt::format("zero.{} has no effect with {}", key, alone ? "one rank" : zero.string("plugin")));
  return notes;
}

// A policy that changes values on purpose: nothing else would say so.
void note_lossy(const Policy& policy, std::vector<std::string>& notes) {
  if (policy.table.flags & ENG_AXIS_LOSSY)
    notes.push_back(
        fmt::format("{}.plugin = \"{}\" is lossy: it changes values that it moves, so results are not those "
                    "of a run without it",
                    policy.kind, policy.name));
}

// More threads than a control group allows on this machine, where the plan would run.
void note_threads(const Config& config, const Target& target, int64_t ranks, std::vector<std::string>& notes) {
  if (target.card) return;
  const CpuQuota quota = cpu_quota();
  for (const char* name : {"device", "host"}) {
    const Section& section = config.section(name);
    if (!section.settings().count("threads") || !section.given("threads")) continue;
    const int64_t threads = std::max<int64_t>(1, section.integer("threads"));
    if (std::string note = quota_note(fmt::format("{}.threads", name), threads, ranks, quota); !note.empty())
      notes.push_back(std::move(note));
  }
}

// A model can compute positions beyond its maximum, but its texts are bad there.
void note_length(const Section& model, int64_t length, int64_t limit, std::vector<std::string>& notes) {
  if (!limit || length <= limit) return;
  notes.push_back(fmt::format("train.sequence_length = {} is {:.3g} times the {} positions of the model{}", length,
                              static_cast<double>(length) / static_cast<double>(limit), limit,
                              model.has("max_position_embeddings") ? " (model.max_position_embeddings)" : ""));
}

std::string left_ops(const Plan& plan, const Kernels& kernels) {
  std::set<std::string> all, left;
  for (const Call& call : plan.calls) {
    if (call.op->collective || call.storage || call.on_host) continue;
    all.insert(call.op->id);
    if (&kernels.serving(call) != &kernels) left.insert(call.op->id);
  }
  if (left.empty()) return "";
  return fmt::format("device {} leaves {} of {} ops to device {}: {}", kernels.device(), left.size(), all.size(),
                     kernels.fallback()->device(), fmt::join(left, ", "));
}

}  // namespace eng
