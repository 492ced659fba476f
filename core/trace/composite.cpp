// SPDX-License-Identifier: Apache-2.0
#include "core/trace/composite.hpp"

#include <algorithm>

#include "core/trace/builder.hpp"

namespace eng {
namespace {

// The builder that eng_op.expand gets.
class Expanding final : public Builder {
 public:
  Expanding(const Graph& graph, const Emit& emit) : graph_(graph), emit_(emit) {}
  eng_desc shape(Id value) override {
    if (!value || value > graph_.size()) throw fault("no such value");
    return graph_.value(value).desc;
  }
  std::vector<Id> emit(const Op& op, std::vector<Id> in, std::vector<Id> out, Attrs attrs) override {
    for (Id o : out)
      if (o) throw Error(Exit::environment, std::string(op.id) + ": expand cannot choose where an op writes");
    for (Id i : in)
      if (i) shape(i);
    return emit_(op, std::move(in), std::move(attrs));
  }

 private:
  const Graph& graph_;
  const Emit& emit_;
};

// Counts calls inside of each other.
struct Depth {
  static constexpr int most = 16;
  static int& now() {
    thread_local int depth = 0;
    return depth;
  }
  Depth() { ++now(); }
  ~Depth() { --now(); }
  Depth(const Depth&) = delete;
};

}  // namespace

std::vector<Id> dissolve(const Graph& graph, const Op& op, const std::vector<Id>& in, const Attrs& attrs,
                         const Emit& emit) {
  const Depth depth;
  if (Depth::now() > Depth::most) throw fault("{} is made of itself, or in more than {} steps", op.id, Depth::most);
  const std::vector<eng_desc> want = graph.outputs(op, in, attrs);
  Expanding builder(graph, emit);
  std::vector<Id> made = op.expand(builder, graph, in, want, attrs);
  for (size_t k = 0; k < made.size(); ++k) {
    const bool there = made[k] && made[k] <= graph.size();
    if (!there || !same(graph.value(made[k]).desc, want[k]))
      throw fault("{}: output {} of expand is {}, but infer says {}", op.id, k,
                  there ? describe(graph.value(made[k]).desc) : "no value of this block", describe(want[k]));
  }
  return made;
}

void lower(Template& block) {
  Graph& graph = block.graph;
  std::vector<Node>& nodes = graph.nodes;
  size_t left = 10000;  // replacements, so that an op that is made of itself ends
  for (size_t n = 0; n < nodes.size();) {
    const Node node = nodes[n];
    if (!node.op->expand) {
      ++n;
      continue;
    }
    if (!left--) throw fault("{} is made of itself, or of too many ops", node.op->id);
    const auto first = static_cast<std::ptrdiff_t>(nodes.size()), at = static_cast<std::ptrdiff_t>(n);
    const Emit emit = [&](const Op& op, std::vector<Id> in, Attrs attrs) {
      if (op.random)
        throw fault("{}: {} draws random numbers, which an op with a gradient of its own cannot be made of",
                    node.op->id, op.id);
      return dissolves(op) ? dissolve(graph, op, in, attrs, emit) : graph.emit(op, std::move(in), std::move(attrs));
    };
    const std::vector<Id> made = dissolve(graph, *node.op, node.in, node.attrs, emit);
    std::vector<Node> parts(nodes.begin() + first, nodes.end());
    nodes.erase(nodes.begin() + first, nodes.end());
    for (size_t k = 0; k < made.size(); ++k) {  // the outputs keep their ids
      size_t makers = 0;
      for (Node& part : parts) {
        makers += static_cast<size_t>(std::count(part.out.begin(), part.out.end(), made[k]));
        std::replace(part.out.begin(), part.out.end(), made[k], node.out[k]);
        std::replace(part.in.begin(), part.in.end(), made[k], node.out[k]);
      }
      if (makers != 1)
        throw fault("{}: output {} of expand must be made by one of its ops, and be no other output", node.op->id, k);
    }
    nodes.erase(nodes.begin() + at);
    nodes.insert(nodes.begin() + at, parts.begin(), parts.end());
    if (n >= block.forward) continue;
    block.forward += parts.size() - 1;
    block.skip.insert(block.skip.begin() + at, parts.size() - 1, block.skip[n]);
  }
}

}  // namespace eng
