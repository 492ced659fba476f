// SPDX-License-Identifier: Apache-2.0
// The step as data: buffers, actions, segments, programs. Integer ids everywhere; everything printable.
#pragma once

#include "core/trace/ranks.hpp"

namespace eng {

enum class Queue : uint8_t { compute, comm, h2d, d2h, io, host };
constexpr size_t queue_count = 6;

// What the bytes of a buffer are for: one line of the memory report.
enum class Line : uint8_t {
  weights,
  gradients,
  optimizer,
  constants,
  batch,
  step,
  activations,
  workspace,
  cache,
  leases,
  communication,
  update  // what the optimizer works with
};

struct Buffer {
  std::string name;
  Line line = Line::activations;
  uint32_t arena = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;      // in the arena, set by layout
  bool persistent = false;  // keeps its bytes between programs; else lives from first to last use in one program
  bool initial = false;     // holds defined bytes before the program starts
};

// Part of a buffer as a dense tensor; buffer 0 is an absent optional input.
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
  uint32_t parallel = 0;  // threads of its kernel; 0: the device's
};

struct Action {
  uint32_t call = 0;  // index into Plan::calls
  Queue queue = Queue::compute;
  std::vector<View> in, out;
  View workspace;
  std::vector<uint32_t> waits;  // indices of earlier actions of the segment, on other queues
  std::vector<uint32_t> after;  // admission: what must be complete although no data says so
  uint32_t block = 0;           // index into Plan::labels
};

// What an action is for: the phase of the step, and the block or unit that it serves.
enum class Phase : uint8_t {
  step,  // nothing more is known
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
};

struct Label {
  Phase phase = Phase::step;
  std::string of = {};       // a block or a unit; "" where the phase says it all
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

// persistent + transient + workspace = total. `workspace` is what scratch adds on top of the other transients.
struct Arena {
  std::string device;
  std::string kind = "device";  // or "pinned", "host": memory of the host, which the device's plugin allocates
  uint64_t persistent = 0, transient = 0, workspace = 0;
  uint64_t total() const { return persistent + transient + workspace; }
};

// Elements of a logical tensor that this rank holds, and where.
struct Extent {
  uint64_t first = 0, count = 0;
  View view;
};

// A logical tensor by name, readable between programs. Roles: "parameter", the name of an optimizer state, "policy" for
// what a policy keeps of its own, or "gradient" in a plan without an optimizer.
struct Tensor {
  std::string name, role;
  eng_desc desc{};
  Id part = 0;  // of the plan's ranks; 0: every rank holds all of it
  std::vector<Extent> extents;
  View whole() const;  // throws Error(Exit::bug) if this rank holds a part only
};

// The parameters of one block that share a weight dtype, flat; each starts on a multiple of `chunk` elements.
struct Unit {
  std::string name;
  uint32_t block = 0;
  uint64_t count = 0;
  uint64_t piece = 0;  // elements of a piece; the last one may be shorter
  uint32_t flags = 0;
  std::vector<uint32_t> params;  // indices into Model::params
};
constexpr int64_t prefill = 64;   // positions of program "prefill"
constexpr uint64_t chunk = 4096;  // elements: the grid of the global norm

struct Plan {
  Ranks ranks;  // who this plan is for
  std::vector<Arena> arenas;
  std::vector<Buffer> buffers;  // id - 1
  std::vector<Call> calls;
  std::vector<Label> labels;
  std::vector<Program> programs;
  std::vector<Unit> units;
  std::vector<Tensor> tensors;
  // Memory of the host, or that of the device where it is the host's. The host fills it before a program, which copies
  // it in: the batch; `host_counters` before "decode" and "prefill", and copied out by "train".
  View tokens, labels_in, inputs, host_counters;
  // The same, for what a program copies out: `results` are the scalars after an update; `all_losses` (ranks, A) the
  // losses of all ranks, where there are several; `next_logits` (B, 1, V) of program "decode".
  View losses, all_losses, results, next_logits;
  // On the device.
  View counters, scalars, table;
  View logits;                  // (B, T, V) of program "logits"
  std::vector<View> constants;  // in the order of `constant_data`
  std::vector<std::vector<char>> constant_data;
  int64_t parameters = 0;
  double flops_per_step = 0;  // executed by the train program
  uint32_t accumulate = 1;
  // [train] freeze: parameters, and what their gradients and states would take.
  struct {
    uint64_t parameters = 0, gradients = 0, states = 0;
  } frozen;
  bool behind = false;  // after a step, weights that are whole lag behind their parts until the next one, or "publish"

  bool in_host_arena(const View& view) const { return arenas[buffer(view.buffer).arena].kind != "device"; }
  const Buffer& buffer(Id id) const { return buffers[id - 1]; }
  Buffer& buffer(Id id) { return buffers[id - 1]; }
  const Program& program(const std::string& name) const;
  const Tensor* find(const std::string& name, const std::string& role) const;
};

}  // namespace eng
