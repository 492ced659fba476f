// SPDX-License-Identifier: Apache-2.0
#include "session/model/heads.hpp"

#include <set>

#include "engine/ops.h"

namespace eng {
namespace {

// A node of a head whose weight is value `id`, and reads that value nowhere else.
bool is_head(const Node& node, Id id) {
  const std::string op = node.op->id;
  return (op == ENG_OP_CROSS_ENTROPY || op == ENG_OP_LABEL_LOGPROB) && node.in[1] == id &&
         std::count(node.in.begin(), node.in.end(), id) == 1;
}

// The nodes that read a value; none if one of them is no head, or the value leaves the block.
std::vector<Node*> heads_of(Template& t, Id id) {
  std::vector<Node*> out;
  if (std::count(t.outputs.begin(), t.outputs.end(), id)) return out;
  for (Node& node : t.graph.nodes) {
    if (!std::count(node.in.begin(), node.in.end(), id)) continue;
    if (!is_head(node, id)) return {};
    out.push_back(&node);
  }
  return out;
}

}  // namespace

void pad_heads(Model& model, int64_t multiple) {
  for (auto& [tmpl, t] : model.templates)
    for (const Id id : t.params) {
      Symbol& weight = t.graph.change(id);
      const int64_t own = weight.desc.dims[0], rows = (own + multiple - 1) / multiple * multiple;
      const std::vector<Node*> heads = rows == own ? std::vector<Node*>() : heads_of(t, id);
      if (heads.empty()) continue;
      weight.desc.dims[0] = rows;
      for (Node* node : heads) node->attrs.list.push_back({"vocabulary", own, 0});
      for (const Block& block : model.blocks) {
        if (block.tmpl != tmpl) continue;
        model.params[block.params[weight.index]].zero_rows = static_cast<uint32_t>(rows - own);
      }
    }
}

std::vector<PaddedHead> padded_heads(const Model& model) {
  std::vector<PaddedHead> out;
  std::set<uint32_t> told;
  for (const Block& block : model.blocks)
    for (size_t k = 0; k < block.params.size(); ++k) {
      const Parameter& p = model.params[block.params[k]];
      if (!p.zero_rows || !told.insert(block.params[k]).second) continue;
      const Template& t = model.templates.at(block.tmpl);
      const int64_t zeros = count(p.held()) - count(p.desc);
      out.push_back({p.name, p.desc.dims[0], p.held().dims[0], zeros,
                     static_cast<uint64_t>(zeros) * dtype_size(t.graph.value(t.params[k]).desc.dtype)});
    }
  return out;
}

}  // namespace eng
