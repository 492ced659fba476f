// SPDX-License-Identifier: Apache-2.0
// Symbolic programs: values and the nodes between them, as traced from one block. No memory, no device.
#pragma once

#include "core/tensor/dtype.hpp"
#include "core/trace/op.hpp"

namespace eng {

using Id = uint32_t;  // 0 means none

enum class SymbolKind : uint8_t {
  temp,      // made by a node
  input,     // of the block: what the block before it put out
  param,     // `index` counts in the block's parameter list
  batch,     // `index`: 0 tokens, 1 labels
  constant,  // `index` counts in the template's constants
  scalars,   // the step's f32[32]
  seed,      // gradient of the block's output `index`, given from outside
  state,     // `index` counts in the template's states
  counters,  // the step's i64[8]
};

struct Symbol {
  SymbolKind kind = SymbolKind::temp;
  eng_desc desc{};
  uint32_t index = 0;
};

struct Node {
  const Op* op = nullptr;
  std::vector<Id> in, out;  // an absent optional input is 0
  Attrs attrs;
};

class Graph {
 public:
  Id add(Symbol value) { return values_.push_back(std::move(value)), static_cast<Id>(values_.size()); }
  const Symbol& value(Id id) const { return values_[id - 1]; }
  size_t size() const { return values_.size(); }
  // Appends a node and makes its outputs; throws Error if the op refuses the shapes. `block` is for the message.
  std::vector<Id> emit(const Op& op, std::vector<Id> in, Attrs attrs);

  std::vector<Node> nodes;

 private:
  std::vector<Symbol> values_;
};

// A constant of a template, as bytes.
struct Constant {
  eng_desc desc{};
  std::vector<char> data;
};

// One distinct block, traced once. `graph` holds the forward nodes; autograd appends the backward ones.
struct Template {
  uint32_t tmpl = 0;
  Graph graph;
  std::vector<Id> params, inputs, outputs;
  std::vector<Constant> constants;
  std::vector<eng_desc> states;  // what each block keeps from step to step, where this serves a running sequence

  // Filled by derive_backward. Training runs nodes [0, forward) and then [forward, end); `skip` marks forward
  // nodes whose work the backward repeats (fused loss).
  size_t forward = 0;
  std::vector<char> skip;
  std::vector<Id> seeds;     // per output: its gradient, given from outside (0: none)
  std::vector<Id> d_inputs;  // per input (0: no gradient)
  std::vector<Id> d_params;  // per parameter (0: unused)
  std::vector<Id> train_outputs;
  double again = 0;  // FLOPs of the forward that recompute() put into the backward
};

// Elements of a tensor, and its bytes; an absent one has none.
inline int64_t count(const eng_desc& desc) {
  return static_cast<int64_t>(element_count(desc));
}
inline uint64_t bytes(const eng_desc& desc) {
  return desc.dtype == 0 ? 0 : byte_count(desc);
}
// "" if a tensor can be like that, else what is wrong: "has 7 dimensions, 6 is the most".
std::string wrong_with(const eng_desc& desc);
// What op.infer says, and whether its outputs can be like that.
std::string infer(const Op& op, std::span<const eng_desc> in, const Attrs& attrs, std::vector<eng_desc>& out);
eng_desc make_desc(int32_t dtype, std::initializer_list<int64_t> dims);

}  // namespace eng
