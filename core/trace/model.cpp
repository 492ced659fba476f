// SPDX-License-Identifier: Apache-2.0
#include "core/trace/model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "core/base/text.hpp"
#include "core/config/names.hpp"
#include "core/trace/composite.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

class Declaring final : public Builder {
 public:
  explicit Declaring(Model& model) : model_(model) {}
  eng_desc shape(Id value) override {
    if (!value || value > model_.params.size()) throw Error(Exit::environment, "no such parameter");
    return model_.params[value - 1].desc;
  }
  Id param(Parameter p) override {
    if (!names_.insert(p.name).second) throw Error(Exit::environment, "parameter " + p.name + " is declared twice");
    if (!p.desc.ndim) throw Error(Exit::environment, "parameter " + p.name + " has no dimensions");
    elements_ += count(p.desc);
    if (elements_ > int64_t{1} << 56) throw Error(Exit::environment, "all parameters have more than 2^56 elements");
    if (const Op* op = find_op(p.init_op); !op || op->max_in)
      throw Error(Exit::environment, "parameter " + p.name + " has an unknown init op: " + p.init_op);
    model_.params.push_back(std::move(p));
    return static_cast<Id>(model_.params.size());
  }
  void block(std::string name, uint32_t tmpl, std::vector<Id> params) override {
    Block block{std::move(name), tmpl, {}};
    for (Id p : params) {
      shape(p);
      block.params.push_back(p - 1);
    }
    model_.blocks.push_back(std::move(block));
  }
  std::vector<Id> emit(const Op&, std::vector<Id>, std::vector<Id>, Attrs) override {
    throw Error(Exit::environment, "ops are emitted in trace, not in declare");
  }

 private:
  Model& model_;
  int64_t elements_ = 0;
  std::set<std::string> names_;
};

template <class Fields>
auto find_field(Fields& fields, const std::string& name) {
  return std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
}

class Tracing final : public Builder {
 public:
  Tracing(Model& model, Template& block, const Offered& offered, int32_t dtype, bool last, bool runs)
      : model_(model), block_(block), offered_(offered), dtype_(dtype), last_(last), runs_(runs) {}
  eng_desc shape(Id value) override {
    if (!value || value > block_.graph.size()) throw Error(Exit::environment, "no such value");
    return block_.graph.value(value).desc;
  }
  Id batch(const std::string& name) override {
    auto& read = model_.fields;
    auto field = find_field(read, name);
    if (field == read.end()) {
      const auto given = find_field(offered_.fields, name);
      if (given == offered_.fields.end()) refuse_field(name);
      field = read.insert(read.end(), *given);
    }
    const auto index = static_cast<uint32_t>(field - read.begin());
    Id& id = batches_[index];
    if (!id) {
      const eng_desc desc = make_desc(field->dtype, {model_.micro_batch, model_.sequence_length});
      id = block_.graph.add({SymbolKind::batch, desc, index});
    }
    return id;
  }
  bool offers(const std::string& name) override {
    return find_field(model_.fields, name) != model_.fields.end() ||
           find_field(offered_.fields, name) != offered_.fields.end();
  }
  Id constant(const eng_desc& desc, const void* data) override {
    const char* first = static_cast<const char*>(data);
    Constant constant{desc, {}};
    if (runs_) constant.data.assign(first, first + bytes(desc));
    block_.constants.push_back(std::make_shared<const Constant>(std::move(constant)));
    return block_.graph.add({SymbolKind::constant, desc, static_cast<uint32_t>(block_.constants.size() - 1)});
  }
  void term(Id value, std::string name, double weight) override {
    constexpr size_t most = 64, longest = 40;
    const auto refuse = [&](const std::string& why) {
      throw Error(Exit::environment, fmt::format("term `{}` of the loss: {}", printable(name, longest), why));
    };
    if (!last_) refuse("only the last block may name terms");
    if (name.empty() || name.size() > longest ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") != std::string::npos)
      refuse(fmt::format("a name has 1 to {} characters a-z, 0-9, _ and dot", longest));
    const eng_desc is = shape(value), must = make_desc(wide(dtype_), {1});
    if (!same(is, must)) refuse(fmt::format("its value is {}, it must be {}", describe(is), describe(must)));
    if (!std::isfinite(weight)) refuse("its weight is not a finite number");
    for (const Term& other : block_.terms)
      if (other.name == name) refuse("another term has this name");
    if (block_.terms.size() == most) refuse(fmt::format("there are {} terms already, the limit", most));
    block_.terms.push_back({std::move(name), weight, value});
  }
  std::vector<Id> emit(const Op& op, std::vector<Id> in, std::vector<Id> out, Attrs attrs) override {
    for (Id o : out)
      if (o) throw Error(Exit::environment, std::string(op.id) + ": a model cannot choose where an op writes");
    for (Id i : in)
      if (i) shape(i);
    if (dissolves(op))
      return dissolve(block_.graph, op, in, attrs, [this](const Op& part, std::vector<Id> from, Attrs with) {
        return emit(part, std::move(from), {}, std::move(with));
      });
    if (op.random) {
      size_t site = 0;  // the number of the op in the block
      for (const Node& node : block_.graph.nodes) site += node.op->counts_as;
      if (site >= random_sites)
        throw Error(Exit::environment,
                    fmt::format("{}: random ops must be among the first {} ops of a block", op.id, random_sites));
      attrs.list.push_back({"site", static_cast<int64_t>(site), 0});
    }
    const Id from = in.empty() ? 0 : in[0];
    const std::vector<Id> made = block_.graph.emit(op, std::move(in), std::move(attrs));
    if (op.random && (made.size() != 1 || !same(shape(made[0]), shape(from))))
      throw Error(Exit::environment,
                  fmt::format("{}: the output of a random op must have the shape of input 0", op.id));
    return made;
  }

 private:
  [[noreturn]] void refuse_field(const std::string& name) const {
    std::string names = "tokens, labels";
    for (const Field& f : offered_.fields) names += ", " + f.name;
    throw Error(name.empty() ? Exit::environment : Exit::usage,
                fmt::format("the batch has no `{}`: {} provides {}", printable(name), offered_.by, names),
                "choose a source that provides it ([data] plugin), or another model");
  }
  Model& model_;
  Template& block_;
  const Offered& offered_;
  int32_t dtype_;  // of activations
  bool last_, runs_;
  std::map<uint32_t, Id> batches_;  // by field
};

// Owns the model plugin's object.
struct Instance {
  const eng_model& table;
  void* self = nullptr;
  bool made = false;
  ~Instance() {
    if (made) table.destroy(self);
  }
  eng_model_info create(const std::string& name, const Section& section) {
    eng_model_info info{};
    info.struct_size = sizeof(info);
    Options options(section);
    Sink refused, sink;
    refused.check(table.create(options.get(), &self, refused.get()), Exit::usage, "[model] " + name);
    made = true;
    sink.check(table.describe(self, &info, sink.get()), Exit::environment, "model " + name);
    if (info.vocabulary < 1 || info.vocabulary > INT32_MAX || info.layers < 0 || info.attention_width < 0 ||
        info.max_length < 0)
      throw Error(Exit::environment,
                  fmt::format("model {} describes itself with vocabulary {}, layers {}, "
                              "attention_width {}, max_length {}: at least one is out of range",
                              name, info.vocabulary, info.layers, info.attention_width, info.max_length));
    return info;
  }
};

// A parameter's desc in the dtype in which compute reads it.
eng_desc as_computed(const Parameter& parameter, int32_t dtype) {
  eng_desc desc = parameter.desc;
  if (!(parameter.flags & ENG_PARAM_FP32)) desc.dtype = dtype;
  return desc;
}

void trace_template(Model& model, const Instance& plugin, const Block& block, const std::vector<eng_desc>& inputs,
                    int32_t dtype, bool last, bool runs, const Offered& offered) {
  Template& t = model.templates[block.tmpl];
  t.tmpl = block.tmpl;
  for (size_t k = 0; k < block.params.size(); ++k) {
    const eng_desc desc = as_computed(model.params[block.params[k]], dtype);
    t.params.push_back(t.graph.add({SymbolKind::param, desc, static_cast<uint32_t>(k)}));
  }
  for (size_t k = 0; k < inputs.size(); ++k)
    t.inputs.push_back(t.graph.add({SymbolKind::input, inputs[k], static_cast<uint32_t>(k)}));
  Tracing tracing(model, t, offered, dtype, last, runs);
  Id out[8] = {};
  uint32_t n_out = 0;
  Sink sink;
  eng_status status =
      plugin.table.trace(plugin.self, &tracing, block.tmpl, t.params.data(), static_cast<uint32_t>(t.params.size()),
                         t.inputs.data(), static_cast<uint32_t>(t.inputs.size()), out, 8, &n_out, sink.get());
  std::string where = fmt::format("model {}, block {}", model.plugin, block.name);
  tracing.check(where);
  sink.check(status, Exit::usage, where);
  if (n_out < 1) throw Error(Exit::environment, where + ": trace gave no output");
  if (n_out > 8) throw Error(Exit::environment, fmt::format("{}: trace gave {} outputs, the limit is 8", where, n_out));
  for (uint32_t k = 0; k < n_out; ++k) {
    if (!out[k] || out[k] > t.graph.size())
      throw Error(Exit::environment, fmt::format("{}: output {} is not a value of this trace", where, k));
    t.outputs.push_back(out[k]);
  }
  for (Term& term : t.terms)
    for (const Node& node : t.graph.nodes)
      term.cross_entropy =
          term.cross_entropy || (node.op->id == std::string(ENG_OP_CROSS_ENTROPY) && node.out[0] == term.value);
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

// Every token id below the model's stated vocabulary must have a row in its tables.
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
          throw Error(Exit::environment,
                      fmt::format("model {}, block {}: {} has a table of {} rows, the vocabulary is {}", model.plugin,
                                  block.name, node.op->id, rows, model.info.vocabulary));
      }
  }
}

}  // namespace

int64_t Model::parameter_count() const {
  int64_t n = 0;
  for (const auto& p : params) n += count(p.desc);
  return n;
}

eng_model_info describe_model(const std::string& name, const eng_model& table, const Section& section) {
  return Instance{table}.create(name, section);
}

Model trace_forward(const std::string& name, const eng_model& table, const Section& section, int64_t micro_batch,
                    int64_t sequence_length, int32_t dtype, bool runs, const Offered& offered) {
  Model model;
  model.plugin = name;
  model.micro_batch = micro_batch;
  model.sequence_length = sequence_length;
  Instance plugin{table};
  model.info = plugin.create(name, section);
  Sink sink;
  Declaring declaring(model);
  eng_status status = table.declare(plugin.self, &declaring, sink.get());
  declaring.check("model " + name);
  sink.check(status, Exit::usage, "model " + name);
  if (model.blocks.empty()) throw Error(Exit::environment, "model " + name + " declares no blocks");

  std::vector<eng_desc> inputs;
  for (size_t k = 0; k < model.blocks.size(); ++k) {
    const Block& block = model.blocks[k];
    bool first = k == 0, last = k + 1 == model.blocks.size();
    auto found = model.templates.find(block.tmpl);
    if (found == model.templates.end()) {
      trace_template(model, plugin, block, inputs, dtype, last, runs, offered);
    } else {
      const Template& t = found->second;
      bool agrees = !first && !last && t.inputs.size() == inputs.size() && t.params.size() == block.params.size();
      for (size_t i = 0; agrees && i < inputs.size(); ++i) agrees = same(t.graph.value(t.inputs[i]).desc, inputs[i]);
      for (size_t i = 0; agrees && i < block.params.size(); ++i)
        agrees = same(as_computed(model.params[block.params[i]], dtype), t.graph.value(t.params[i]).desc);
      if (!agrees)
        throw Error(
            Exit::environment,
            fmt::format("model {}: block {} names template {}, but its shapes differ from the block traced for it",
                        name, block.name, block.tmpl));
    }
    const Template& t = model.templates[block.tmpl];
    inputs.clear();
    for (Id o : t.outputs) inputs.push_back(t.graph.value(o).desc);
  }
  check_tables(model);
  return model;
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
