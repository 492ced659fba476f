// SPDX-License-Identifier: Apache-2.0
// The device that a plan is for: the one of [device] plugin, or one that [device] describe describes.
#pragma once

#include <optional>

#include "core/execute/device.hpp"
#include "core/plan/request.hpp"
#include "session/cards/card.hpp"
#include "session/config/config.hpp"

namespace eng {

struct Target {
  std::string device;                // the name of its plugin
  std::optional<Card> card;          // what describes it; none: the device is here
  eng_device_info info{};            // as the plugin says, or the card
  uint64_t workspace = 0;            // the most scratch of a kernel, where no kernel was asked; else 0
  uint64_t arena_bytes = 0;          // [device] memory; 0: none is given
  uint64_t host_bytes = 0;           // memory of a host, for a device with separate memory; 0: unknown
  double host_bandwidth = 0;         // bytes per second of a host's memory: [host] memory_bandwidth; 0: none is given
  int64_t head_rows = 1;             // the weight of a head has a multiple of so many rows in memory
  double peak_f16 = 0;               // FLOP/s; the other peaks are in `info`
  double peak_fp8 = 0;               // of products of 8 bits; 0: it states none
  double reach = 0;                  // the part of its peaks that products reach; 0: as usual
  uint64_t attention_workspace = 0;  // of the plugin of the engine's cards: the most scratch of attention
  bool own_attention = false;        // the library computes none
  double link = 0;                   // bytes per second between the devices of a host; 0: unknown
  double network = 0;                // bytes per second of each device to those of other hosts; 0: unknown
  double link_latency = 0, network_latency = 0;  // seconds of a message in addition to its bytes

  bool host_memory() const { return info.flags & ENG_DEVICE_HOST_MEMORY; }
};

// The card of [device] describe, if any. Throws Error(Exit::usage).
std::optional<Card> described_card(const Config& config);
// Throws Error(Exit::usage) if the device is only described: nothing can run on it.
void refuse_described(const Config& config);
// True if the kernels of [device] plugin compute on this device: they then say how much scratch they need.
bool has_kernels(const Config& config, const std::optional<Card>& card);
// The least compute capability with kernels in the plugin of the engine's cards, as that says itself: 80 for 8.0.
constexpr uint32_t cuda_least_arch = 80;
// [device] pad_vocabulary of that plugin, by default.
constexpr int64_t cuda_head_rows = 64;
// For a device whose kernels are not asked: throws Error(Exit::environment) if a plugin says for which devices its ops
// have kernels, and this is none of them.
void need_kernels(const Registry& registry, const std::string& kind, const std::string& name,
                  const std::string& device);
// Throws the same for ops of a traced model, which a device without memory of the host is to compute, and for those
// whose kernels need a newer architecture.
void need_op_kernels(const Registry& registry, const Model& model, const Target& target);
// `device`: what the plugin of [device] gets. `kernels`: its kernels, if has_kernels. `ranks`: that share the step.
// Throws Error(Exit::environment) for an architecture that is older than the kernels of its device.
Target make_target(const Config& config, const Registry& registry, std::optional<Card> card, const Section& device,
                   const Kernels* kernels, uint32_t ranks);
// True if the device has kernels for parts of a vocabulary (engine/ops_parallel.h): one whose memory is the host's,
// and that of the engine's cards, whether its plugin is here or not.
bool divides_vocabulary(const Target& target);
// The properties of the target that a plan depends on; `communicator`: flags of the communicator's table, if it is
// installed.
DeviceTraits traits_of(const Target& target, std::optional<uint32_t> communicator);

// Ranks that share a host: [comm] describe.ranks_per_node; if absent, 1, or as many as a described card says, or 8.
uint32_t ranks_per_host(const Section& comm, const std::optional<Card>& card);

}  // namespace eng
