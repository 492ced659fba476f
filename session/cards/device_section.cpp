// SPDX-License-Identifier: Apache-2.0
#include "session/cards/device_section.hpp"

#include "core/execute/device.hpp"

namespace eng {

namespace {

const Value* value_in(const Section& device) {
  const auto found = device.settings().find(workspace_key);
  return found == device.settings().end() || device.string("plugin") != "cuda" ? nullptr : &found->second.value;
}

}  // namespace

uint64_t usual_workspace(const Card& card) {
  return std::max(usual_workspace(card.memory), card.workspace);
}

std::optional<uint64_t> workspace_of(const Section& device) {
  const Value* value = value_in(device);
  const int64_t* bytes = value ? std::get_if<int64_t>(value) : nullptr;
  return bytes ? std::optional(static_cast<uint64_t>(*bytes)) : std::nullopt;
}

bool unsettled_workspace(const Section& device) {
  return value_in(device) && !workspace_of(device);
}

Section device_section(const Config& config, Registry& registry, const std::optional<Card>& card) {
  Section out = config.section("device");
  if (!unsettled_workspace(out)) return out;
  set_workspace(out, card ? usual_workspace(*card) : usual_workspace(0), "derived");
  if (!card)
    set_workspace(out, usual_workspace(Kernels(registry, out.string("plugin"), out).info().total_bytes), "derived");
  return out;
}

void set_workspace(Section& device, uint64_t bytes, const std::string& origin) {
  device.set(workspace_key, {}, "default");  // the word gives way to a number
  device.set(workspace_key, static_cast<int64_t>(bytes), origin);
}

}  // namespace eng
