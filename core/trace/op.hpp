// SPDX-License-Identifier: Apache-2.0
// The core's knowledge of an op: shapes, FLOPs, aliasing, gradient. Kernels come from plugins.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/op.h"

namespace eng {

struct Attr {
  std::string key;
  int64_t i = 0;
  double f = 0;
  bool operator==(const Attr&) const = default;
};

struct Attrs {
  std::vector<Attr> list;
  int64_t i(const std::string& key, int64_t fallback = 0) const;
  double f(const std::string& key, double fallback = 0) const;
  bool operator==(const Attrs&) const = default;
};

// The attributes of a call, and the call, as plugins see them. Both borrow what they are given.
std::vector<eng_attr> lend(const Attrs& attrs);
eng_call make_call(std::span<const eng_desc> in, std::span<const eng_desc> out, const std::vector<eng_attr>& attrs,
                   uint32_t parallel = 0, const eng_device_info* device = nullptr);

class Builder;
class Gradient;
class Graph;
class Registry;
class Stepping;
struct Node;

// Output `out` may take the memory of input `in`. `must`: it always does if the input is present (accumulators,
// updates); otherwise it does only if nothing reads the input later.
struct InPlace {
  uint32_t out, in;
  bool must;
};

struct Op {
  const char* id;
  uint32_t min_in, max_in;
  // Appends the descs of the outputs. Returns "", or what is wrong. Absent optional inputs have dtype 0.
  std::function<std::string(std::span<const eng_desc> in, const Attrs& attrs, std::vector<eng_desc>& out)> infer;
  std::function<double(std::span<const eng_desc> in, std::span<const eng_desc> out, const Attrs& attrs)> flops =
      nullptr;
  std::vector<InPlace> in_place = {};
  // Emits the backward of a node; null: the op has no gradient.
  std::function<void(Gradient&)> grad = nullptr;
  // Emits the op for the next positions of a running sequence (trace/stepping.hpp); null: models with this op cannot
  // generate.
  std::function<void(Stepping&)> step = nullptr;
  // The gradient op computes the forward outputs too, so training skips the forward node.
  bool fused_grad = false;
  // Cheap ops: the inputs with which the op, run again in the backward, gives its first output bit for bit. The output
  // is then not kept if those inputs are kept anyway.
  std::function<std::vector<uint32_t>(const Graph& graph, const Node& node)> rebuild = nullptr;
  // Draws random numbers: in training the kernel gets the counters as a last input, and the attributes "seed" and
  // "stream"; in other programs the output is input 0. The attribute "site" distinguishes the random ops of a block.
  bool random = false;
  // Runs on all ranks of a group (attribute "group"), with a kernel of the communicator.
  bool collective = false;
  uint32_t optional = 0;  // bit k: input k may be absent although k < min_in
  // Bit k: output k is a sum over many rows. Where `infer` gives it 16 bits, whoever names it may make it, and what it
  // is added to, f32.
  uint32_t sums = 0;
  // One op in place of several counts as that many in "site": a model draws the same numbers with it as with those.
  uint32_t counts_as = 1;
  std::vector<eng_index> indexes = {};  // which inputs are numbers of rows of which inputs
  // Emits the ops that this one is made of, and returns one value for each of `out` (trace/composite.hpp); null: it has
  // kernels.
  std::function<std::vector<uint32_t>(Builder&, const Graph&, const std::vector<uint32_t>& in,
                                      const std::vector<eng_desc>& out, const Attrs&)>
      expand = nullptr;
};

constexpr uint32_t random_sites = 4096;  // the limit of "site"

// The ops of engine/ops.h, without collectives, and those. Core declares and session defines them: core knows no op's
// mathematics.
const eng_ops& standard_ops();
const eng_ops& collectives();

// Makes the ops (engine/op.h) of every plugin that `registry` has loaded, and of those that these use (`uses` in
// engine/plugin.h), known to find_op, until the process ends. Throws Error(Exit::environment) with the plugin, the op
// and what is wrong.
void load_ops(Registry& registry);
const Op* find_plugin_op(const std::string& id);
// An op of engine/ops.h or of a plugin; nullptr if unknown.
const Op* find_op(const std::string& id);
const Op& op(const std::string& id);  // must exist

}  // namespace eng
