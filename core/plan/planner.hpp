// SPDX-License-Identifier: Apache-2.0
// From a traced model and its policies to the programs of a step.
#pragma once

#include "core/plan/blocks.hpp"
#include "core/plan/moves.hpp"

namespace eng {

// The parts of the planner with which a stage of a pipeline emits its step in an order of its own.
struct StepParts {
  Plan& plan;
  Emitter& emit;
  const Homes& homes;
  Moves& moves;
  const View& losses;       // a row for each micro-batch
  const MicroBatch* batch;  // of "eval"
  // Sets all of micro-batch k but its counters and `before_pass`. `leases`: of the segment. `fresh`: its gradients, per
  // unit. All three outlive its backward.
  std::function<void(uint32_t k, MicroBatch& batch, Leases& leases, std::vector<View>& fresh)> prepare;
  // MicroBatch::before_pass of all micro-batches, whose passes come in this order: one object, not copies of it.
  std::function<std::function<void()>(const std::vector<BlockEmitter::Reads>& passes, Leases& leases)> lease;
};

// Makes units and homes, emits the programs and their waits. Buffers have no offsets yet: make_plan
// (core/program/program.hpp) places them.
Plan emit_plan(const PlanRequest& request);

}  // namespace eng
