// SPDX-License-Identifier: Apache-2.0
#include "session/model/fp8.hpp"

#include <fmt/format.h>

#include "engine/ops_fp8.h"

namespace eng {
namespace {

double flops_of(const Graph& graph, const Node& node) {
  if (!node.op->flops) return 0;
  const auto descs = [&](const std::vector<Id>& ids) {
    std::vector<eng_desc> out;
    for (Id id : ids) out.push_back(id ? graph.value(id).desc : eng_desc{});
    return out;
  };
  return node.op->flops(descs(node.in), descs(node.out), node.attrs);
}

bool is_map(const Op& op) {
  return in_fp8(op) || op.id == std::string(ENG_OP_LINEAR) || op.id == std::string(ENG_OP_LINEAR_RELU);
}

// "q_proj" of "model.layers.0.self_attn.q_proj.weight".
std::string map_of(const std::string& parameter) {
  const std::string stem = parameter.substr(0, parameter.rfind('.'));
  return stem.substr(stem.rfind('.') + 1);
}

using OfMaps = std::map<std::string, size_t>;

std::string listed_maps(const OfMaps& counts) {
  std::string out;
  for (const auto& [map, count] : counts) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", map, count);
  return out;
}

}  // namespace

bool in_fp8(const Op& op) {
  return op.id == std::string(ENG_OP_FP8_LINEAR) || op.id == std::string(ENG_OP_FP8_MATMUL);
}

std::string fp8_line(const Model& model) {
  OfMaps here, others;
  size_t maps = 0;
  int64_t history = 0;
  double all = 0, covered = 0, kept = 0;  // kept: bytes of histories and scales
  const size_t first = model.reference_blocks, last = model.blocks.size() - 1;
  for (size_t b = first; b <= last; ++b) {
    const Template& t = model.templates.at(model.blocks[b].tmpl);
    const size_t nodes = t.forward ? t.forward : t.graph.nodes.size();
    for (size_t n = 0; n < nodes; ++n) {
      const Node& node = t.graph.nodes[n];
      const double flops = flops_of(t.graph, node);
      all += flops;
      const bool fp8 = in_fp8(*node.op);
      if (fp8) covered += flops, ++maps;
      if (const Id state = fp8 && node.in.size() > 3 ? node.in[3] : 0) {
        history = t.graph.value(state).desc.dims[1] - 2;
        kept += static_cast<double>(bytes(t.graph.value(state).desc));
      }
      if (!is_map(*node.op) || (!fp8 && (b == first || b == last))) continue;
      const Symbol& w = t.graph.value(node.in[1]);
      if (w.kind == SymbolKind::param)
        ++(fp8 ? here : others)[map_of(model.params[model.blocks[b].params[w.index]].name)];
    }
  }
  if (!maps) return "";
  std::string out = fmt::format("fp8 multiplies {} maps, {:.1f} % of the FLOPs of a forward: {}", maps,
                                100 * covered / all, listed_maps(here));
  if (!others.empty()) out += "; as they are: " + listed_maps(others);
  if (history) out += fmt::format("; histories of {} step{}: {}", history, history == 1 ? "" : "s", format_bytes(kept));
  return out;
}

}  // namespace eng
