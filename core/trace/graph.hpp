// SPDX-License-Identifier: Apache-2.0
// Symbolic programs: the values and nodes of one traced block, without memory or device.
#pragma once

#include <map>
#include <memory>

#include "core/tensor/dtype.hpp"
#include "core/trace/op.hpp"

namespace eng {

using Id = uint32_t;  // 0 means none

enum class SymbolKind : uint8_t {
  temp,      // made by a node
  input,     // of the block: output `index` of the previous block
  param,     // `index` into the block's parameter list
  batch,     // `index` into the model's fields
  constant,  // `index` into the template's constants
  scalars,   // the step's f32[32]
  seed,      // gradient of the block's output `index`, from the next block
  state,     // `index` into the states of the block, then of the template
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
  Symbol& change(Id id) { return values_[id - 1]; }
  size_t size() const { return values_.size(); }
  // The outputs that the op would have. Throws Error if it refuses the inputs or their shapes.
  std::vector<eng_desc> outputs(const Op& op, const std::vector<Id>& in, const Attrs& attrs) const;
  // Appends a node and returns its outputs. Throws Error as `outputs` does.
  std::vector<Id> emit(const Op& op, std::vector<Id> in, Attrs attrs);

  std::vector<Node> nodes;
  bool among_ranks = false;  // ranks divide the block: it has collectives

 private:
  std::vector<Symbol> values_;
};

// A constant of a template, as bytes. Copies of the template and the plan share it.
struct Constant {
  eng_desc desc{};
  std::vector<char> data;  // empty if the plan is not meant to run
};

// A term of the loss, named by the last block (engine/build.h).
struct Term {
  std::string name;
  double weight = 0;  // 0: a metric
  Id value = 0;
  Id trained = 0;              // the value that holds it in training, set by derive_backward
  bool cross_entropy = false;  // the value is that of eng.cross_entropy/1
  uint32_t per = 0;            // its divisor: ENG_PER_*
};

// One distinct block, traced once. `graph` holds the forward nodes; autograd appends the backward ones.
struct Template {
  uint32_t tmpl = 0;
  Graph graph;
  std::vector<Id> params, inputs, outputs;
  Id beside = 0;  // the input that passes on the result of the reference model, as an output too; it has no gradient
  std::vector<std::shared_ptr<const Constant>> constants;
  std::vector<Term> terms;  // of the last block; none: its output is the loss
  // Values whose gradients are sums over a group of ranks: eng.group_sum/1 with these attributes.
  std::map<Id, Attrs> summed;
  std::vector<eng_desc>
      states;  // for generating: all that each block keeps from step to step, those of transforms first

  // Set by derive_backward. Training runs nodes [0, forward) as the forward and [forward, end) as the backward; `skip`
  // marks forward nodes that the backward computes instead (fused loss).
  size_t forward = 0;
  std::vector<char> skip;
  std::vector<Id> seeds;          // per output: its gradient, from the next block (0: none)
  std::vector<Id> d_inputs;       // per input (0: no gradient)
  std::vector<Id> d_params;       // per parameter (0: unused)
  std::vector<Id> train_outputs;  // per output: the value that holds it in training
  double again = 0;               // FLOPs of the forward that recompute() put into the backward
};

// Elements and bytes of a tensor. An absent one (dtype 0) has 0 bytes.
inline int64_t count(const eng_desc& desc) {
  return static_cast<int64_t>(element_count(desc));
}
inline uint64_t bytes(const eng_desc& desc) {
  return desc.dtype == 0 ? 0 : byte_count(desc);
}
// "" if a tensor may have this shape and type, otherwise what is wrong: "has a dimension out of range ...".
std::string wrong_with(const eng_desc& desc);
// Calls op.infer and checks its outputs. Returns "" or what is wrong.
std::string infer(const Op& op, std::span<const eng_desc> in, const Attrs& attrs, std::vector<eng_desc>& out);
eng_desc make_desc(int32_t dtype, std::initializer_list<int64_t> dims);

}  // namespace eng
