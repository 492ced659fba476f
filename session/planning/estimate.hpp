// SPDX-License-Identifier: Apache-2.0
// The one estimate of how long a step takes: its queues and waits are simulated with the rates of a machine.
#pragma once

#include "session/cards/target.hpp"
#include "session/planning/offload.hpp"

namespace eng {

// Seconds of one device per training token if every product ran at the device's peak in the format of its weights, or
// in fp8 where it multiplies values of 8 bits and the device states that peak; 0: a peak is unknown. By the usual
// definition a parameter that multiplies (all but lookup tables) takes 6 FLOPs, and causal attention takes 6 * layers *
// T * width (Chowdhery et al. 2022, appendix B, halved for causality), less where it has a window. Times tokens per
// second and device, it is the model FLOPs utilisation (MFU).
double seconds_at_peak(const Model& model, const Target& target);

// Rates that a rank reaches; 0: unknown. What has no rate takes no time.
struct Machine {
  double flops = 0;          // FLOPs per second, in f32
  double bf16 = 0, f16 = 0;  // the same for calls whose first floating input has this type; 0: as in f32
  double fp8 = 0;            // for products of 8 bits; 0: as in bf16
  double attention = 1;      // attention reaches this part of these rates
  // Kernels of the device cuda. Exponentials per second in attention; 0: these kernels are not the ones that compute,
  // so nothing more is known of them.
  double exponentials = 0;
  uint32_t arch = 0;                 // which GPUs cuDNN computes attention on
  uint64_t attention_workspace = 0;  // it keeps at most so many bytes of scores for the backward
  double own_attention = 1;          // own kernels of attention reach this part of the rates
  double memory_bandwidth = 0;       // bytes per second
  double host_link = 0;              // bytes per second between a device with separate memory and its host
  double host_memory = 0;            // bytes per second of a host's memory, which its ranks share
  double storage_read = 0;           // bytes per second of a host's storage, which its ranks share
  double storage_write = 0;
  double launch = 0;  // seconds that each action takes at least
  uint32_t ranks_per_node = 1;
  double bandwidth = 0, latency = 0;            // bytes per second and seconds, to other nodes
  double node_bandwidth = 0, node_latency = 0;  // within a node
  // True if a gather's bytes cross the network once for a node, in equal parts over the links of all its ranks. Else
  // each rank brings in all of them itself.
  bool gathers_once = false;
};

// The fractions of a device's stated peaks that are reached, and what attention costs: measured on an H200
// (benchmarks/results/steps-h200.md) where nothing else is said.
struct Reached {
  double flops;  // 0.79 and 0.71: all products of a LLaMA 1.26B and of a 7B; 0.72: those of both together
  double memory, links;
  double launch;     // seconds between two kernels
  double attention;  // as `flops`, for attention by kernels of which nothing is known
  // Exponentials for each score of cuDNN's attention that take as long as all in it that is no product.
  double forward_score, backward_score;
  // As `flops`, for attention by the own kernels of the device cuda, from sm_90 to sm_110 and on others. Their
  // instructions reach 0.63 of the peak of an H100 (Luo et al. 2024, arXiv 2402.13499), and all of that of others.
  double own_since_90, own_attention;
  double own_backward;  // its products by those that count: the scores are computed twice
  // The part of the slots for instructions that Mamba's scan uses. The forward before its last change issued 6.3 for a
  // token of a channel and, what bound it, 32 exponentials: 7.7 ps on an H200, where it took 15.7.
  double scan;
};
constexpr Reached reached = {0.72, 0.85, 0.8, 4e-6, 0.5, 1.58, 6.67, 0.22, 0.35, 1.4, 0.5};
// Bytes per second of a host's memory where [host] memory_bandwidth is absent: eight channels of DDR4-2133 have 137
// GB/s.
constexpr double assumed_host_memory = 1e11;
// Bytes per second of storage that does not say: one NVMe disk of PCIe 3.
constexpr double assumed_storage_read = 3e9, assumed_storage_write = 2e9;

// By [comm] describe, whose rates are taken as they are; for the rest, by what is reached of the device's peaks.
Machine machine_of(const Section& comm, const Target& target, const Storage& storage = {});
// Only to put settings into an order where a device states no rates: those of no device in particular.
Machine nominal_machine(Machine known);

// The members of this rank's groups in its node, and in others, without itself: by the group's number.
struct Topology {
  struct Members {
    uint32_t near = 0, far = 0;
  };
  Topology(const Ranks& ranks, uint32_t ranks_per_node);
  std::vector<Members> groups;  // index: id - 1
};
// The time of its bytes at the bandwidth, plus a latency for every doubling of the members, as in a tree. Traffic
// within a node and between nodes happens at the same time.
double collective_seconds(const Topology& topology, const Call& collective, const Machine& machine);

enum class BoundBy : uint8_t { compute, memory, communication, host_link, host, storage, launches };
const char* to_string(BoundBy bound);

// In seconds.
struct StepTimes {
  double step = 0;
  double communication = 0;  // all collectives, one after the other
  double exposed = 0;        // how much longer the step takes because of collectives
  double copies = 0;         // how much longer it takes because of copies between host and device
  double storage = 0;        // how much longer it takes because of reads and writes of storage
  double host = 0;           // how much longer it takes because of what the host computes in memory of tiers
  double bubble = 0;         // how long it waits for other stages, if all take as long as this one
  double update = 0;         // of the step, its last segment, which is not of one micro-batch
  // The actions of the queue that computes, by what limits each.
  double flops = 0, memory = 0, launches = 0;
  BoundBy bound() const;  // the largest of these
};
// One action of a segment in the simulation.
struct Timed {
  double start = 0, seconds = 0;  // after the segment's start
  BoundBy by = BoundBy::launches;
};
// The simulation of a segment, which all estimates of times use: in the order of its actions.
struct Simulated {
  std::vector<Timed> actions;
  double seconds = 0;  // until all queues have ended
};
Simulated simulate(const Plan& plan, const Segment& segment, const Machine& machine);
// Its seconds if the actions of these phases took no time.
double seconds_without(const std::vector<Phase>& phases, const Plan& plan, const Segment& segment,
                       const Machine& machine);

// Simulates the queues and waits of program "train".
StepTimes step_times(const Plan& plan, const Machine& machine);
// The part of what is on tiers that the device updates best, in hundredths, where host and device update it at the same
// time: the queue of the update that is at work longest then is so for the least time.
double best_device_share(const PlanRequest& request, const Machine& machine);
// The first block that is updated beside the last backward in the shortest step, among those that divide the model into
// eighths, or for a `sketch` into halves; the number of blocks if none shortens it. Emits 3 to 7 plans.
uint32_t best_early_block(const PlanRequest& request, const Machine& machine, bool sketch);
// Simulates a program.
double program_seconds(const Plan& plan, const std::string& program, const Machine& machine);
// `linked`: the rates between the ranks of this plan are known. `timed`: all rates that the time of its step needs are.
bool linked(const Plan& plan, const Machine& machine);
bool timed(const Plan& plan, const Machine& machine);

}  // namespace eng
