// SPDX-License-Identifier: Apache-2.0
#include "core/plan/hooks.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace eng {

ShownSite::ShownSite(const Model& model, const Site& site, uint32_t number) {
  const Block& block = model.blocks[site.block];
  const Graph& graph = model.templates.at(block.tmpl).graph;
  const Node& node = graph.nodes[site.node];
  attrs = lend(node.attrs);
  shown.struct_size = sizeof shown;
  shown.block_number = site.block, shown.block = block.name.c_str();
  shown.op = node.op->id, shown.output = site.output, shown.node = site.node;
  shown.attrs = attrs.data(), shown.n_attrs = static_cast<uint32_t>(attrs.size());
  shown.number = number;
  shown.shape = &graph.value(node.out[site.output]).desc;
}

Hooks::Hooks(const PlanRequest& request, Plan& plan, Emitter& emitter) : r_(request), plan_(plan), emit_(emitter) {
  for (const auto& [site, names] : r_.activations) {
    const Graph& graph = r_.model.templates.at(r_.model.blocks[site.block].tmpl).graph;
    add(site, names, "activation", Line::activations, graph.value(graph.nodes[site.node].out[site.output]).desc);
  }
  if (!r_.job || !r_.job->table.site) return;
  if (!r_.job->table.observe) throw Error(Exit::environment, r_.job->asked.who() + " has `site`, but no `observe`");
  for (uint32_t b = 0; b < r_.model.blocks.size(); ++b) {
    const Template& t = r_.model.templates.at(r_.model.blocks[b].tmpl);
    for (uint32_t n = 0; n < t.forward; ++n)
      for (uint32_t o = 0; o < t.graph.nodes[n].out.size(); ++o) {
        const Site site{b, n, o, {}};
        const eng_desc desc = ask_site(site);
        if (desc.ndim) add(site, {fmt::format("site {}", plan_.sites.size())}, "site", Line::sites, desc);
      }
  }
}

void Hooks::add(Site site, const std::vector<std::string>& names, const char* role, Line line, const eng_desc& desc) {
  site.into = emit_.persistent(names[0], line, desc, r_.job != nullptr);
  for (const std::string& name : names) plan_.tensors.push_back(tensor_at(name, role, site.into));
  plan_.sites.push_back(site);
}

std::string Hooks::who(const Site& site) const {
  const Block& block = r_.model.blocks[site.block];
  return fmt::format("{}, output {} of {} in {}", r_.job->asked.who(), site.output,
                     r_.model.templates.at(block.tmpl).graph.nodes[site.node].op->id, block.name);
}

eng_desc Hooks::ask_site(const Site& site) const {
  const ShownSite here(r_.model, site, static_cast<uint32_t>(plan_.sites.size()));
  eng_desc out{};
  call_plugin(Exit::usage, who(site), r_.job->table.site, r_.job->self.get(), &here.shown, &out);
  if (!out.ndim) return out;
  std::string bad = wrong_with(out);
  if (bad.empty() && out.dtype != ENG_I64 && out.dtype != ENG_F32 && out.dtype != ENG_F64)
    bad = "is " + describe(out) + "; a site's tensor is i64, f32 or f64";
  if (!bad.empty()) throw Error(Exit::environment, who(site) + ": the tensor of the site " + bad);
  return out;
}

void Hooks::after(uint32_t block, size_t node, const std::vector<View>& outputs) {
  for (uint32_t k = 0; k < plan_.sites.size(); ++k) {
    const Site& site = plan_.sites[k];
    if (site.block != block || site.node != node) continue;
    if (!r_.job) {
      emit_.copy(outputs[site.output], site.into);
      continue;
    }
    const ShownSite here(r_.model, site, k);
    EmittingBuilder builder(emit_, plan_.ranks, r_.job->name + " " + here.shown.block, Line::sites);
    builder.together = "eng_job_api.read adds what the ranks have";
    const Id value = builder.add(outputs[site.output]), into = builder.add(site.into, true);
    ask(who(site), builder, Exit::usage, r_.job->table.observe, r_.job->self.get(), &builder, &here.shown, value, into);
  }
}

}  // namespace eng
