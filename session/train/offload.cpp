// SPDX-License-Identifier: Apache-2.0
#include "session/train/offload.hpp"

#include <algorithm>

namespace eng {
namespace {

constexpr const char* host_device = "cpu";

// A device's options without a configuration: its defaults.
Section defaults_of(Registry& registry, const std::string& device) {
  std::map<std::string, Setting> settings;
  for (const Option& option : registry.find(ENG_DEVICE_KIND, device)->schema.options)
    settings[option.key] = {option.fallback, "default"};
  return {"device", std::move(settings)};
}

}  // namespace

Offload make_offload(const Section& section, Registry& registry) {
  Offload out;
  for (const auto& [key, role] : {std::pair("optimizer", ENG_ROLE_STATE),
                                  {"master", ENG_ROLE_MASTER},
                                  {"gradients", ENG_ROLE_GRAD},
                                  {"parameters", ENG_ROLE_WEIGHT},
                                  {"activations", ENG_ROLE_ACT}}) {
    const std::string& tier = section.string(key);
    if (tier == "none") continue;
    if (!registry.find(ENG_TIER_KIND, tier))
      throw Error(Exit::usage, fmt::format("offload.{} = {}: there is no such tier", key, toml_text(tier)),
                  fmt::format("tiers: none, {}", fmt::join(registry.names(ENG_TIER_KIND), ", ")));
    out.roles[role] = tier;
    if (std::count(out.tiers.begin(), out.tiers.end(), tier)) continue;
    describe_tier(registry, tier, section);
    out.tiers.push_back(tier);
  }
  out.update_on_host = section.string("update") == "host";
  return out;
}

std::unique_ptr<Kernels> host_kernels(Registry& registry) {
  return std::make_unique<Kernels>(registry, host_device, defaults_of(registry, host_device));
}

Host make_host(const Offload& offload, const Section& section, Registry& registry, const Kernels* kernels,
               uint32_t local_rank) {
  Host host;
  for (const std::string& tier : offload.tiers)
    host.tiers.push_back(std::make_unique<Tier>(registry, tier, section, local_rank));
  host.kernels = kernels;
  if (kernels)
    host.device = std::make_unique<Device>(registry, host_device, defaults_of(registry, host_device), local_rank);
  return host;
}

}  // namespace eng
