// SPDX-License-Identifier: Apache-2.0
#include "session/model/reference.hpp"

#include <algorithm>

#include "engine/ops.h"
#include "session/data/stored_reference.hpp"

namespace eng {
namespace {

uint32_t number_of(const std::vector<Field>& fields, const std::string& name) {
  const auto at = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
  return static_cast<uint32_t>(at - fields.begin());
}

// The number of a parameter of the reference in `model`.
uint32_t adopt(Model& model, const Reference& reference, uint32_t p) {
  Parameter own = reference.model.params[p];
  if (reference.shares && reference.training && !model.params[p].frozen)
    throw Error(Exit::usage,
                fmt::format("the reference has the weights of the model itself, but {} is trained", own.name),
                "freeze them, as the transform lora does, or name the weights of the reference: reference.from");
  if (reference.shares) return p;
  own.name = "reference." + own.name;
  own.flags |= ENG_PARAM_FROZEN | ENG_PARAM_NOT_EXPORTED | of_reference;
  own.frozen = true;
  own.init.list.push_back({"stream", p, 0});  // that of the model's parameter: they begin alike
  model.params.push_back(std::move(own));
  return static_cast<uint32_t>(model.params.size() - 1);
}

// The head of the reference: the log-probabilities of the labels.
eng_status trace_logprobs(void*, eng_build* b, eng_id hidden, eng_id weight, eng_id* out, eng_error* error) {
  eng_id labels = 0;
  b->api->batch(b, "labels", &labels, error);
  *out = eng_label_logprob(b, hidden, weight, labels);
  return b->api->status(b, error);
}
constexpr eng_loss logprobs = {sizeof(eng_loss), 1, nullptr, nullptr, trace_logprobs};

// The cross-entropy is only there because a model must end in a loss.
eng_status trace_both(void*, eng_build* b, eng_id hidden, eng_id weight, eng_id* out, eng_error* error) {
  eng_id labels = 0;
  b->api->batch(b, "labels", &labels, error);
  eng_label_logprob(b, hidden, weight, labels);
  *out = eng_language_loss(b, hidden, weight, labels, 0, 0.0);
  return b->api->status(b, error);
}

}  // namespace

std::optional<Reference> trace_reference(const Config& config, const eng_model& table, const Precision& precision,
                                         bool runs, Offered& offered) {
  const Section &train = config.section("train"), &model = config.section("model"),
                &section = config.section("reference");
  const bool stored = section.has("store");
  if (stored && !section.has("from"))
    throw Error(Exit::usage, "[reference] store is set, and the reference is not named",
                "name it with reference.from, as when the file was computed");
  if (!section.has("from")) return std::nullopt;
  const Field field{stored ? reference_sums : "reference_logprobs", ENG_F32};
  if (number_of(offered.fields, field.name) < offered.fields.size())
    throw Error(Exit::usage,
                fmt::format("{} provides the field `{}`, which [reference] computes", offered.by, field.name),
                "remove [reference], or choose data without the field");
  if (stored) {
    offered.fields.push_back(field);
    return std::nullopt;
  }
  Reference out{trace_forward(model.string("plugin"), table, model, train.integer("micro_batch"),
                              train.integer("sequence_length"), precision.dtype(ENG_ROLE_ACT), runs, offered,
                              {"reference", 0, logprobs, nullptr}, precision.dtype(ENG_ROLE_STREAM)),
                field.name, section.string("from") == "base"};
  offered.fields.push_back(field);
  return out;
}

Loss logprobs_loss() {
  Loss out;
  out.name = "reference";
  out.table = {sizeof(eng_loss), 1, nullptr, nullptr, trace_both};
  return out;
}

void need_stored(const Model& model, const Config& config) {
  if (!config.section("reference").has("store") || number_of(model.fields, reference_sums) < model.fields.size())
    return;
  throw Error(Exit::usage, fmt::format("[reference] store has no effect: nothing reads its `{}`", reference_sums),
              "choose a [loss] that reads it, such as preference with kind = \"dpo\", or leave reference.store out");
}

void add_reference(Model& model, const Reference& reference) {
  const Model& from = reference.model;
  const uint32_t field = number_of(model.fields, reference.field);
  if (field == model.fields.size())
    throw Error(Exit::usage, fmt::format("[reference] has no effect: nothing reads its `{}`", reference.field),
                "choose a [loss] that reads it, or remove [reference]");
  model.fields.erase(model.fields.begin() + field);
  std::vector<uint32_t> params, fields;  // numbers in `model`, by those in `from`
  for (uint32_t p = 0; p < from.params.size(); ++p) params.push_back(adopt(model, reference, p));
  for (const Field& read : from.fields) {
    fields.push_back(number_of(model.fields, read.name));
    if (fields.back() == model.fields.size()) model.fields.push_back(read);
  }
  const Template& last = from.templates.at(from.blocks.back().tmpl);
  const eng_desc result = last.graph.value(last.outputs[0]).desc;
  const uint32_t end = model.blocks.back().tmpl, next = model.templates.rbegin()->first + 1;
  for (auto& [tmpl, t] : model.templates) {
    const auto place = static_cast<uint32_t>(t.inputs.size());
    for (Id id = 1; id <= t.graph.size(); ++id)
      if (Symbol& v = t.graph.change(id); v.kind == SymbolKind::batch) {
        if (v.index == field) v = {SymbolKind::input, v.desc, place}, t.beside = id;
        v.index -= v.kind == SymbolKind::batch && v.index > field;
      }
    if (!t.beside) t.beside = t.graph.add({SymbolKind::input, result, place});
    if (!same(t.graph.value(t.beside).desc, result))
      throw Error(Exit::environment, fmt::format("the reference gives {}", describe(result)));
    t.inputs.push_back(t.beside);
    if (tmpl != end) t.outputs.push_back(t.beside);
  }
  for (const auto& [tmpl, traced] : from.templates) {
    Template& t = model.templates[next + tmpl] = traced;
    t.tmpl = next + tmpl;
    for (Id id = 1; id <= t.graph.size(); ++id)
      if (Symbol& v = t.graph.change(id); v.kind == SymbolKind::batch) v.index = fields[v.index];
    for (Node& node : t.graph.nodes)
      if (node.op->random) node = {&op(ENG_OP_SCALE), {node.in[0]}, node.out, {{{"factor", 0, 1.0}}}};
  }
  std::vector<Block> blocks;
  for (const Block& block : from.blocks) {
    blocks.push_back({"reference." + block.name, next + block.tmpl, {}});
    for (uint32_t p : block.params) blocks.back().params.push_back(params[p]);
  }
  model.reference_blocks = blocks.size();
  model.blocks.insert(model.blocks.begin(), blocks.begin(), blocks.end());
}

std::string reference_line(const Model& model, const Config& config) {
  const Section& section = config.section("reference");
  if (number_of(model.fields, reference_sums) < model.fields.size() && section.has("store"))
    return fmt::format("log-probabilities in {}, from {}", section.string("store"), section.string("from"));
  if (!model.reference_blocks) return "";
  const std::string& from = section.string("from");
  if (from == "base") return "the model's own frozen weights, without transforms";
  int64_t n = 0;
  for (const Parameter& p : model.params) n += p.flags & of_reference ? count(p.desc) : 0;
  return fmt::format("{} parameters, frozen, from {}", n, from == "start" ? "the start of the run" : from);
}

}  // namespace eng
