// SPDX-License-Identifier: Apache-2.0
// The step as data: buffers, actions, segments, programs. Everything refers to others by index and can be printed.
#pragma once

#include "core/base/range.hpp"
#include "core/trace/ranks.hpp"

namespace eng {

// `read` and `write` are those of storage.
enum class Queue : uint8_t { compute, comm, h2d, d2h, read, write, host };
constexpr size_t queue_count = 7;

// The purpose of a buffer: its line of the memory report.
enum class Line : uint8_t {
  weights,
  reference,  // weights of the reference model
  gradients,
  residuals,  // what sums of gradients left out
  optimizer,
  constants,
  batch,
  step,
  activations,
  workspace,
  cache,
  leases,
  communication,
  update,     // temporary values of the optimizer, or of a job's programs
  undo,       // what early updates have changed, as it was before
  observers,  // temporary values of observers
  job,        // states and values of a job
  sites       // what it reads in the forward, and what its ops need for it
};

struct Buffer {
  std::string name;
  Line line = Line::activations;
  uint32_t arena = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;      // in the arena, set by layout
  bool persistent = false;  // keeps its bytes between programs; otherwise transient: used in one program only
  bool initial = false;     // its bytes are defined before a program starts
};

// A range of a buffer as a dense tensor; with buffer 0, an absent one.
struct View {
  Id buffer = 0;
  uint64_t offset = 0;  // bytes
  eng_desc desc{};
};

// One distinct use of an op, prepared once and shared by all actions with these shapes.
struct Call {
  const Op* op = nullptr;
  std::vector<eng_desc> in, out;
  Attrs attrs;
  uint64_t workspace = 0;
  double flops = 0;
  uint32_t parallel = 0;  // threads of its kernel; 0: the device's default
  bool on_host = false;   // computes in memory of tiers, by a kernel of the host
  uint32_t storage = 0;   // a copy from or to this arena, by the tier itself; 0: none
};

struct Action {
  uint32_t call = 0;  // index into Plan::calls
  Queue queue = Queue::compute;
  std::vector<View> in, out;
  View workspace;
  std::vector<uint32_t> waits;  // indices of earlier actions of the segment, on other queues; set by place_waits
  std::vector<uint32_t> after;  // earlier actions that must be complete although no data depends on them
  uint32_t label = 0;           // index into Plan::labels
};

// The purpose of an action: a phase of the step, and the block or unit it works on.
enum class Phase : uint8_t {
  step,  // nothing more specific
  init,
  begin,
  forward,
  backward,
  loss,
  losses,
  publish,
  gather,
  reduce,
  norm,
  update,
  eval,
  reset,
  observe,
};

struct Label {
  Phase phase = Phase::step;
  std::string of = {};       // a block or a unit; "" for neither
  std::string text() const;  // "layers.0 forward", "reduce layers.0", "norm"
  bool operator==(const Label&) const = default;
};

struct Segment {
  std::string name;
  uint32_t repeat = 1;
  std::vector<Action> actions;
};

struct Program {
  std::string name;
  std::vector<Segment> segments;
};

// Sizes in bytes. `workspace`: what scratch needs in addition to the other transients.
struct Arena {
  std::string device;
  std::string kind = "device";  // or "pinned" or "host": host memory, which the device's plugin allocates too; or
                                // "tier" or "storage": that of the tier `device`, which is memory or is not
  uint64_t persistent = 0, transient = 0, workspace = 0;
  uint64_t total() const { return persistent + transient + workspace; }
};

// A range of the elements of a logical tensor that this rank holds, and where.
struct HeldRange : Range {
  View view;
};

// A logical tensor, which can be read between programs. `role`: "parameter", the name of an optimizer state, "policy"
// for a tensor of a policy's own, "value" for one of a job's or, in a plan that keeps them, "gradient" and
// "activation".
struct Tensor {
  std::string name, role;
  eng_desc desc{};
  Id part = 0;  // of Plan::ranks; 0: every rank holds all of it
  std::vector<HeldRange> ranges;
  uint32_t flags = 0;  // of a parameter: ENG_PARAM_*
  // ENG_PACKED_*: the ranges are of elements, their views the u8 chunks that hold these (engine/packed.h); 0: not
  // packed
  int32_t packed = 0;
  Divided cut = {};    // the ranks of a tensor group hold other elements each
  View whole() const;  // throws Error(Exit::bug) if this rank holds only a part
};
// A tensor that lies whole at `view`.
Tensor tensor_at(const std::string& name, const std::string& role, const View& view);

// A field of the batch.
struct Input {
  std::string name;
  View view;
};

// Parameters of one block with the same weight dtype, laid out flat; each starts on a multiple of `chunk` elements.
struct Unit {
  std::string name;
  uint32_t block = 0;
  uint64_t count = 0;            // elements
  uint64_t piece = 0;            // elements of a piece; the last one may be shorter
  uint32_t flags = 0;            // ENG_PARAM_*
  std::vector<uint32_t> params;  // indices into Model::params
  uint32_t user = UINT32_MAX;    // the first block of this rank that reads them; UINT32_MAX: none
};
// The results that observers give under one name, combined by the host: values of a row (per micro-batch), and those
// that a step gives once.
struct Observed {
  std::string name;                 // "stats.gradient_norm.layers.0"
  uint32_t observer = 0;            // index into PlanRequest::observers
  uint32_t combine = 0, flags = 0;  // ENG_COMBINE_*, ENG_RESULT_*
  std::vector<uint32_t> rows, once;
};
constexpr const char* late_update = "late update";    // a program: see Plan::left
constexpr const char* update_again = "update again";  // a program: see Plan::assumed
constexpr int64_t prefill = 64;                       // positions of program "prefill"
constexpr uint64_t chunk = 4096;                      // elements: the grid of the global norm

// An output of a node of a block, and the tensor that holds a copy of it, or what the ops of a job write of it.
struct Site {
  uint32_t block = 0, node = 0, output = 0;
  View into;
};

struct Plan {
  Ranks ranks;  // with the rank that this plan is for
  std::vector<Arena> arenas;
  uint32_t first_tier = UINT32_MAX;  // arenas from this one on are those of tiers
  uint32_t staging_arena = 0;        // the arena through which the bytes of storage come to the device and leave it
  std::vector<Buffer> buffers;       // index: id - 1
  std::vector<Call> calls;
  std::vector<Label> labels;
  std::vector<Program> programs;
  std::vector<Unit> units;
  std::vector<Tensor> tensors;
  // Views in host memory, or in device memory if that is host memory. The host fills them before a program, which
  // copies them to the device: the batch; `host_counters` before "decode" and "prefill" ("train" copies them out).
  std::vector<Input> fields;  // of the batch, (A, B, T) each: those of the model, in its order
  View inputs, host_counters;
  // Likewise, filled by a program: `losses`, rows of `row` values, per micro-batch, and then `once` values; those of
  // all ranks in `all_losses` if there are several; `results`, the scalars after an update; `next_logits` (B, 1, V) of
  // program "decode". A row is the terms of the loss, or the loss if there are none, and then what is observed.
  View losses, all_losses, results, next_logits;
  // Views in device memory.
  View counters, scalars, table;
  View logits;                  // (B, T, V) of program "logits"
  std::vector<View> constants;  // in the order of `constant_data`
  std::vector<std::shared_ptr<const Constant>> constant_data;
  std::vector<Term> terms;  // of the loss
  uint32_t row = 1, once = 0;
  std::vector<Observed> observed;
  std::vector<Site> sites;  // by number
  int64_t parameters = 0;
  double flops_per_step = 0;  // executed by the train program
  uint32_t accumulate = 1;
  // [train] freeze: the number of frozen parameters, and the bytes that their gradients and states would take.
  struct {
    uint64_t parameters = 0, gradients = 0, states = 0;
  } frozen;
  // Whole weights are published late: after a step this rank's part of them is new and the others are not, until the
  // next step or "publish" gathers them.
  bool publishes_late = false;
  // With offload.update_late: the scalars of an update that a step leaves to the next one, or to program `late_update`.
  // Zero if nothing is left: the host makes them so before the first step, and either program after the update.
  std::vector<View> left;
  // With Offload::early_from: the scalars with which updates began before the norm was known. If ENG_S_CLIP or
  // ENG_S_OK of a step's scalars are others, program `update_again` undoes these updates and makes them with the
  // step's.
  View assumed;

  // Nothing computes in an arena that stores.
  bool stores(uint32_t arena) const { return arenas[arena].kind == "storage"; }
  bool in_storage(const View& view) const { return view.buffer && stores(buffer(view.buffer).arena); }
  // True if the view lies in memory of a tier.
  bool in_tier(const View& view) const {
    return view.buffer && buffer(view.buffer).arena >= first_tier && !in_storage(view);
  }
  bool has_tiers() const { return arenas.size() > first_tier; }
  bool in_host_arena(const View& view) const {
    return arenas[buffer(view.buffer).arena].kind != "device" && !in_storage(view);
  }
  // The first tier that is memory; 0: there is none.
  uint32_t first_memory() const {
    for (uint32_t a = first_tier; a < arenas.size(); ++a)
      if (!stores(a)) return a;
    return 0;
  }
  // The memory in which a value of that place is computed with: the place itself, or the staging memory for storage.
  uint32_t memory_of(uint32_t place) const { return stores(place) ? staging_arena : place; }
  // True if one copy takes bytes from one place to the other.
  bool adjacent(uint32_t a, uint32_t b) const {
    if (stores(a) && stores(b)) return false;
    const uint32_t memory = stores(a) ? b : a;
    return memory != 0 || staging_arena == 0 || !(stores(a) || stores(b));
  }
  const Buffer& buffer(Id id) const { return buffers[id - 1]; }
  Buffer& buffer(Id id) { return buffers[id - 1]; }
  const Program& program(const std::string& name) const;
  const View& field(const std::string& name) const;
  const Tensor* find(const std::string& name, const std::string& role) const;
};

}  // namespace eng
