// SPDX-License-Identifier: Apache-2.0
#include "session/cards/target.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/error.hpp"
#include "engine/comm.h"
#include "engine/op.h"
#include "session/cards/derived.hpp"
#include "session/cards/device_section.hpp"
#include "session/config/toml.hpp"
#include "session/ranks/room.hpp"

namespace eng {
namespace {

constexpr const char* key = "device.describe";
const std::string cuda = "cuda";  // the device of the engine's cards

eng_device_info info_of(const Card& card) {
  eng_device_info info{};
  info.struct_size = sizeof(info);
  info.flags = ENG_DEVICE_ASYNC;
  info.parallel = info.parallel_beside = 1;
  info.arch = card.arch;
  return info;
}

// The card's values replace those that the plugin reports of the device that is here.
void describe(const Card& card, uint32_t ranks, Target& target) {
  eng_device_info& info = target.info;
  info.total_bytes = card.memory;
  if (card.plugin.empty()) return;  // only a size
  if (card.arch) info.arch = card.arch;
  info.device_overhead_bytes = card.reserve + (ranks > 1 ? card.communicator : 0);
  info.peak_f32 = card.peak_f32, info.peak_bf16 = card.peak_bf16, target.peak_f16 = card.peak_f16;
  target.peak_fp8 = card.peak_fp8, target.reach = card.reach;
  info.memory_bandwidth = card.memory_bandwidth;
  info.to_device = info.to_host = card.pcie;
  target.link = card.link > 0 ? card.link : card.pcie;
  target.network = card.network;
  target.link_latency = card.link_latency, target.network_latency = card.network_latency;
  std::memset(info.name, 0, sizeof info.name);
  std::memcpy(info.name, card.name.data(), std::min(card.name.size(), sizeof info.name - 1));
}

// The least architecture that an entry of a description names; nothing, if it names none.
std::optional<uint32_t> stated_arch(const Provided& one) {
  const auto said = one.facts.find("least_arch");
  if (said == one.facts.end()) return {};
  return static_cast<uint32_t>(std::get<int64_t>(said->second));
}

// The least architecture with kernels for a device, in the numbers of its plugin; 0: any. An installed plugin says it
// in its description. The engine's cards can be planned for without it.
uint32_t least_arch(const Registry& registry, const std::string& device) {
  const Provided* one = registry.find(ENG_DEVICE_KIND, device);
  return (one ? stated_arch(*one) : std::nullopt).value_or(device == cuda ? cuda_least_arch : 0);
}

std::string arch_text(const std::string& device, uint32_t arch) {
  return device == cuda ? fmt::format("compute capability {}.{}", arch / 10, arch % 10)
                        : fmt::format("architecture {}", arch);
}

std::string name_of(const Target& target) {
  return target.card ? target.card->name : std::string(target.info.name);
}

// Throws Error(Exit::environment) for an architecture without kernels.
void check_arch(const Registry& registry, const Target& target) {
  const uint32_t least = least_arch(registry, target.device), arch = target.info.arch;
  if (!arch || arch >= least) return;
  std::vector<std::string> others;
  for (const std::string& name : card_names())
    if (const Card card = find_card(name, {}, key); card.plugin == target.device && card.arch >= least)
      others.push_back(name);
  throw Error(Exit::environment,
              fmt::format("{} has {}: the kernels of device {} need {} or later", name_of(target),
                          arch_text(target.device, arch), target.device, arch_text(target.device, least)),
              others.empty() ? "" : fmt::format("cards that it has kernels for: {}", fmt::join(others, ", ")));
}

}  // namespace

std::optional<Card> described_card(const Config& config) {
  const Section& device = config.section("device");
  if (!device.has("describe")) return std::nullopt;
  return find_card(device.string("describe"), config.base_dir(), key);
}

void refuse_described(const Config& config) {
  const Section& device = config.section("device");
  if (device.has("describe"))
    throw Error(Exit::usage,
                fmt::format("{} = {}: the device is described, not present, so nothing can run on it", key,
                            toml_text(device.string("describe"))),
                "remove the key (--unset device.describe); `engine plan` and `engine check` take described devices");
}

bool has_kernels(const Config& config, const std::optional<Card>& card) {
  return !card || card->plugin.empty() || card->plugin == config.section("device").string("plugin");
}

void need_kernels(const Registry& registry, const std::string& kind, const std::string& name,
                  const std::string& device) {
  const Provided* one = registry.find(kind, name);
  const std::vector<std::string> all = one ? texts_in(one->facts, "devices") : std::vector<std::string>();
  if (all.empty() || std::find(all.begin(), all.end(), device) != all.end()) return;
  const std::string what = kind.substr(kind.find('.') + 1, kind.find('/') - kind.find('.') - 1);
  throw Error(Exit::environment,
              fmt::format("device {} has no kernels for the ops of {} {}: it has them for {}", device, what, name,
                          fmt::join(all, ", ")),
              fmt::format("set device.plugin = \"{}\", and remove {} or give it an amount of memory", all[0], key));
}

void need_op_kernels(const Registry& registry, const Model& model, const Target& target) {
  const auto used = [&](const std::string& plugin) -> std::string {
    for (const auto& [number, block] : model.templates)
      for (const Node& node : block.graph.nodes)
        if (const std::string id = node.op->id; id.starts_with(plugin + ".")) return id;
    return "";
  };
  const uint32_t arch = target.info.arch;
  for (const Candidate& file : registry.candidates())
    for (const Provided& one : file.description.provides) {
      const std::vector<std::string> all = texts_in(one.facts, "devices");
      const bool none = !all.empty() && std::find(all.begin(), all.end(), target.device) == all.end();
      const uint32_t least = stated_arch(one).value_or(0);
      if (one.kind != ENG_OPS_KIND || !(none || (arch && arch < least))) continue;
      const std::string op = used(file.description.id), whose = file.description.name;
      if (op.empty()) continue;
      if (none)
        throw Error(Exit::environment,
                    fmt::format("device {} has no kernel for {}: plugin {} has kernels for {}", target.device, op,
                                file.description.id, fmt::join(all, ", ")),
                    fmt::format("set device.plugin = \"{}\", or leave out the option for which {} needs this op",
                                all[0], whose));
      throw Error(Exit::environment,
                  fmt::format("{} has {}: the kernels of {} for device {} need {} or later", name_of(target),
                              arch_text(target.device, arch), op, target.device, arch_text(target.device, least)),
                  fmt::format("leave out the option for which {} needs this op", whose));
    }
}

Target make_target(const Config& config, const Registry& registry, std::optional<Card> card, const Section& device,
                   const Kernels* kernels, uint32_t ranks) {
  Target target;
  target.device = kernels ? kernels->device() : card->plugin;
  target.info = kernels ? kernels->info() : info_of(*card);
  if (!kernels) target.workspace = card->workspace, target.attention_workspace = usual_workspace(*card);
  target.peak_f16 = derived_f16(target.device, target.info), target.peak_fp8 = derived_fp8(target.device, target.info);
  if (card) describe(*card, ranks, target);
  target.card = std::move(card);
  check_arch(registry, target);
  if (kernels)
    target.head_rows = device.has("pad_vocabulary") ? device.integer("pad_vocabulary") : 1;
  else if (target.device == cuda)
    target.head_rows = cuda_head_rows;
  if (device.has("memory")) target.arena_bytes = static_cast<uint64_t>(device.integer("memory"));
  // Beside a device that is here, this machine's memory, or less where a control group allows less.
  if (!target.host_memory() && !target.card) target.host_bytes = room_here().memory;
  if (kernels) target.attention_workspace = workspace_of(device).value_or(0);
  target.own_attention = kernels && device.has("attention") && device.string("attention").starts_with("own");
  const Section& host = config.section("host");
  if (host.has("memory_bandwidth")) target.host_bandwidth = host.number("memory_bandwidth");
  if (host.has("memory")) {
    const auto bytes = static_cast<uint64_t>(host.integer("memory"));
    uint64_t& total = target.info.total_bytes;
    if (target.host_memory())
      total = total && target.card ? std::min(total, bytes) : bytes;
    else
      target.host_bytes = bytes;
  }
  return target;
}

bool divides_vocabulary(const Target& target) {
  return target.host_memory() || target.device == cuda;
}

DeviceTraits traits_of(const Target& target, std::optional<uint32_t> communicator) {
  DeviceTraits traits;
  traits.discrete = !target.host_memory();
  // A described card has a communicator that takes its memory, whatever is installed here.
  if (communicator && !target.workspace) traits.collectives_on_device = *communicator & ENG_COMM_DEVICE_MEMORY;
  traits.collectives_on_device = traits.collectives_on_device || !traits.discrete;
  traits.queues = target.info.flags & ENG_DEVICE_ASYNC;
  traits.overlapped = target.info.parallel_beside;
  return traits;
}

uint32_t ranks_per_host(const Section& comm, const std::optional<Card>& card) {
  const char* per_node = "describe.ranks_per_node";
  if (comm.has(per_node)) return static_cast<uint32_t>(comm.integer(per_node));
  return !card || card->plugin.empty() ? 1 : card->node ? card->node : 8;
}

}  // namespace eng
