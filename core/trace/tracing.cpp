// SPDX-License-Identifier: Apache-2.0
#include "core/trace/tracing.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"
#include "core/trace/composite.hpp"
#include "engine/ops.h"

namespace eng {

Parameters::Parameters(Model& model) : model_(model) {
  for (const Parameter& p : model.params) names_.insert(p.name), elements_ += count(p.desc);
}

uint32_t Parameters::add(Parameter p) {
  if (!names_.insert(p.name).second) throw Error(Exit::environment, "parameter " + p.name + " is declared twice");
  if (!p.desc.ndim) throw Error(Exit::environment, "parameter " + p.name + " has no dimensions");
  elements_ += count(p.desc);
  if (elements_ > int64_t{1} << 56) throw fault("all parameters have more than 2^56 elements");
  if (const Op* op = find_op(p.init_op); !op || op->max_in)
    throw Error(Exit::environment, "parameter " + p.name + " has an unknown init op: " + p.init_op);
  p.frozen = (p.flags & ENG_PARAM_FROZEN) != 0;
  model_.params.push_back(std::move(p));
  return static_cast<uint32_t>(model_.params.size() - 1);
}

bool is_cross_entropy(const Graph& graph, Id value) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op->id == std::string(ENG_OP_CROSS_ENTROPY) && node.out[0] == value;
  });
}

eng_desc as_computed(const Parameter& parameter, int32_t dtype) {
  eng_desc desc = parameter.desc;
  if (!(parameter.flags & ENG_PARAM_FP32)) desc.dtype = dtype;
  return desc;
}

template <class Fields>
static auto find_field(Fields& fields, const std::string& name) {
  return std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
}

eng_desc Tracing::shape(Id value) {
  if (!value || value > block_.graph.size()) throw fault("no such value");
  return block_.graph.value(value).desc;
}

Id Tracing::batch(const std::string& name) {
  auto& read = model_.fields;
  auto field = find_field(read, name);
  if (field == read.end()) {
    const auto given = find_field(how_.offered.fields, name);
    if (given == how_.offered.fields.end()) refuse_field(name);
    field = read.insert(read.end(), *given);
  }
  const auto index = static_cast<uint32_t>(field - read.begin());
  Id& id = batches_[index];
  const eng_desc desc = make_desc(field->dtype, {model_.micro_batch, model_.sequence_length});
  return id ? id : id = block_.graph.add({SymbolKind::batch, desc, index});
}

bool Tracing::offers(const std::string& name) {
  return find_field(model_.fields, name) != model_.fields.end() ||
         find_field(how_.offered.fields, name) != how_.offered.fields.end();
}

Id Tracing::constant(const eng_desc& desc, const void* data) {
  const char* first = static_cast<const char*>(data);
  Constant constant{desc, {}};
  if (how_.runs) constant.data.assign(first, first + bytes(desc));
  block_.constants.push_back(std::make_shared<const Constant>(std::move(constant)));
  return block_.graph.add({SymbolKind::constant, desc, static_cast<uint32_t>(block_.constants.size() - 1)});
}

void Tracing::term(Id value, std::string name, double weight, uint32_t per) {
  constexpr size_t most = 64, longest = 40;
  const auto refuse = [&](const std::string& why) {
    throw fault("term `{}` of the loss: {}", printable(name, longest), why);
  };
  if (!last_) refuse("only the last block may name terms");
  if (loss_ && shape(loss_).ndim != 1) return;  // all that is wanted of a reference is what its head gives
  if (const Id out = std::exchange(loss_, 0); out && out != value)
    term(out, how_.loss.name.empty() ? "cross_entropy" : "loss", 1.0, ENG_PER_LABEL);
  if (name.empty() || name.size() > longest ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") != std::string::npos)
    refuse(fmt::format("a name has 1 to {} characters a-z, 0-9, _ and dot", longest));
  const eng_desc is = shape(value), must = make_desc(wide(how_.dtype), {1});
  if (!same(is, must)) refuse(fmt::format("its value is {}, it must be {}", describe(is), describe(must)));
  if (!std::isfinite(weight)) refuse("its weight is not a finite number");
  if (per > ENG_PER_PAIR) refuse(fmt::format("its divisor is {}, which is none of ENG_PER_LABEL and others", per));
  for (const Term& other : block_.terms)
    if (other.name == name) refuse("another term has this name");
  if (block_.terms.size() == most) refuse(fmt::format("there are {} terms already, the limit", most));
  block_.terms.push_back({std::move(name), weight, value, 0, false, per});
}

Id Tracing::loss(Id hidden, Id weight) {
  if (!last_) throw fault("only the last block has a loss");
  if (std::exchange(asked_loss_, true)) throw fault("the loss is asked for twice");
  const Loss& loss = how_.loss;
  if (loss.name.empty()) {
    const Id labels = batch("labels");
    const Id out = eng_language_loss(this, hidden, weight, labels, eng_offered(this, "loss_weights"), loss.z_loss);
    if (status != ENG_OK) throw Error(exit, error, help);
    return loss_ = block_.terms.empty() ? out : 0, out;
  }
  const eng_desc h = shape(hidden), w = shape(weight);
  if (h.ndim != 3 || w.ndim != 2 || h.dims[2] != w.dims[1])
    throw fault("the loss needs hidden states (B, T, H) and a weight (V, H), not {} and {}", describe(h), describe(w));
  const std::string where = "loss " + loss.name;
  Id out = 0;
  call(where, Exit::usage, loss.table.trace, loss.self.get(), this, hidden, weight, &out);
  if (!out || out > block_.graph.size()) throw fault("{}: its output is no value of the block", where);
  return loss_ = block_.terms.empty() ? out : 0, out;
}

std::vector<Id> Tracing::emit(const Op& op, std::vector<Id> in, std::vector<Id> out, Attrs attrs) {
  for (Id o : out)
    if (o) throw Error(Exit::environment, std::string(op.id) + ": a model cannot choose where an op writes");
  for (Id i : in)
    if (i) shape(i);
  if (dissolves(op))
    return dissolve(block_.graph, op, in, attrs, [this](const Op& part, std::vector<Id> from, Attrs with) {
      return emit(part, std::move(from), {}, std::move(with));
    });
  if (op.random) {
    const size_t site = this->site();
    if (site >= random_sites)
      throw fault("{}: random ops must be among the first {} ops of a block", op.id, random_sites);
    attrs.list.push_back({"site", static_cast<int64_t>(site), 0});
  }
  const Id from = in.empty() ? 0 : in[0];
  const std::vector<Id> made = block_.graph.emit(op, std::move(in), std::move(attrs));
  if (op.random && (made.size() != 1 || !same(shape(made[0]), shape(from))))
    throw fault("{}: the output of a random op must have the shape of input 0", op.id);
  return made;
}

size_t Tracing::site() const {
  size_t site = 0;
  for (const Node& node : block_.graph.nodes) site += node.op->counts_as;
  return site;
}

void Tracing::refuse_field(const std::string& name) const {
  std::string names = "tokens, labels";
  for (const Field& f : how_.offered.fields) names += ", " + f.name;
  throw Error(name.empty() ? Exit::environment : Exit::usage,
              fmt::format("the batch has no `{}`: {} provides {}", printable(name), how_.offered.by, names),
              "choose a source that provides it ([data] plugin), or another model");
}

}  // namespace eng
