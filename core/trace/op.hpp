// SPDX-License-Identifier: Apache-2.0
// What the core knows of an op: shapes, FLOPs, aliasing, gradient. Kernels are elsewhere, behind the ABI.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor.h"

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

class Gradient;
class Registry;
class Stepping;
struct Node;

// An output that takes the memory of an input. `must`: always when the input is present (accumulators,
// updates); else only if nobody reads the input afterwards.
struct InPlace {
  uint32_t out, in;
  bool must;
};

struct Op {
  const char* id;
  uint32_t min_in, max_in;
  // Appends the descs of the outputs, or returns what is wrong. Absent optional inputs have dtype 0.
  std::function<std::string(std::span<const eng_desc> in, const Attrs& attrs, std::vector<eng_desc>& out)> infer;
  std::function<double(std::span<const eng_desc> in, std::span<const eng_desc> out, const Attrs& attrs)> flops =
      nullptr;
  std::vector<InPlace> in_place = {};
  // Emits the backward of one node; null: the op has no gradient.
  std::function<void(Gradient&)> grad = nullptr;
  // Emits what serves the next positions of a running sequence (trace/stepping.hpp); null: models with this op cannot
  // generate.
  std::function<void(Stepping&)> step = nullptr;
  // The gradient op computes the forward outputs too, so training skips the forward node.
  bool fused_grad = false;
  // Cheap ops: the inputs from which the same op, run again in the backward, gives its outputs bit for bit. Such
  // outputs are not kept where those inputs are kept anyway.
  std::function<std::vector<uint32_t>(const Node& node)> rebuild = nullptr;
  // Draws random numbers: training gives the kernel one more input, the counters, and the attributes seed and stream;
  // other programs pass input 0 on as it is. The attribute "site" tells a block's random ops apart.
  bool random = false;
  // Runs between the ranks of a group (attribute "group"): its kernel is the communicator's.
  bool collective = false;
  uint32_t optional = 0;  // bit k: input k, below min_in, may be absent
};

constexpr uint32_t random_sites = 4096;  // "site" is below this

// Makes the ops (engine/op.h) of every plugin that `registry` has loaded known to find_op, for the rest of the process,
// as plugins are. Throws Error(Exit::environment) with the plugin, the op and what is wrong.
void load_ops(Registry& registry);
const Op* find_plugin_op(const std::string& id);
// An op of the standard vocabulary (engine/ops.h) or of a plugin, or nullptr.
const Op* find_op(const std::string& id);
const Op& op(const std::string& id);
std::span<const Op> layer_ops();
std::span<const Op> gradient_ops();
std::span<const Op> norm_ops();
std::span<const Op> elementwise_ops();
std::span<const Op> step_ops();
std::span<const Op> rank_ops();

}  // namespace eng
