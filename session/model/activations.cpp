// SPDX-License-Identifier: Apache-2.0
#include "session/model/activations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/config/names.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

// "eng.linear/1" is a linear.
std::string kind_of(const Op& op) {
  const std::string id = op.id;
  const size_t from = id.find('.') + 1;
  return id.substr(from, id.find('/') - from);
}

std::string numbered(const std::string& name, uint32_t output) {
  return output ? fmt::format("{}:{}", name, output) : name;
}

// The outputs of the ops of the forward. `fused`: of those that training computes with their gradients instead.
std::vector<Activation> outputs_of(const Model& model, bool fused) {
  std::vector<Activation> out;
  for (auto b = static_cast<uint32_t>(model.reference_blocks); b < model.blocks.size(); ++b) {
    const std::string& block = model.blocks[b].name;
    const Template& t = model.templates.at(model.blocks[b].tmpl);
    std::map<std::string, uint32_t> seen;
    for (uint32_t n = 0; n < t.forward; ++n) {
      const Node& node = t.graph.nodes[n];
      const std::string kind = kind_of(*node.op);
      const std::string name = fmt::format("{}.{}.{}", block, kind, seen[kind]++);
      if ((n < t.skip.size() && t.skip[n]) != fused) continue;
      for (uint32_t o = 0; o < node.out.size(); ++o) {
        out.push_back({{b, n, o, {}}, {numbered(name, o)}});
        for (uint32_t k = 0; k < t.outputs.size(); ++k)
          if (t.outputs[k] == node.out[o]) out.back().names.push_back(numbered(block + ".output", k));
      }
    }
  }
  return out;
}

bool any_matches(const std::string& pattern, const std::vector<Activation>& all) {
  return std::any_of(all.begin(), all.end(), [&](const Activation& one) {
    return std::any_of(one.names.begin(), one.names.end(), [&](const auto& name) { return matches(pattern, name); });
  });
}

// One of them as a line or an object: its name, op and shape, and the parameters that the op reads.
template <class Show>
void each(const Model& model, const Show& show) {
  for (const Activation& one : activations_of(model)) {
    const Block& block = model.blocks[one.site.block];
    const Graph& graph = model.templates.at(block.tmpl).graph;
    const Node& node = graph.nodes[one.site.node];
    std::vector<std::string> parameters;
    for (Id i : node.in)
      if (i && graph.value(i).kind == SymbolKind::param)
        parameters.push_back(model.params[block.params[graph.value(i).index]].name);
    for (const std::string& name : one.names)
      show(name, node.op->id, graph.value(node.out[one.site.output]).desc, parameters);
  }
}

}  // namespace

std::vector<Activation> activations_of(const Model& model) {
  return outputs_of(model, false);
}

std::vector<Activation> select_activations(const Model& model, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return {};
  std::vector<Activation> all = activations_of(model);
  for (const std::string& pattern : patterns) {
    if (any_matches(pattern, all)) continue;
    if (any_matches(pattern, outputs_of(model, true)))
      throw Error(
          Exit::usage,
          fmt::format("activations: `{}` is computed with its gradient: a step has no such value", printable(pattern)),
          "the loss and its terms are in the metrics; logits have a program of their own (logits=True)");
    std::vector<std::string> names;
    for (const Activation& one : all) names.insert(names.end(), one.names.begin(), one.names.end());
    throw Error(Exit::usage,
                fmt::format("activations: `{}` matches no activation of {}", printable(pattern), model.plugin),
                fmt::format("the nearest names: {}; `*` stands for any text. `engine plan CONFIG --activations` and "
                            "Run.activations() list all",
                            fmt::join(nearly_matched(pattern, names, 3), ", ")));
  }
  for (Activation& one : all)
    std::erase_if(one.names, [&](const std::string& name) {
      return std::none_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, name); });
    });
  std::erase_if(all, [](const Activation& one) { return one.names.empty(); });
  return all;
}

std::string activations_text(const Model& model) {
  std::string out;
  each(model, [&](const std::string& name, const char* op, const eng_desc& desc, const auto& parameters) {
    out += fmt::format("{:<34} {:<22} {:>11}  {}{}{}\n", name, describe(desc),
                       format_bytes(static_cast<double>(bytes(desc))), op, parameters.empty() ? "" : " of ",
                       fmt::join(parameters, ", "));
  });
  return out;
}

std::string activations_json(const Model& model) {
  Json out = Json::array();
  each(model, [&](const std::string& name, const char* op, const eng_desc& desc, const auto& parameters) {
    const std::string text = describe(desc);
    out.push_back(Json::ordered({{"name", name},
                                 {"op", op},
                                 {"dtype", text.substr(0, text.find(' '))},
                                 {"shape", std::vector<int64_t>(desc.dims, desc.dims + desc.ndim)},
                                 {"bytes", bytes(desc)},
                                 {"parameters", parameters}}));
  });
  return out.dump(2, true) + "\n";
}

}  // namespace eng
