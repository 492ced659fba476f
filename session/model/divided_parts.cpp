// SPDX-License-Identifier: Apache-2.0
#include "session/model/divided_parts.hpp"

#include <utility>

#include "engine/ops.h"
#include "session/model/divided_ops.hpp"

namespace eng {
namespace {

// Ops that compute each channel from the same channel of their inputs.
bool keeps_channels(const Graph& graph, const Node& node) {
  return is_one_of(node, {ENG_OP_ADD, ENG_OP_SCALE, ENG_OP_CAST, ENG_OP_ACTIVATION, ENG_OP_GATED, op_magnitude}) ||
         keeps_last(graph, node);
}
int64_t columns(const Graph& graph, Id id) {
  const eng_desc& d = graph.value(id).desc;
  return d.dims[d.ndim - 1];
}
bool along_last(const Graph& graph, const Node& node) {
  return node.attrs.i("axis") + 1 == graph.value(node.out[0]).desc.ndim;
}
// The borders inside of some columns of a value, counted from the first of them.
Borders inside(const Borders& all, int64_t first, int64_t n) {
  Borders out;
  for (const int64_t at : all)
    if (at > first && at < first + n) out.insert(at - first);
  return out;
}
// Adds a border at `first`, if it is inside, and those of a part that begins there.
void append(Borders& all, int64_t first, const Borders& part) {
  if (first > 0) all.insert(first);
  for (const int64_t at : part) all.insert(first + at);
}

// [x | B | C] of a scan of Mamba-2.
Borders scanned(const Graph& graph, const Node& node) {
  const int64_t channels = columns(graph, node.out[0]), all = columns(graph, node.in[0]);
  return {channels, channels + (all - channels) / 2};
}
// True if an op needs these borders of input k, alone or beside others in front of the columns that it reads.
std::optional<Borders> needed(const Graph& graph, const Node& node, size_t k) {
  const int64_t all = columns(graph, node.in[k]), out = columns(graph, node.out[0]);
  if (is_one_of(node, {op_conv}) && k == 0) return all > out ? Borders{out} : Borders{};
  if (is_one_of(node, {op_scan}) && k == 6) return all > out ? Borders{all - out} : Borders{};
  if (is_one_of(node, {op_experts_gated}) && k == 0) return Borders{all / 2};
  if (is_one_of(node, {op_ssd}) && k == 0) return scanned(graph, node);
  const int64_t heads = is_one_of(node, {op_ssd}) ? columns(graph, node.in[2]) : 0;
  if (is_one_of(node, {op_ssd}) && k == 1) return all > heads ? Borders{all - heads} : Borders{};
  return std::nullopt;
}

}  // namespace

bool keeps_last(const Graph& graph, const Node& node) {
  return is_one_of(node, {ENG_OP_RESHAPE}) && columns(graph, node.in[0]) == columns(graph, node.out[0]);
}

bool is_size_along(int32_t dim, const Node& node, const std::string& key) {
  const int64_t keep = node.attrs.i("keep");
  if (is_one_of(node, {ENG_OP_RESHAPE})) return dim >= keep && key == "dim" + std::to_string(dim - keep);
  return is_one_of(node, {ENG_OP_SPLIT, ENG_OP_CONCAT}) && dim == node.attrs.i("axis") && key.rfind("size", 0) == 0;
}

std::vector<int64_t> parts_of(const Borders& borders, int64_t columns) {
  std::vector<int64_t> out;
  int64_t before = 0;
  for (const int64_t at : borders) out.push_back(at - std::exchange(before, at));
  out.push_back(columns - before);
  return out;
}

Divided divided_in(const eng_desc& whole, const std::vector<int64_t>& parts, Divided cut) {
  if (std::count(parts.begin(), parts.end(), parts[0]) == std::ssize(parts)) {
    cut.groups = static_cast<uint32_t>(parts.size());
    return cut;
  }
  for (const int64_t rows : parts)
    cut.runs.push_back(static_cast<uint64_t>(rows * (count(whole) / whole.dims[cut.dim]) / cut.count));
  return cut;
}
bool alike(const Divided& a, const Divided& b) {
  return a.dim == b.dim && a.count == b.count && a.groups == b.groups && a.runs == b.runs;
}

Borders borders_wanted(const Template& t, Id value) {
  Borders out;
  const Graph& graph = t.graph;
  const auto add = [&](const Borders& more) { out.insert(more.begin(), more.end()); };
  for (const Node& node : graph.nodes)
    for (size_t k = 0; k < node.in.size(); ++k) {
      if (node.in[k] != value) continue;
      if (const auto own = needed(graph, node, k)) add(*own);
      if (is_one_of(node, {ENG_OP_SPLIT}) && along_last(graph, node)) {
        int64_t first = 0;
        for (const Id o : node.out) append(out, first, borders_wanted(t, o)), first += columns(graph, o);
      } else if (is_one_of(node, {ENG_OP_CONCAT}) && along_last(graph, node)) {
        int64_t first = 0;
        for (size_t j = 0; j < k; ++j) first += columns(graph, node.in[j]);
        add(inside(borders_wanted(t, node.out[0]), first, columns(graph, value)));
      } else if (keeps_channels(graph, node) || (is_one_of(node, {op_conv}) && k == 0)) {
        add(borders_wanted(t, node.out[0]));
      }
    }
  return out;
}

std::optional<std::vector<Borders>> borders_behind(const Graph& graph, const Node& node,
                                                   const std::vector<Borders>& in) {
  std::vector<Borders> out(node.out.size());
  if (is_one_of(node, {ENG_OP_SPLIT}) && along_last(graph, node)) {
    int64_t first = 0;
    for (size_t k = 0; k < out.size(); ++k) {
      if (first > 0 && !in[0].count(first)) return std::nullopt;
      const int64_t n = columns(graph, node.out[k]);
      out[k] = inside(in[0], first, n), first += n;
    }
    return out;
  }
  if (is_one_of(node, {ENG_OP_CONCAT}) && along_last(graph, node)) {
    int64_t first = 0;
    for (size_t k = 0; k < in.size(); ++k) append(out[0], first, in[k]), first += columns(graph, node.in[k]);
    return out;
  }
  if (keeps_channels(graph, node) || is_one_of(node, {ENG_OP_SPLIT, ENG_OP_CONCAT})) {
    for (size_t k = 1; k < in.size(); ++k)
      if (!is_one_of(node, {op_magnitude}) && in[k] != in[0]) return std::nullopt;
    return std::vector<Borders>(node.out.size(), in[0]);
  }
  for (size_t k = 0; k < in.size(); ++k) {
    const Borders own = node.in[k] ? needed(graph, node, k).value_or(Borders{}) : Borders{};
    Borders given = in[k];
    if (is_one_of(node, {op_conv}) && k == 0) {  // parts in and behind the columns that it reads
      out[0] = inside(given, 0, columns(graph, node.out[0]));
      std::erase_if(given, [&](int64_t at) { return !own.count(at); });
    } else if (is_one_of(node, {op_ssd}) && k == 1 && !own.empty()) {  // parts in front of them
      given.erase(given.begin(), given.lower_bound(*own.begin()));
    }
    if (given != own) return std::nullopt;
  }
  return out;
}

}  // namespace eng
