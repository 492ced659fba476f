// SPDX-License-Identifier: Apache-2.0
// What a step moves between ranks, and how long that takes on machines that are described, not there.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "session/config/config.hpp"

namespace eng {

// The elements of which a rank of a group of m sends (m - 1) / m: those that all members hold together afterwards, or
// that each of them has to bring. Of a sum that everybody gets, twice.
uint64_t spread_elements(const Call& collective);
// The bytes that each member sends, and as many receives.
uint64_t sent_bytes(const Call& collective);

// The collectives of one kind that a step has for one purpose.
struct Transfer {
  std::string op;       // "eng.all_gather/1"
  std::string purpose;  // "weights, forward"
  uint64_t count = 0;   // per step
  uint64_t bytes = 0;   // that each rank sends per step
  uint64_t elements = 0;
};
// In the order of the first of each. Of program "train", with repetitions.
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

// Its bytes at the bandwidth, and a latency for every doubling of the members, as a tree has; within a node and between
// nodes at the same time.
double collective_seconds(const Plan& plan, const Call& collective, const Machine& machine);

struct StepTimes {
  double step = 0;
  double communication = 0;  // all collectives, one after the other
  double exposed = 0;        // the part of the step for which they are to blame
};
// Plays the queues and waits of program "train". What the machine has no rate for takes no time.
StepTimes step_times(const Plan& plan, const Machine& machine);

}  // namespace eng
