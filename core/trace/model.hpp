// SPDX-License-Identifier: Apache-2.0
// A traced model: parameters, blocks, and one template per distinct block.
#pragma once

#include "core/config/section.hpp"
#include "core/trace/builder.hpp"
#include "engine/loss.h"
#include "engine/model.h"
#include "engine/transform.h"

namespace eng {

// A tensor that a plugin has for itself, kept from step to step and in checkpoints.
struct OwnState {
  std::string name;
  eng_desc desc{};
  size_t by = 0;  // of a block: index into Model::transformed
};
// The name that a plugin gives to a state. Throws Error naming `who` if it is none.
std::string state_name(const std::string& who, const char* given);
// The states that a plugin lists in a call of `ask`. Throws Error naming `who` for a wrong list.
using AskStates = std::function<void(eng_policy_state* list, uint32_t cap, uint32_t* n)>;
std::vector<OwnState> own_states(const std::string& who, const AskStates& ask);

struct Block {
  std::string name;
  uint32_t tmpl = 0;
  std::vector<uint32_t> params;  // indices into Model::params
  bool recomputed = false;  // training keeps nothing of it: its forward runs again before the next block's backward
  std::vector<OwnState> states = {};  // of transforms: its symbols of SymbolKind::state
};

// A field of the batch: (B, T) values of one type (engine/data.h).
struct Field {
  std::string name;
  int32_t dtype = ENG_I32;
  // i32: the model indexes tables with it, so values are 0 to limit - 1; 0: it does not. `ignores`: it is used as
  // labels, so ENG_IGNORE_LABEL is a value, too.
  int64_t limit = 0;
  bool ignores = false;
};

// Fields that a model may read beside tokens and labels.
struct Offered {
  std::string by = "the data";  // for errors
  std::vector<Field> fields;
};

// The loss of a run ([loss]).
struct Loss {
  std::string name = {};  // of its plugin; "": the cross-entropy
  double z_loss = 0;      // of the cross-entropy
  eng_loss table{};
  std::shared_ptr<void> self = {};
  int64_t sequences = 0;  // of the batch of a step, of all micro-batches and ranks; 0: those of a micro-batch
};

// The effect of a transform.
struct Transformed {
  std::string name;
  size_t calls = 0, blocks = 0;                      // that it replaced, and in how many blocks
  size_t parameters = 0;                             // that it added
  size_t frozen = 0, flags = 0;                      // other parameters that it froze, or whose flags it changed
  decltype(eng_transform::update) update = nullptr;  // of the states of blocks
  std::shared_ptr<void> self = {};
};

// Blocks that follow each other: [first, end).
struct Span {
  uint32_t first = 0, end = 0;
  bool holds(uint32_t block) const { return block >= first && block < end; }
};

struct Model {
  std::string plugin;
  eng_model_info info{};
  std::vector<Parameter> params;
  std::vector<Block> blocks;
  std::map<uint32_t, Template> templates;
  int64_t micro_batch = 0, sequence_length = 0;          // B, T
  std::vector<Field> fields = {{"tokens"}, {"labels"}};  // that some block reads, and always these two
  std::vector<Transformed> transformed = {};             // in the order of the transforms
  int64_t sequences = 1;                                 // of the batch of a step
  size_t reference_blocks = 0;                           // of `blocks`, the first: those of the reference model
  std::vector<Span> parts = {};  // the blocks that this rank computes, in their order; none: all
  Span all() const { return {0, static_cast<uint32_t>(blocks.size())}; }
  bool owns(uint32_t block) const {
    return parts.empty() || std::any_of(parts.begin(), parts.end(), [&](Span s) { return s.holds(block); });
  }

  int64_t parameter_count() const;  // without the reference model's
};

// The model's own description, without tracing. Throws Error naming the plugin.
eng_model_info describe_model(const std::string& name, const eng_model& table, const Section& options);
// Traces the forward of a model with micro-batches of (B, T). `dtype`: of activations, and of weights as compute reads
// them. `runs`: the plan will be executed, so the bytes of constants are kept. `offered`: the fields of the batch.
// `loss`: what a model that leaves its loss to the run gets. `stream`: to
// which the first block's outputs in `dtype` are cast, 0 for none. Throws Error naming the plugin, the block and the op
// that refused.
Model trace_forward(const std::string& name, const eng_model& table, const Section& options, int64_t micro_batch,
                    int64_t sequence_length, int32_t dtype, bool runs = true, const Offered& offered = {},
                    const Loss& loss = {}, int32_t stream = 0);

// Throws Error(Exit::usage) with what the plugin refuses.
Loss make_loss(const std::string& name, const eng_loss& table, const Section& options);

// Removes the templates that no block has.
void drop_unused_templates(Model& model);

// Indices of the parameters that a pattern (config/names.hpp) matches. Throws Error(Exit::usage) with the nearest names
// if there are none; `where` is the key with the pattern: "train.freeze".
std::vector<uint32_t> select(const Model& model, const std::string& pattern, const std::string& where);

}  // namespace eng
