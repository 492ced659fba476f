// SPDX-License-Identifier: Apache-2.0
// The loss "preference", of pairs of answers or of single ones: pairs.hpp has the formulas.
#include <array>

#include "../common/model.hpp"
#include "../common/plugin.hpp"
#include "engine/loss.h"
#include "ops.hpp"
#include "pairs.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.preference'
name = 'Preferences'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'losses of answers that people prefer'

[[provides]]
kind = ')" ENG_LOSS_DRAFT R"('
name = 'preference'
summary = 'of two answers, the first is preferred: DPO, IPO, SimPO, ORPO; or each answer is good or bad: KTO'

[provides.options]
kind = { type = 'string', default = 'dpo', choices = ['dpo', 'ipo', 'simpo', 'orpo', 'kto'], help = 'the loss; dpo, ipo and kto compare with a reference model, which [reference] names' }
beta = { type = 'float', above = 0, help = 'how much a difference of log-probabilities counts; 0.1 if absent, 2 for simpo. For orpo the weight of the odds ratio' }
margin = { type = 'float', min = 0, help = 'simpo: by how much the preferred answer must be ahead; 0.5 if absent' }
label_smoothing = { type = 'float', default = 0.0, min = 0, max = 0.5, help = 'dpo, simpo: the share of pairs that are taken to be the wrong way round' }
average = { type = 'bool', default = false, help = 'dpo, ipo: means over the tokens of an answer in place of sums; simpo and orpo always have means' }
desirable_weight = { type = 'float', above = 0, help = 'kto: weight of good answers; 1 if absent' }
undesirable_weight = { type = 'float', above = 0, help = 'kto: weight of bad answers; 1 if absent' }
nll = { type = 'float', min = 0, help = 'weight of the mean negative log-probability of the preferred answer; 1 for orpo and 0 for the others if absent' }

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'preference'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'
)")
// clang-format on

namespace {

using preference::Rule;

struct Preference {
  std::string kind;
  Rule rule;
  double nll = 0, good = 1, bad = 1;

  Preference(const eng_options* options, eng_error* error) {
    const model::Reader read(options, error);
    kind = read.text("kind");
    const std::vector<std::string> kinds = {"dpo", "ipo", "simpo", "orpo", "kto"};  // as preference::Kind
    rule.kind = std::find(kinds.begin(), kinds.end(), kind) - kinds.begin();
    const bool simpo = rule.kind == preference::simpo, orpo = rule.kind == preference::orpo;
    rule.beta = read.real_or("beta", simpo ? 2.0 : 0.1);
    if (read.given("margin") && !simpo) model::invalid("margin is for kind = \"simpo\" only");
    rule.margin = simpo ? read.real_or("margin", 0.5) : 0.0;
    rule.smoothing = read.real("label_smoothing");
    const bool kto = rule.kind == preference::kto;
    if (rule.smoothing > 0 && (orpo || kto || rule.kind == preference::ipo))
      model::invalid("label_smoothing is for kind = \"dpo\" and \"simpo\" only");
    rule.mean = simpo || orpo || read.flag("average");
    nll = read.real_or("nll", orpo ? 1.0 : 0.0);
    for (const char* key : {"desirable_weight", "undesirable_weight"})
      if (read.given(key) && !kto) model::invalid(std::string(key) + " is for kind = \"kto\" only");
    for (const char* key : {"average", "nll"})
      if (read.given(key) && kto) model::invalid(std::string(key) + " is not for kind = \"kto\"");
    good = read.real_or("desirable_weight", 1.0), bad = read.real_or("undesirable_weight", 1.0);
  }

  eng_id trace(eng_build* b, eng_id hidden, eng_id weight, eng_error* error) const {
    eng_desc shape{};
    if (b->api->shape(b, hidden, &shape, error) == ENG_OK && shape.dims[0] % 2)
      model::invalid(rule.kind == preference::kto
                         ? "a micro-batch holds two sequences for each answer: train.micro_batch must be even"
                         : "a micro-batch holds pairs of answers: train.micro_batch must be even");
    eng_id in[4] = {0, 0, 0, 0};
    b->api->batch(b, "labels", &in[1], error);
    // Only sums over answers are needed, so stored ones will do.
    if (rule.compares() && !(in[2] = eng_offered(b, "reference_logprobs"))) in[2] = eng_offered(b, "reference_sums");
    if (rule.compares() && !in[2] && !b->api->status(b, nullptr))
      model::invalid("the batch has no `reference_logprobs`, and kind = \"" + kind +
                     "\" compares with them: name a reference model, [reference] from, or choose data that provide "
                     "the field");
    const eng_id desirable = eng_offered(b, "desirable");
    if ((desirable != 0) != (rule.kind == preference::kto) && !b->api->status(b, nullptr))
      model::invalid(desirable
                         ? "the data are single answers ([data] unpaired), which kind = \"kto\" reads"
                         : "kind = \"kto\" needs the field `desirable`: [data] plugin = \"pairs\" provides it with "
                           "unpaired = true");
    in[0] = eng_label_logprob(b, hidden, weight, in[1]);
    // With weights, the loss is divided by their sum.
    const eng_id weights = eng_offered(b, "pair_weights");
    const uint32_t per = weights ? ENG_PER_LABEL : ENG_PER_PAIR;
    if (desirable) return trace_kto(b, {in[0], in[1], in[2], desirable, weights}, per, error);
    const eng_attr attrs[5] = {{"kind", rule.kind, 0},
                               {"beta", 0, rule.beta},
                               {"margin", 0, rule.margin},
                               {"smoothing", 0, rule.smoothing},
                               {"mean", rule.mean ? 1 : 0, 0}};
    in[3] = weights;
    eng_id made[6] = {};
    b->api->emit(b, PREFERENCE_OP_PAIRS, in, weights ? 4 : in[2] ? 3 : 2, made, 6, attrs, 5, error);
    const bool orpo = rule.kind == preference::orpo;
    const std::pair<std::string, double> terms[6] = {{orpo ? "odds_ratio" : kind, orpo ? rule.beta : 1.0},
                                                     {"nll", nll},
                                                     {"rewards.chosen", 0},
                                                     {"rewards.rejected", 0},
                                                     {"rewards.margin", 0},
                                                     {"rewards.accuracy", 0}};
    for (uint32_t k = 0; k < 6; ++k)
      b->api->term_per(b, made[k], terms[k].first.c_str(), terms[k].second, k < 2 ? per : ENG_PER_PAIR, error);
    return made[0];
  }

  eng_id trace_kto(eng_build* b, const std::array<eng_id, 5>& in, uint32_t per, eng_error* error) const {
    const eng_attr attrs[3] = {{"beta", 0, rule.beta}, {"good", 0, good}, {"bad", 0, bad}};
    eng_id made[3] = {};
    b->api->emit(b, PREFERENCE_OP_KTO, in.data(), in[4] ? 5 : 4, made, 3, attrs, 3, error);
    b->api->term_per(b, made[0], "kto", 1, per, error);
    b->api->term_per(b, made[1], "kl", 0, ENG_PER_PAIR, error);
    b->api->term_per(b, made[2], "rewards.accuracy", 0, ENG_PER_PAIR, error);
    return made[0];
  }
};

eng_status create(const eng_options* options, void** self, eng_error* error) {
  return common::guarded(error, [&] { *self = new Preference(options, error); });
}

void destroy(void* self) {
  delete static_cast<Preference*>(self);
}

eng_status trace(void* self, eng_build* b, eng_id hidden, eng_id weight, eng_id* out, eng_error* error) {
  return common::guarded(error, [&] {
    *out = static_cast<const Preference*>(self)->trace(b, hidden, weight, error);
    return b->api->status(b, error);
  });
}

const eng_loss loss = {sizeof(eng_loss), 1, create, destroy, trace};

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const common::Asked is{kind, name};
  if (is(ENG_LOSS_KIND, "preference")) return &loss;
  if (is(ENG_OPS_KIND, "preference")) return &preference::ops;
  return is(ENG_KERNELS_KIND, "cpu") || is(ENG_KERNELS_KIND, "reference") ? &preference::kernels : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
