// SPDX-License-Identifier: Apache-2.0
// From a configuration to a plan: everything that is known without running anything.
#pragma once

#include "core/execute/comm.hpp"
#include "core/execute/device.hpp"
#include "core/program/program.hpp"
#include "session/cards/device_section.hpp"
#include "session/cards/target.hpp"
#include "session/config/config.hpp"
#include "session/model/observers.hpp"
#include "session/planning/offload.hpp"
#include "session/planning/shapes.hpp"
#include "session/planning/shares.hpp"

namespace eng {

struct Setup {
  Section device;                    // as its plugin gets it
  Target target;                     // the device that the plan is for
  std::unique_ptr<Kernels> kernels;  // of that device; null for a card whose plugin is not asked
  std::unique_ptr<Kernels> host;     // what computes in memory of tiers; null: `kernels` do, or nothing does
  Offload offload;
  std::optional<HostUpdate> host_update;  // of program "train"
  Storage storage;                        // of the first tier that is storage
  uint64_t tiers = 0;                     // bytes of host memory that tiers need beside their arenas
  Precision precision;
  std::optional<Sharding> sharding;  // where there are several ranks
  Optimizer optimizer;
  Observers observers;
  Model model;
  Plan plan;
  // Keys of [zero] without effect; lossy policies; ops left to another device; sequences longer than the model's.
  std::vector<std::string> notes;
  uint64_t comm_overhead = 0;   // bytes of host memory of the communicator, with several ranks
  uint64_t model_overhead = 0;  // and of the plugins of the model and its transforms: their code
  uint64_t data = 0;            // bytes of host memory that the data source keeps, once it is open
  uint64_t snapshot = 0;        // bytes of host memory for asynchronous checkpoints
  uint64_t copies = 0;          // bytes of host memory for parts of checkpoints that hosts keep in memory
  uint64_t second = 0;          // bytes of host memory for copies of checkpoints in a second place
  uint64_t job = 0;             // bytes of host memory that a job takes
  uint64_t kept = 0;            // bytes on disk of what it keeps
  uint64_t stored = 0;          // tensors of the weights, if they are only read
  std::vector<Shape> shapes;    // forwards of other lengths, the shortest first
  // The plan of the texts that observers ask for, with kernels and memory of its own, for the first rank; or null.
  std::shared_ptr<const Setup> sampling = {};
};

// Values of a run's plan that others can read, besides those that training needs.
struct Readable {
  bool gradients = false;                     // the last step's: they take memory of their own
  bool logits = false;                        // program "logits" and its result
  std::vector<std::string> activations = {};  // patterns of names: of the last micro-batch
  std::vector<std::string> fields = {};       // that batches of the caller bring, whatever the own data have
  // In place of [loss] and without [[transforms]]: the model that [reference] from names. Its head keeps the
  // log-probabilities of the labels, (B, T), as its only activation.
  bool reference = false;
  std::vector<int64_t> lengths = {};  // of further forwards to the logits, of as many rows: Setup::shapes
  int64_t sequences = 1;              // that are generated at a time
  // Nothing is trained: there are only weights, and forwards of the model itself, without [loss] and [reference].
  bool forward = false;
  // Instead of training: a job's programs, and the gradients. Borrowed.
  const Job* job = nullptr;
  std::vector<std::string> resting = {};          // tensors of other groups of that job: frozen as by train.freeze
  std::function<void(const Model&)> traced = {};  // called before the model is planned: what it refuses costs no plan
  // More of the model than its loss.
  bool beyond_loss() const { return job || logits || !lengths.empty() || !activations.empty(); }
};

// Loads the plugins that the configuration names, traces the model, makes the verified plan.
// With `generate`: for one sequence of up to this many positions, without training. The plan is that of one rank of
// `world`; the other ranks need not exist. The scratch of collectives is known only with a communicator.
Setup make_setup(const Config& config, Registry& registry, int64_t generate = 0, const World& world = {},
                 const Communicator* comm = nullptr, const Readable& readable = {});

// Like make_setup, for a plan that is only looked at: without the bytes of constants, which may be hundreds of MiB.
Setup make_plan_only(const Config& config, Registry& registry, const World& world = {}, const Readable& readable = {});

// Like make_plan_only, before buffers get their places: the arenas have the sizes below which no layout can go.
Setup make_sketch(const Config& config, Registry& registry, const World& world = {});

// For evaluating existing weights: without gradients and optimizer state.
Setup make_evaluation(const Config& config, Registry& registry, const Readable& readable = {});

}  // namespace eng
