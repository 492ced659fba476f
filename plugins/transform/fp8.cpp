// SPDX-License-Identifier: Apache-2.0
// Products in 8 bits (Micikevicius et al. 2022): linear maps of layers multiply inputs and weights in e4m3 forwards,
// and gradients in e5m2 backwards. The scale of a tensor is that of its own largest value (current scaling), or of
// those that it had in the last steps, which are a state of each map (delayed scaling).
#include <algorithm>
#include <map>
#include <set>

#include "../common/model.hpp"
#include "../common/plugin.hpp"
#include "engine/ops_fp8.h"
#include "engine/transform.h"
#include "fp8_ops.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.fp8'
name = 'Products in fp8'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'linear maps of layers multiply in e4m3, their gradients in e5m2'

[[provides]]
kind = ')" ENG_TRANSFORM_DRAFT R"('
name = 'fp8'
summary = 'linear maps of layers multiply values of 8 bits: e4m3 forwards, e5m2 in gradients'
devices = ['cpu', 'reference', 'cuda']

[provides.options]
recipe = { type = 'string', default = 'current', choices = ['current', 'delayed'], help = 'where scales come from. current: the largest value of the tensor itself; delayed: those of the last steps' }
history = { type = 'int', default = 1024, min = 1, max = 65536, help = 'delayed: the steps whose largest values are kept' }
amax = { type = 'string', default = 'max', choices = ['max', 'most_recent'], help = 'delayed: the value that decides, the largest of the history or that of the last step' }
gradients = { type = 'string', default = 'e5m2', choices = ['e5m2', 'e4m3'], help = 'the format of gradients of outputs; inputs and weights are always e4m3' }
margin = { type = 'int', default = 0, min = 0, max = 64, help = 'scales are divided by 2 to this power: room above the largest value' }
exclude = { type = 'strings', default = [], help = 'patterns of maps that stay as they are' }

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'fp8'
devices = ['cpu', 'reference', 'cuda']
least_arch = 89
)")
// clang-format on

namespace {

// `*` is any text, `?` one character.
bool matches(const char* pattern, const char* text) {
  if (*pattern == '*') return matches(pattern + 1, text) || (*text && matches(pattern, text + 1));
  return *pattern == *text ? !*text || matches(pattern + 1, text + 1)
                           : *pattern == '?' && *text && matches(pattern + 1, text + 1);
}

class Fp8 {
 public:
  Fp8(const eng_options* options, eng_error* error) {
    const model::Reader read(options, error);
    gradients_ = read.text("gradients") == "e4m3" ? ENG_FP8_E4M3 : ENG_FP8_E5M2;
    margin_ = read.integer("margin");
    delayed_ = read.text("recipe") == "delayed";
    recent_ = read.text("amax") == "most_recent";
    history_ = recent_ && !read.given("history") ? 1 : read.integer("history");
    for (const char* key : {"history", "amax"})
      if (!delayed_ && read.given(key)) model::invalid(std::string(key) + " has no effect with recipe = \"current\"");
    exclude_ = read.texts("exclude");
    const std::vector<std::string> targets = read.texts("targets");
    named_ = !targets.empty() && targets != std::vector<std::string>{"all-linear"};
  }

  void apply(eng_build* b, const eng_transform_call& call, eng_id* out) const {
    const eng_transform_param* const weight = replaced(call);
    if (!weight) return;
    const eng_id in[4] = {call.in[0], call.in[1], call.n_in > 2 ? call.in[2] : 0, call.n_states ? call.states[0] : 0};
    const eng_attr attrs[] = {{"gradients", gradients_, 0}, {"margin", margin_, 0}};
    const eng_id y = eng_emit1(b, ENG_OP_FP8_LINEAR, in, in[3] ? 4 : call.n_in > 2 ? 3 : 2, attrs, 2);  // (..., rows)
    out[0] = is(call, ENG_OP_LINEAR_RELU) ? eng_activation(b, y, ENG_ACT_RELU) : y;
    ++mapped_[weight->name];
  }

  // That of delayed scaling.
  void states(const eng_transform_call& call, eng_policy_state* out, uint32_t cap, uint32_t* n) const {
    const eng_transform_param* const weight = delayed_ ? replaced(call) : nullptr;
    if (weight && !cap) model::invalid("the host has no room for a state");
    *n = weight ? 1 : 0;
    if (!weight) return;
    const auto before = mapped_.find(weight->name);
    const std::string own = before == mapped_.end() ? "" : "." + std::to_string(before->second + 1);
    out->name = names_.insert(weight->name + own).first->c_str();
    out->shape = {ENG_F32, 2, {3, 2 + history_}};
  }

  void update(eng_build* b, const eng_policy_update& u) const {
    const eng_attr attrs[] = {
        {"history", history_, 0}, {"recent", recent_, 0}, {"gradients", gradients_, 0}, {"margin", margin_, 0}};
    uint32_t rank = 0, ranks = 1;
    b->api->world(b, &rank, &ranks, nullptr);
    eng_id in[2] = {u.states[0], 0}, out = u.states[0];
    if (ranks > 1) {
      const eng_id mine = eng_emit1(b, ENG_OP_FP8_COLLECT, in, 1, attrs, 1);  // (rows)
      const eng_attr group = {"group", 1, 0};
      in[1] = eng_emit1(b, ENG_OP_ALL_GATHER, &mine, 1, &group, 1);
    }
    b->api->emit(b, ENG_OP_FP8_ROLL, in, ranks > 1 ? 2 : 1, &out, 1, attrs, 4, nullptr);
  }

 private:
  static bool is(const eng_transform_call& call, const char* op) { return std::strcmp(call.op, op) == 0; }
  // The weight of a call that is replaced, or null.
  const eng_transform_param* replaced(const eng_transform_call& call) const {
    const bool linear = is(call, ENG_OP_LINEAR) || is(call, ENG_OP_LINEAR_RELU);
    if (!linear) need_unmapped(call);
    const eng_transform_param* const weight = weight_of(call);
    if (!weight || excluded(weight->name)) return nullptr;
    const std::string why = refusal(call, *weight, linear);
    if (named_ && !why.empty()) model::invalid(std::string(weight->name) + " " + why);
    return !why.empty() || (!named_ && (*weight->added_by || stays(weight->name))) ? nullptr : weight;
  }
  // The parameter that a linear map multiplies with. Of other ops, the targeted parameter, if targets name it.
  const eng_transform_param* weight_of(const eng_transform_call& call) const {
    const bool linear = std::strncmp(call.op, "eng.linear", 10) == 0;
    const auto *end = call.params + call.n_params, *found = std::find_if(call.params, end, [&](const auto&p) {
      return p.targeted && p.shape->ndim == 2 && (linear ? p.input == 1 : named_);
    });
    return found == end ? nullptr : found;
  }
  // "" or why this call cannot multiply in 8 bits.
  static std::string refusal(const eng_transform_call& call, const eng_transform_param& weight, bool linear) {
    if (call.block == 0 || call.block + 1 >= call.blocks)
      return "is no map of a layer: embeddings and heads stay as they are";
    if (!linear) return std::string("is read by ") + call.op + ": fp8 stands for " ENG_OP_LINEAR " alone";
    return weight.flags & ENG_PARAM_FP32 ? "must stay f32, as its model says" : "";
  }
  // Maps that stay as they are unless targets name them: those that choose experts, where a small error changes who
  // computes, and the one that mamba's scan reads, too, to compute its time step again in the backward.
  static bool stays(const char* name) {
    return matches("*.gate.weight", name) || matches("*.router.weight", name) || matches("*.dt_proj.weight", name);
  }
  // An op that also reads the weight of a map would compute with other values than the map.
  void need_unmapped(const eng_transform_call& call) const {
    for (uint32_t k = 0; k < call.n_params; ++k)
      if (mapped_.count(call.params[k].name))
        model::invalid(std::string(call.params[k].name) + " is read by " + call.op +
                       ", too, which would not see values of 8 bits: name the map in `exclude`");
  }
  bool excluded(const std::string& name) const {
    const std::string map = name.substr(0, name.rfind('.'));
    return std::any_of(exclude_.begin(), exclude_.end(), [&](const std::string& pattern) {
      return matches(pattern.c_str(), name.c_str()) || matches(pattern.c_str(), map.c_str());
    });
  }

  int64_t gradients_ = ENG_FP8_E5M2, margin_ = 0, history_ = 1;
  bool delayed_ = false, recent_ = false;
  bool named_ = false;  // targets name single maps
  std::vector<std::string> exclude_;
  mutable std::map<std::string, int> mapped_;  // weights of maps that were replaced, and by how many
  mutable std::set<std::string> names_;        // of states
};

eng_status create(const eng_options* options, void** self, eng_error* error) {
  return common::guarded(error, [&] { *self = new Fp8(options, error); });
}

void destroy(void* self) {
  delete static_cast<Fp8*>(self);
}

eng_status apply(void* self, eng_build* b, const eng_transform_call* call, eng_id* out, eng_error* error) {
  return common::guarded(error, [&] {
    static_cast<Fp8*>(self)->apply(b, *call, out);
    return b->api->status(b, error);
  });
}

eng_status states(void* self, const eng_transform_call* call, eng_policy_state* out, uint32_t cap, uint32_t* n,
                  eng_error* error) {
  return common::guarded(error, [&] { static_cast<Fp8*>(self)->states(*call, out, cap, n); });
}

eng_status update(void* self, eng_build* b, const eng_policy_update* update, eng_error* error) {
  return common::guarded(error, [&] {
    static_cast<Fp8*>(self)->update(b, *update);
    return b->api->status(b, error);
  });
}

constexpr eng_transform table = {.struct_size = sizeof(eng_transform),
                                 .minor = 0,
                                 .create = create,
                                 .destroy = destroy,
                                 .apply = apply,
                                 .flags = nullptr,
                                 .states = states,
                                 .update = update};

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const common::Asked asked{kind, name};
  return asked(ENG_TRANSFORM_KIND, "fp8") ? static_cast<const void*>(&table)
         : asked(ENG_OPS_KIND, "fp8")     ? &fp8::ops
                                          : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
