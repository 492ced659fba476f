// SPDX-License-Identifier: Apache-2.0
// The traffic between ranks in a step, and its time on described machines.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "session/config/config.hpp"

namespace eng {

// The number of elements of which a rank of a group of m sends the fraction (m - 1) / m: the elements that all members
// hold together afterwards, or that each member contributes. For a sum that every rank receives, twice that.
uint64_t spread_elements(const Call& collective);
// The bytes that each member sends; it receives as many.
uint64_t sent_bytes(const Call& collective);

// The collectives of one kind and one purpose in a step.
struct Transfer {
  std::string op;       // "eng.all_gather/1"
  std::string purpose;  // "weights, forward"
  uint64_t count = 0;   // per step
  uint64_t bytes = 0;   // sent by each rank per step
  uint64_t elements = 0;
};
// In order of first occurrence. For program "train", including repetitions.
std::vector<Transfer> traffic(const Plan& plan);
// Elements of all units, padding included: the P in which traffic is counted.
uint64_t unit_elements(const Plan& plan);

// Rates of each rank; 0: unknown.
struct Machine {
  double flops = 0;             // FLOPs per second
  double memory_bandwidth = 0;  // bytes per second
  uint32_t ranks_per_node = 1;
  double bandwidth = 0, latency = 0;            // bytes per second and seconds, to other nodes
  double node_bandwidth = 0, node_latency = 0;  // within a node
};
// By [comm] describe; `peak` is that of the device.
Machine described(const Section& comm, double peak);

// The time of its bytes at the bandwidth, plus a latency for every doubling of the members, as in a tree. Traffic
// within a node and between nodes happens at the same time.
double collective_seconds(const Plan& plan, const Call& collective, const Machine& machine);

struct StepTimes {
  double step = 0;
  double communication = 0;  // all collectives, one after the other
  double exposed = 0;        // how much longer the step takes because of collectives
};
// Simulates the queues and waits of program "train". Work for which the machine has no rate takes no time.
StepTimes step_times(const Plan& plan, const Machine& machine);

}  // namespace eng
