// SPDX-License-Identifier: Apache-2.0
// All that a plan is made from: the model, the policies' objects, the device's traits and the run's settings.
#pragma once

#include "core/plan/plan.hpp"
#include "core/trace/model.hpp"
#include "engine/job.h"
#include "engine/observer.h"
#include "engine/optimizer.h"
#include "engine/policy.h"

namespace eng {

// A policy plugin's object and table.
struct Policy {
  std::string kind, name;  // "precision", "fp32"
  eng_axis table{};
  std::shared_ptr<void> self;
  std::string who() const { return kind + " " + name; }
  std::vector<OwnState> states() const;  // the same on every rank
};

struct Precision : Policy {
  int32_t dtype(int32_t role, const eng_unit* unit = nullptr) const;  // asks `place`, checks that only dtype changed
};

struct Sharding : Policy {
  Id part(int32_t role, const eng_unit& unit) const;  // asks `place`, checks that only the part changed
};

// Facts about the run that an optimizer is given.
struct RunFacts {
  int64_t steps = 1;
  double peak_rate = 0;
};

struct Optimizer {
  // Parameters with their own options: [[optimizer.groups]].
  struct Group {
    explicit Group(Section own) : section(std::move(own)), options(section) {}
    const Section section;
    const Options options;
    std::vector<std::string> match = {};  // patterns of names
    double rate_scale = 1;
  };
  std::string name;
  eng_optimizer table{};
  std::shared_ptr<void> self;
  std::vector<std::shared_ptr<const Group>> groups;  // the first one holds all parameters of no other group
  std::string kind = "optimizer";
  std::string who() const { return kind + " " + name; }
  std::vector<float> scalars(uint64_t update) const;
};

struct Observer {
  std::string name;  // what its results begin with
  eng_observer table{};
  std::shared_ptr<void> self;
};

// A job's object and table. Its states and programs are asked as the states and updates of an optimizer, its stages are
// the numbers of programs.
struct Job {
  std::string name;
  eng_job table{};
  std::shared_ptr<void> self;
  eng_job_info info{};
  Optimizer asked;
  std::vector<OwnState> values;  // tensors of its own
  std::string value_name(size_t v) const { return asked.kind + "." + name + "." + values[v].name; }
};

Observer make_observer(const std::string& name, const eng_observer& table, const Section& options);
Precision make_precision(const std::string& name, const eng_axis& table, const Section& options,
                         const World& world = {});
// Makes its groups and parts in `ranks`.
Sharding make_sharding(const std::string& name, const eng_axis& table, const Section& options, Ranks& ranks);
// Throws Error(Exit::usage) for groups that the optimizer refuses.
Optimizer make_optimizer(const std::string& name, const eng_optimizer& table, const Section& options,
                         const RunFacts& training = {});

// Properties of the device that a plan depends on.
struct DeviceTraits {
  bool discrete = false;              // its memory is not the host's: the batch is copied to it, and results back
  bool queues = false;                // it copies beside the computation
  bool collectives_on_device = true;  // collectives take its memory; else they take copies in the host's memory
  uint32_t overlapped = 1;            // threads or processors of a kernel that overlaps the computation
};

// The states that live in memory of tiers, and where they are updated.
struct Offload {
  struct Tier {
    std::string name;
    bool storage = false;  // nothing computes in it
  };
  std::vector<Tier> tiers;  // each has an arena; besides those of roles, memory of the host that storage needs
  std::map<int32_t, std::string> roles;  // ENG_ROLE_*: the tier; absent: the device
  double ratio = 1;                      // the part of the model whose masters and optimizer states are there
  bool update_on_host = false;           // what is there; else the device updates copies and gives them back
  double device_share = 0;               // the part of it, piece by piece, that the device updates so all the same
  bool update_late = false;              // beside the next step's first forward
  uint32_t early_from = UINT32_MAX;      // the first block that is updated beside the last backward
};

// An output of an op in the forward, of which a copy is kept: a tensor "activation" with each of these names.
struct Activation {
  Site site;
  std::vector<std::string> names;
};

// The micro-batches of "train"; the losses of a step, before ranks gather them; the blocks of "eval".
enum class StagePart : uint8_t { train, losses, eval };

struct PlanRequest {
  const Model& model;
  const Precision& precision;
  const Optimizer* optimizer = nullptr;  // null: no update segment; gradients can be read by name
  std::string device = "cpu";
  // Upper bound of a call's scratch bytes on that device. Throws Error if no kernel serves the call.
  std::function<uint64_t(const Call&)> workspace;
  uint32_t accumulate = 1;
  // Emits that part of a stage of a pipeline. Returns what BlockEmitter::forward does for "eval", if this rank has the
  // last block. Null: it has all blocks. StepParts: core/plan/planner.hpp.
  std::function<std::vector<View>(const struct StepParts& parts, StagePart part)> stage = {};
  int64_t steps = 1;
  int64_t seed = 1;
  double grad_clip = 0;
  Ranks ranks = Ranks();                 // this rank, and the groups and parts that `sharding` made
  const Sharding* sharding = nullptr;    // null where there is one rank
  uint64_t bucket = uint64_t{64} << 20;  // bytes of a piece, of f32
  bool overlap = true;                   // moves between ranks have their own queue
  int64_t prefetch = 1;                  // blocks
  uint64_t live_limit = 0;               // bytes of leases at a time; 0: what overlap and prefetch need
  bool reduce_per_step = false;          // else after each micro-batch
  bool train = true;                     // emit program "train", and hold gradients
  bool evaluate = true;                  // emit program "eval"
  bool keep_gradients = false;           // with an optimizer, too: they stay until the next step
  bool logits = false;                   // emit program "logits": those of the first B x T tokens
  // Kept of the last micro-batch of program "train", and of eval_with_sites.
  std::vector<Activation> activations = {};
  // Emit the programs of running sequences of up to T positions: "reset" before the first one, "decode" for the first
  // B x 1 tokens at counters[ENG_C_POSITION], and "prefill", the same for B x `prefill` tokens without logits.
  bool generate = false;
  DeviceTraits traits = {};
  Offload offload = {};
  std::vector<Observer> observers = {};  // of program "train"
  // Then `optimizer` is the job's, "train" leaves the gradients and updates nothing, programs job_program(k) are
  // emitted, and eval_with_sites if the job has sites. It keeps no activations.
  const Job* job = nullptr;
  bool gradients() const { return train && !(job && job->info.flags & ENG_JOB_NO_GRADIENTS); }
};

constexpr const char* eval_with_sites = "eval with sites";
inline std::string job_program(uint32_t k) {
  return "job program " + std::to_string(k);
}

}  // namespace eng
