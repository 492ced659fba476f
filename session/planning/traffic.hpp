// SPDX-License-Identifier: Apache-2.0
// The traffic between ranks in a step.
#pragma once

#include <string>
#include <vector>

#include "core/plan/request.hpp"

namespace eng {

// The number of elements of which a rank of a group of m sends the fraction (m - 1) / m: the elements that all members
// hold together afterwards, or that each member contributes. For a sum that every rank receives, twice that.
uint64_t spread_elements(const Call& collective);
// The bytes that each member sends; it receives as many.
uint64_t sent_bytes(const Call& collective);

// The collectives of one kind and one purpose in a step.
struct Transfer {
  std::string op;          // "eng.all_gather/1"
  std::string purpose;     // "weights, forward"
  uint64_t count = 0;      // per step
  uint64_t bytes = 0;      // sent by each rank per step
  uint64_t exchanged = 0;  // of which the rank sends the fraction (m - 1) / m, in a group of m
};
// In order of first occurrence. For program "train", including repetitions.
std::vector<Transfer> traffic(const Plan& plan);
// P: elements of all units, padding included.
uint64_t unit_elements(const Plan& plan);
// Their bytes in the type in which weights are computed with: the unit of traffic.
uint64_t weight_bytes(const Plan& plan, const Precision& precision);

}  // namespace eng
