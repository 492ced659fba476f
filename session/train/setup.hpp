// SPDX-License-Identifier: Apache-2.0
// From a configuration to a plan: everything that can be known without running anything.
#pragma once

#include "core/execute/comm.hpp"
#include "core/execute/device.hpp"
#include "core/program/program.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/config/config.hpp"

namespace eng {

struct Setup {
  std::unique_ptr<Kernels> kernels;
  Precision precision;
  std::optional<Sharding> sharding;  // where there are several ranks
  Optimizer optimizer;
  Model model;
  Plan plan;
  std::vector<std::string> notes;  // keys of [zero] that do nothing here; sequences longer than the model's
  uint64_t comm_overhead = 0;      // bytes of host memory of the communicator, where there are several ranks
  uint64_t snapshot = 0;           // bytes of host memory for checkpoints that are written while steps go on
};

// Loads the plugins that the configuration names, traces the model, makes the verified plan.
// With `generate`: for one running sequence of up to so many positions, and no training. The plan is that of one rank
// of `world`; no other rank need be there. Scratch of collectives is known where there is a communicator.
Setup make_setup(const Config& config, Registry& registry, int64_t generate = 0, const World& world = {},
                 const Communicator* comm = nullptr);

// For the weights of a model that exists: what evaluates it, and neither gradients nor the optimizer's state.
Setup make_evaluation(const Config& config, Registry& registry);

// What a checkpoint holds: all named tensors but gradients.
std::vector<TensorShare> saved_tensors(const Plan& plan);
std::vector<TensorShare> parameters(const Plan& plan);

}  // namespace eng
