// SPDX-License-Identifier: Apache-2.0
#include "core/trace/model.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/config/names.hpp"
#include "core/trace/tracing.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

class Declaring final : public Builder {
 public:
  explicit Declaring(Model& model) : model_(model), parameters_(model) {}
  eng_desc shape(Id value) override {
    if (!value || value > model_.params.size()) throw fault("no such parameter");
    return model_.params[value - 1].desc;
  }
  Id param(Parameter p) override { return parameters_.add(std::move(p)) + 1; }
  void block(std::string name, uint32_t tmpl, std::vector<Id> params) override {
    Block block{std::move(name), tmpl, {}};
    for (Id p : params) shape(p), block.params.push_back(p - 1);
    model_.blocks.push_back(std::move(block));
  }
  std::vector<Id> emit(const Op&, std::vector<Id>, std::vector<Id>, Attrs) override {
    throw fault("ops are emitted in trace, not in declare");
  }

 private:
  Model& model_;
  Parameters parameters_;
};

// A model plugin and its object.
struct Instance {
  const eng_model& table;
  const std::shared_ptr<void> self;
  eng_model_info info{};
  Instance(const std::string& name, const eng_model& model, const Section& section)
      : table(model), self(make_object(model, section, "[model] " + name)) {
    info.struct_size = sizeof(info);
    call_plugin(Exit::environment, "model " + name, table.describe, self.get(), &info);
    if (info.vocabulary < 1 || info.vocabulary > INT32_MAX || info.layers < 0 || info.attention_width < 0 ||
        info.max_length < 0)
      throw fault(
          "model {} describes itself with vocabulary {}, layers {}, "
          "attention_width {}, max_length {}: at least one is out of range",
          name, info.vocabulary, info.layers, info.attention_width, info.max_length);
  }
};

void trace_template(Model& model, const Instance& plugin, const Block& block, const std::vector<eng_desc>& inputs,
                    const TraceFor& how, bool last) {
  Template& t = model.templates[block.tmpl];
  t.tmpl = block.tmpl;
  for (size_t k = 0; k < block.params.size(); ++k) {
    const eng_desc desc = as_computed(model.params[block.params[k]], how.dtype);
    t.params.push_back(t.graph.add({SymbolKind::param, desc, static_cast<uint32_t>(k)}));
  }
  for (size_t k = 0; k < inputs.size(); ++k)
    t.inputs.push_back(t.graph.add({SymbolKind::input, inputs[k], static_cast<uint32_t>(k)}));
  Tracing tracing(model, t, how, last);
  Id out[8] = {};
  uint32_t n_out = 0;
  const std::string where = fmt::format("model {}, block {}", model.plugin, block.name);
  tracing.call(where, Exit::usage, plugin.table.trace, plugin.self.get(), &tracing, block.tmpl, t.params.data(),
               static_cast<uint32_t>(t.params.size()), t.inputs.data(), static_cast<uint32_t>(t.inputs.size()), out, 8u,
               &n_out);
  if (last && !tracing.asked_loss() && (!how.loss.name.empty() || how.loss.z_loss != 0))
    throw Error(Exit::usage, fmt::format("model {} has a loss of its own, which [loss] cannot change", model.plugin),
                "remove [loss]");
  if (n_out < 1) throw Error(Exit::environment, where + ": trace gave no output");
  if (n_out > 8) throw fault("{}: trace gave {} outputs, the limit is 8", where, n_out);
  for (uint32_t k = 0; k < n_out; ++k) {
    if (!out[k] || out[k] > t.graph.size()) throw fault("{}: output {} is not a value of this trace", where, k);
    const bool widens = inputs.empty() && !last && how.stream && how.stream != how.dtype;
    const bool cast = widens && t.graph.value(out[k]).desc.dtype == how.dtype;
    t.outputs.push_back(cast ? eng_cast(&tracing, out[k], how.stream) : out[k]);
  }
  for (Term& term : t.terms) term.cross_entropy = is_cross_entropy(t.graph, term.value);
  const auto is_output = [&](const Term& term) { return term.value == t.outputs[0]; };
  if (!t.terms.empty() && std::none_of(t.terms.begin(), t.terms.end(), is_output))
    throw Error(Exit::environment, where + ": its output must be one of the terms that it names");
}

// The host checks values of a field that index tables, because kernels do not. `ids` indexes `rows` rows.
void limit_field(Model& model, const Symbol& ids, int64_t rows, bool labels) {
  if (ids.kind != SymbolKind::batch) return;
  Field& field = model.fields[ids.index];
  field.ignores = labels && (field.ignores || !field.limit);
  field.limit = field.limit ? std::min(field.limit, rows) : rows;
}

}  // namespace

void check_tables(Model& model) {
  for (const auto& block : model.blocks) {
    const Template& t = model.templates.at(block.tmpl);
    for (const Node& node : t.graph.nodes)
      for (const eng_index& index : node.op->indexes) {
        if (std::max(index.ids, index.table) >= node.in.size() || !node.in[index.ids] || !node.in[index.table])
          continue;
        const Symbol& ids = t.graph.value(node.in[index.ids]);
        const int64_t rows = t.graph.value(node.in[index.table]).desc.dims[0] - node.attrs.i("offset");
        limit_field(model, ids, rows, index.flags & ENG_INDEX_LABELS);
        const bool tokens = (index.flags & ENG_INDEX_TOKENS) && !(ids.kind == SymbolKind::batch && ids.index > 1);
        if (tokens && rows < model.info.vocabulary)
          throw fault("model {}, block {}: {} has a table of {} rows, the vocabulary is {}", model.plugin, block.name,
                      node.op->id, rows, model.info.vocabulary);
      }
  }
}

int64_t Model::parameter_count() const {
  int64_t n = 0;
  for (const auto& p : params) n += p.flags & of_reference ? 0 : count(p.whole());
  return n;
}

std::string state_name(const std::string& who, const char* given) try {
  const std::string name = given ? given : "";
  return check_name("the name of a state", name), name;
} catch (const std::exception& e) {
  throw fault("{} gives states: {}", who, e.what());
}

std::vector<OwnState> own_states(const std::string& who, const AskStates& ask) {
  eng_policy_state list[16] = {};
  uint32_t n = 0;
  ask(list, uint32_t{std::size(list)}, &n);
  const auto wrong = [&](const std::string& what) { return Error(Exit::environment, who + " " + what); };
  if (n > std::size(list)) throw wrong(fmt::format("has {} states of its own; the limit is {}", n, std::size(list)));
  std::vector<OwnState> out;
  for (const eng_policy_state& s : std::span(list, n)) {
    const std::string own = state_name(who, s.name);
    if (const std::string bad = wrong_with(s.shape); !bad.empty()) throw fault("{}, state {}: {}", who, own, bad);
    if (std::any_of(out.begin(), out.end(), [&](const OwnState& o) { return o.name == own; }))
      throw wrong("gives two states the name " + own);
    out.push_back({own, s.shape});
  }
  return out;
}

eng_model_info describe_model(const std::string& name, const eng_model& table, const Section& section) {
  return Instance(name, table, section).info;
}

Model trace_forward(const std::string& name, const eng_model& table, const Section& section, int64_t micro_batch,
                    int64_t sequence_length, int32_t dtype, bool runs, const Offered& offered, const Loss& loss,
                    int32_t stream) {
  Model model;
  model.plugin = name, model.micro_batch = micro_batch, model.sequence_length = sequence_length;
  model.sequences = loss.sequences ? loss.sequences : micro_batch;
  const Instance plugin(name, table, section);
  model.info = plugin.info;
  Declaring declaring(model);
  declaring.call("model " + name, Exit::usage, table.declare, plugin.self.get(), &declaring);
  if (model.blocks.empty()) throw Error(Exit::environment, "model " + name + " declares no blocks");

  std::vector<eng_desc> inputs;
  for (size_t k = 0; k < model.blocks.size(); ++k) {
    const Block& block = model.blocks[k];
    bool first = k == 0, last = k + 1 == model.blocks.size();
    auto found = model.templates.find(block.tmpl);
    if (found == model.templates.end()) {
      trace_template(model, plugin, block, inputs, {dtype, runs, offered, loss, stream}, last);
    } else {
      const Template& t = found->second;
      bool agrees = !first && !last && t.inputs.size() == inputs.size() && t.params.size() == block.params.size();
      for (size_t i = 0; agrees && i < inputs.size(); ++i) agrees = same(t.graph.value(t.inputs[i]).desc, inputs[i]);
      for (size_t i = 0; agrees && i < block.params.size(); ++i)
        agrees = same(as_computed(model.params[block.params[i]], dtype), t.graph.value(t.params[i]).desc);
      if (!agrees)
        throw fault("model {}: block {} names template {}, but its shapes differ from the block traced for it", name,
                    block.name, block.tmpl);
    }
    const Template& t = model.templates[block.tmpl];
    inputs.clear();
    for (Id o : t.outputs) inputs.push_back(t.graph.value(o).desc);
  }
  check_tables(model);
  return model;
}

Loss make_loss(const std::string& name, const eng_loss& table, const Section& options) {
  return {name, 0, table, make_object(table, options, "[loss] " + name)};
}

void drop_unused_templates(Model& model) {
  std::erase_if(model.templates, [&](const auto& entry) {
    return std::none_of(model.blocks.begin(), model.blocks.end(),
                        [&](const Block& b) { return b.tmpl == entry.first; });
  });
}

std::vector<uint32_t> select(const Model& model, const std::string& pattern, const std::string& where) {
  std::vector<uint32_t> out;
  std::vector<std::string> names;
  for (uint32_t p = 0; p < model.params.size(); ++p) {
    names.push_back(model.params[p].name);
    if (matches(pattern, names.back())) out.push_back(p);
  }
  if (out.empty())
    throw Error(Exit::usage,
                fmt::format("{}: `{}` matches no parameter of {}", where, printable(pattern), model.plugin),
                fmt::format("the nearest names: {}; `*` stands for any text",
                            fmt::join(nearly_matched(pattern, names, 3), ", ")));
  return out;
}

}  // namespace eng
