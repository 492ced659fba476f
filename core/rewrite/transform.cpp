// SPDX-License-Identifier: Apache-2.0
#include "core/rewrite/transform.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/config/names.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

// True if blocks may share a template: everything but their parameters is equal.
bool equal(const Template& a, const Template& b) {
  const auto equal_value = [&](Id id) {
    const Symbol &x = a.graph.value(id), &y = b.graph.value(id);
    return x.kind == y.kind && x.index == y.index && same(x.desc, y.desc);
  };
  const auto equal_constant = [](const auto& x, const auto& y) {
    return x == y || (same(x->desc, y->desc) && x->data == y->data);
  };
  const auto equal_node = [](const Node& x, const Node& y) {
    return x.op == y.op && x.in == y.in && x.out == y.out && x.attrs == y.attrs;
  };
  bool out =
      a.graph.size() == b.graph.size() && a.params == b.params && a.outputs == b.outputs &&
      std::equal(a.constants.begin(), a.constants.end(), b.constants.begin(), b.constants.end(), equal_constant) &&
      std::equal(a.graph.nodes.begin(), a.graph.nodes.end(), b.graph.nodes.begin(), b.graph.nodes.end(), equal_node);
  for (Id id = 1; out && id <= a.graph.size(); ++id) out = equal_value(id);
  return out;
}

// "layers.0.q_proj" of "layers.0.q_proj.weight".
std::string stem(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

eng_transform_param shown(const Parameter& p, uint32_t input = 0, uint32_t targeted = 0) {
  return {p.name.c_str(), p.added_by.c_str(), &p.desc, p.flags, input, targeted, 0};
}

// The new forward of a block: its builder, while the transform replaces a call.
class Rewriting final : public Tracing {
 public:
  Rewriting(const Transform& transform, Model& model, Parameters& parameters, uint32_t block, Template& to,
            const TraceFor& how)
      : Tracing(model, to, how, false),
        transform_(transform),
        parameters_(parameters),
        from_(model.templates.at(model.blocks[block].tmpl)),
        number_(block),
        of_(from_.graph.size() + 1, 0) {
    for (Id id = 1; id <= from_.graph.size(); ++id)
      if (const Symbol& v = from_.graph.value(id); v.kind != SymbolKind::temp) of_[id] = to.graph.add(v);
    to.params = mapped(from_.params), to.inputs = mapped(from_.inputs);
    to.constants = from_.constants;
  }

  // The number of replaced calls. `used`: per target, 1 if it matches a call, 2 if that was replaced.
  size_t rewrite(std::vector<char>& used) {
    size_t replaced = 0;
    for (uint32_t n = 0; n < from_.graph.nodes.size(); ++n) {
      const Node& node = from_.graph.nodes[n];
      std::vector<Id> out = replace(n, used);
      if (out.empty())
        out = block_.graph.emit(*node.op, mapped(node.in), node.attrs);
      else
        ++replaced;
      for (size_t k = 0; k < out.size(); ++k) of_[node.out[k]] = out[k];
    }
    block_.outputs = mapped(from_.outputs);
    for (const Term& t : from_.terms) {
      const Id value = mapped({t.value})[0];
      block_.terms.push_back({t.name, t.weight, value, 0, is_cross_entropy(block_.graph, value), t.per});
    }
    return replaced;
  }

  Id param(Parameter p) override {
    p.added_by = transform_.name;
    const eng_desc desc = as_computed(p, how_.dtype);
    auto& list = model_.blocks[number_].params;
    list.push_back(parameters_.add(std::move(p)));
    block_.params.push_back(block_.graph.add({SymbolKind::param, desc, static_cast<uint32_t>(list.size() - 1)}));
    return block_.params.back();
  }
  void term(Id, std::string, double, uint32_t) override { refuse("naming a term of the loss"); }
  Id loss(Id, Id) override { refuse("asking for the loss"); }

 private:
  // Beyond those of all ops that the block had or has.
  size_t site() const override {
    size_t next = 0;
    for (const Graph* graph : {&from_.graph, static_cast<const Graph*>(&block_.graph)})
      for (const Node& node : graph->nodes)
        if (node.op->random) next = std::max(next, static_cast<size_t>(node.attrs.i("site")) + node.op->counts_as);
    return next;
  }

  std::vector<Id> mapped(const std::vector<Id>& ids) const {
    std::vector<Id> out;
    for (Id id : ids) {
      out.push_back(id ? of_[id] : 0);
      if (id && !out.back()) throw fault("{}, block {}: it left out an output that is read later", who(), name());
    }
    return out;
  }
  std::string who() const { return "transform " + transform_.name; }
  const std::string& name() const { return model_.blocks[number_].name; }

  // The values that replace the outputs of call `n`; empty: it stays.
  std::vector<Id> replace(uint32_t n, std::vector<char>& used) {
    const Node& node = from_.graph.nodes[n];
    std::vector<Parameter> own;  // the model's move when one is added
    std::vector<uint32_t> inputs;
    for (uint32_t k = 0; k < node.in.size(); ++k)
      if (node.in[k] && from_.graph.value(node.in[k]).kind == SymbolKind::param) {
        own.push_back(model_.params[model_.blocks[number_].params[from_.graph.value(node.in[k]).index]]);
        inputs.push_back(k);
      }
    std::set<size_t> targets;  // that match one of them
    std::vector<eng_transform_param> params;
    for (size_t k = 0; k < own.size(); ++k) {
      bool targeted = used.empty();
      for (size_t t = 0; t < used.size(); ++t)
        if (matches(transform_.targets[t], own[k].name) || matches(transform_.targets[t], stem(own[k].name)))
          targets.insert(t), targeted = true;
      params.push_back(shown(own[k], inputs[k], targeted));
    }
    if (targets.empty() && !used.empty()) return {};
    const std::vector<Id> in = mapped(node.in);
    std::vector<eng_desc> descs;
    for (Id o : node.out) descs.push_back(from_.graph.value(o).desc);
    const std::vector<eng_attr> attrs = lend(node.attrs);
    const auto number = [](const auto& list) { return static_cast<uint32_t>(list.size()); };
    eng_transform_call call{};
    call.struct_size = sizeof call, call.number = n, call.op = node.op->id, call.name = name().c_str();
    call.block = number_, call.blocks = number(model_.blocks), call.in = in.data(), call.out = descs.data();
    call.attrs = attrs.data(), call.params = params.data(), call.n_in = number(in), call.n_out = number(descs);
    call.n_attrs = number(attrs), call.n_params = number(params);
    std::vector<Id> out(node.out.size(), 0);
    const size_t before = block_.graph.size();
    const std::string where = fmt::format("{}, block {}, {}", who(), name(), node.op->id);
    std::vector<OwnState>& kept = model_.blocks[number_].states;
    std::vector<OwnState> states = own_states(where, [&](auto... list) {
      if (const auto ask = transform_.table.states)
        call_plugin(Exit::usage, where, ask, transform_.self.get(), &call, list...);
    });
    std::vector<Id> ids;
    for (OwnState& s : states) {
      if (s.desc.dtype != ENG_F32) throw fault("{}: its state {} must be f32", where, s.name);
      s.by = model_.transformed.size();
      ids.push_back(block_.graph.add({SymbolKind::state, s.desc, static_cast<uint32_t>(kept.size() + ids.size())}));
    }
    call.states = ids.data(), call.n_states = number(ids);
    Builder::call(where, Exit::usage, transform_.table.apply, transform_.self.get(), this, &call, out.data());
    const bool replaced = std::any_of(out.begin(), out.end(), [](Id id) { return id != 0; });
    if (!replaced && block_.graph.size() != before)
      throw Error(Exit::environment, where + ": it declared or emitted something, and replaced nothing");
    for (size_t k = 0; k < out.size(); ++k) {
      const bool known = out[k] <= block_.graph.size();
      if (out[k] && (!known || !same(shape(out[k]), descs[k])))
        throw fault("{}: output {} is replaced by {}, it must be {}", where, k,
                    known ? describe(shape(out[k])) : "no value", describe(descs[k]));
    }
    for (size_t t : targets) used[t] = std::max<char>(used[t], replaced ? 2 : 1);
    kept.insert(kept.end(), states.begin(), states.end());
    return replaced ? out : std::vector<Id>{};
  }

  const Transform& transform_;
  Parameters& parameters_;
  const Template& from_;
  uint32_t number_;     // of the block
  std::vector<Id> of_;  // value of `from_` -> the value that replaces it
};

void change_flags(const Transform& transform, Model& model, Transformed& done) {
  for (Parameter& p : model.params) {
    const eng_transform_param param = shown(p);
    uint32_t flags = p.flags;
    const std::string where = fmt::format("transform {}, parameter {}", transform.name, p.name);
    call_plugin(Exit::usage, where, transform.table.flags, transform.self.get(), &param, &flags);
    if ((flags ^ p.flags) & ~(ENG_PARAM_FROZEN | ENG_PARAM_NOT_EXPORTED))
      throw Error(Exit::environment, where + ": only ENG_PARAM_FROZEN and ENG_PARAM_NOT_EXPORTED may change");
    done.flags += flags != p.flags;
    done.frozen += (flags & ~p.flags & ENG_PARAM_FROZEN) != 0;
    p.flags = flags, p.frozen = (flags & ENG_PARAM_FROZEN) != 0;
  }
}

// A target that matched no call that was replaced.
[[noreturn]] void refuse_target(const std::string& name, const std::string& target, bool matched, const Model& model) {
  const std::string where = "targets of transform " + name;
  if (!matched) select(model, target, where);  // throws where no parameter has the name
  throw Error(Exit::usage,
              fmt::format("{}: `{}` matches no call that it replaces in {}", where, printable(target), model.plugin),
              "remove the pattern, or see what the transform's documentation says it works on");
}

}  // namespace

Transform make_transform(const std::string& name, const eng_transform& table, const Section& options) {
  return {name, table, make_object(table, options, "[[transforms]] " + name), options.strings("targets")};
}

void rewrite(Model& model, const Transform& transform, const TraceFor& how) {
  Transformed done{transform.name, 0, 0, 0, 0, 0, transform.table.update, transform.self};
  if (transform.table.flags) change_flags(transform, model, done);
  Parameters parameters(model);
  const size_t before = model.params.size();
  std::vector<char> used(transform.targets.size(), 0);
  std::multimap<uint32_t, uint32_t> made;  // template before -> those made of it
  for (uint32_t b = 0; b < model.blocks.size(); ++b) {
    Template to;
    // With the bytes of constants, so that equal ones are recognised.
    const size_t replaced =
        Rewriting(transform, model, parameters, b, to, {how.dtype, true, how.offered, how.loss}).rewrite(used);
    if (!replaced) continue;
    done.calls += replaced, ++done.blocks;
    uint32_t& tmpl = model.blocks[b].tmpl;
    const auto [first, last] = made.equal_range(tmpl);
    auto like =
        std::find_if(first, last, [&](const auto& entry) { return equal(model.templates.at(entry.second), to); });
    if (like == last) {
      to.tmpl = model.templates.rbegin()->first + 1;
      like = made.emplace(tmpl, to.tmpl);
      model.templates[to.tmpl] = std::move(to);
    }
    tmpl = like->second;
  }
  for (size_t t = 0; t < used.size(); ++t)
    if (used[t] < 2) refuse_target(transform.name, transform.targets[t], used[t] != 0, model);
  done.parameters = model.params.size() - before;
  if (!done.calls && !done.flags)
    throw Error(Exit::usage, fmt::format("transform {} changes nothing in {}", transform.name, model.plugin),
                "remove the entry of [[transforms]]");
  drop_unused_templates(model);
  for (auto& [tmpl, t] : model.templates)
    for (auto& c : t.constants)
      if (!how.runs && !c->data.empty()) c = std::make_shared<const Constant>(Constant{c->desc, {}});
  check_tables(model);
  model.transformed.push_back(std::move(done));
}

}  // namespace eng
