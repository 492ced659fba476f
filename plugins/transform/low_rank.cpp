// SPDX-License-Identifier: Apache-2.0
// Low-rank adaptation (Hu et al. 2021): beside a linear map y = W x + b runs a path of its own,
// y + alpha / rank * B A x, with A (rank, inputs) and B (outputs, rank). B begins as zero, so the model begins as it
// was. Beside stacked experts, one matrix of a parameter for each, every expert has a path of its own, with the tensors
// of PEFT's target_parameters: A (experts * rank, inputs), one expert after the other, and B (outputs, rank * experts),
// in which experts change fastest. The transform is called `lora`; `low_rank` is its older name. With `dora`, the rows
// of W + alpha / rank * B A have trained lengths (Liu et al. 2024): magnitude.hpp.
#include "../common/decoder/expert_ops.hpp"
#include "../common/model.hpp"
#include "../common/plugin.hpp"
#include "engine/transform.h"
#include "magnitude.hpp"

// clang-format off
#define LORA_OPTIONS \
  "[provides.options]\n" \
  "rank = { type = 'int', default = 8, min = 1, help = 'width of the path' }\n" \
  "ranks = { type = 'strings', default = [], help = 'other ranks for some maps: \"PATTERN=RANK\", the first pattern that matches the name of the map applies' }\n" \
  "alpha = { type = 'float', above = 0, help = 'the path is scaled by alpha / rank; if absent, as the rank of the map' }\n" \
  "rslora = { type = 'bool', default = false, help = 'the path is scaled by alpha / sqrt(rank) instead' }\n" \
  "dora = { type = 'bool', default = false, help = 'the rows of W + path have trained lengths, which begin as they are (DoRA)' }\n" \
  "dropout = { type = 'float', default = 0.0, min = 0, max = 0.99, help = 'probability with which an input of the path is dropped in training' }\n" \
  "init = { type = 'string', default = 'kaiming', choices = ['kaiming', 'normal'], help = 'of A: uniform up to 1 / sqrt(inputs), or normal with deviation 1 / rank' }\n" \
  "freeze = { type = 'bool', default = true, help = 'the parameters of the model itself keep their values' }\n" \
  "export = { type = 'bool', default = false, help = '`engine ckpt export` writes the path, too, under its own names' }\n"

ENG_DESCRIPTION(R"([plugin]
id = 'eng.low_rank'
name = 'Low-rank adaptation'
version = '0.3.0'
license = 'Apache-2.0'
summary = 'a trained low-rank path beside linear maps'

[[provides]]
kind = ')" ENG_TRANSFORM_DRAFT R"('
name = 'lora'
summary = 'adds a trained low-rank path to the linear maps and the stacked experts of targets (LoRA)'

)" LORA_OPTIONS R"(
[[provides]]
kind = ')" ENG_TRANSFORM_DRAFT R"('
name = 'low_rank'
summary = 'the older name of lora'

)" LORA_OPTIONS R"(
[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'low_rank'
devices = ['cpu', 'reference']
constants = ['eng.low_rank.row_norm/1']

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'
)")
// clang-format on

namespace {

// An op of the mamba plugin. Its last inputs, the reduced time step and the matrix that makes delta of it, only let its
// backward compute delta again. Without them it keeps delta.
constexpr const char* selective_scan = "eng.mamba.selective_scan/1";
constexpr uint32_t scan_low = 7, scan_matrix = 8;

// `*` is any text, `?` one character.
bool matches(const char* pattern, const char* text) {
  if (*pattern == '*') return matches(pattern + 1, text) || (*text && matches(pattern, text + 1));
  return *pattern == *text ? !*text || matches(pattern + 1, text + 1)
                           : *pattern == '?' && *text && matches(pattern + 1, text + 1);
}

class LowRank {
 public:
  LowRank(const eng_options* options, eng_error* error) {
    const model::Reader read(options, error);
    rank_ = read.size("rank");
    alpha_ = read.real_or("alpha", 0);
    root_ = read.flag("rslora");
    dropout_ = read.real("dropout");
    dora_ = read.flag("dora");
    normal_ = read.text("init") == "normal";
    freeze_ = read.flag("freeze"), export_ = read.flag("export");
    for (const std::string& text : strings(options, "ranks")) read_rank(text);
    const std::vector<std::string> targets = strings(options, "targets");
    if (targets.empty())
      model::invalid("it needs targets: \"all-linear\", or patterns of linear maps such as \"*.q_proj\"");
    all_ = std::find(targets.begin(), targets.end(), "all-linear") != targets.end();
    if (all_ && targets.size() > 1) model::invalid("\"all-linear\" stands alone in targets: it names every linear map");
  }

  void apply(eng_build* b, const eng_transform_call& call, eng_id* out) const {
    const std::string op = call.op;
    if (op == selective_scan && call.n_in > scan_matrix && reads_targeted(call, scan_matrix)) {
      std::vector<eng_id> in(call.in, call.in + call.n_in);
      in[scan_low] = in[scan_matrix] = 0;
      b->api->emit(b, selective_scan, in.data(), call.n_in, out, call.n_out, call.attrs, call.n_attrs, nullptr);
      return;
    }
    const bool relu = op == ENG_OP_LINEAR_RELU, linear = relu || op == ENG_OP_LINEAR;
    const bool layer = call.block > 0 && call.block + 1 < call.blocks;
    if (all_ && !(linear && layer && reads_targeted(call, 1))) return;
    const eng_transform_param& weight = matrix_of(call);
    const std::string name = weight.name;
    if (op == MOE_OP_LINEAR && weight.input == 1) return beside_experts(b, call, weight, out);
    // An op that also reads the weight would not see the path.
    if (!linear || weight.input != 1)
      model::invalid(name + " is read by " + op + ": a low-rank path stands for the weight of " ENG_OP_LINEAR " alone");
    const int64_t rows = weight.shape->dims[0], columns = weight.shape->dims[1];
    const std::string map = map_of(name);
    const int64_t rank = rank_of(map, rows, columns);
    const uint32_t flags = flags_of(weight);
    const auto [down, up] = declare(b, map, {rank, columns}, {rows, rank}, flags, rank);
    const double scale = scale_of(rank);
    const eng_id x = call.in[0], w = call.in[1], bias = call.n_in > 2 ? call.in[2] : 0;
    eng_id sum = 0;
    if (dora_) {
      // In 16 bits a length would be off by up to 0.4 %. The engine gives it its first value: that of its row.
      const eng_id m =
          model::param(b, map + ".lora_magnitude_vector", {rows}, flags | ENG_PARAM_FP32, model::constant(1.0));
      sum = decomposed(b, {x, w, bias, down, up, m, scale});
    } else {
      const eng_id y = eng_linear(b, x, w, bias);  // (..., rows)
      sum = eng_add(b, y, path(b, eng_dropout(b, x, dropout_), down, up, scale));
    }
    out[0] = relu ? eng_activation(b, sum, ENG_ACT_RELU) : sum;
  }

  // Other transforms' parameters are left as they are.
  void flags(const eng_transform_param& param, uint32_t& io) const {
    if (freeze_ && !*param.added_by) io |= ENG_PARAM_FROZEN;
  }

 private:
  static std::string map_of(const std::string& name) {
    return name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
  }
  double scale_of(int64_t rank) const {
    const double divisor = static_cast<double>(rank), alpha = alpha_ > 0 ? alpha_ : divisor;
    return alpha / (root_ ? std::sqrt(divisor) : divisor);
  }
  uint32_t flags_of(const eng_transform_param& weight) const {
    return ENG_PARAM_OPTIONAL | (export_ ? 0u : ENG_PARAM_NOT_EXPORTED) | (weight.flags & ENG_PARAM_FP32);
  }
  // A and B of these dimensions.
  std::pair<eng_id, eng_id> declare(eng_build* b, const std::string& map, const std::vector<int64_t>& down,
                                    const std::vector<int64_t>& up, uint32_t flags, int64_t rank) const {
    const model::Init init = normal_ ? model::normal(1.0 / static_cast<double>(rank))
                                     : model::uniform(1.0 / std::sqrt(static_cast<double>(down[1])));
    const eng_id a = model::param(b, map + ".lora_A.weight", down, flags, init);
    return {a, model::param(b, map + ".lora_B.weight", up, flags, model::constant(0.0))};
  }
  // The path of each expert beside a product of the rows of experts: eng.moe.linear/1 with their parts of A and B.
  void beside_experts(eng_build* b, const eng_transform_call& call, const eng_transform_param& weight,
                      eng_id* out) const {
    const std::string name = weight.name, map = map_of(name);
    if (dora_ || dropout_ > 0)
      model::invalid(name + " is a stack of experts, for which PEFT has no " + (dora_ ? "DoRA" : "dropout") + "; set " +
                     (dora_ ? "dora = false" : "dropout = 0") +
                     ", or give experts an entry of [[transforms]] of their own");
    const int64_t* const dims = weight.shape->dims;  // (E, rows, columns)
    const int64_t experts = dims[0], rows = dims[1], columns = dims[2], rank = rank_of(map, rows, columns);
    const auto [down, up] = declare(b, map, {experts * rank, columns}, {rows, rank * experts}, flags_of(weight), rank);
    const int64_t first[] = {experts, rank, columns}, second[] = {rows, rank, experts};
    const eng_id a = eng_reshape(b, down, 0, first, 3);
    const eng_id turned = eng_transpose(b, eng_reshape(b, up, 0, second, 3), 0, 2);  // (E, rank, rows)
    const eng_id each = eng_transpose(b, turned, 1, 2);                              // (E, rows, rank)
    const auto product = [&](eng_id x, eng_id w, bool gathers) {
      const eng_id in[] = {x, w, call.in[2], call.n_in > 4 && gathers ? call.in[3] : 0,
                           call.n_in > 4 && gathers ? call.in[4] : 0};
      return eng_emit1(b, MOE_OP_LINEAR, in, in[3] ? 5 : 3, nullptr, 0);
    };
    const eng_id y = product(call.in[0], call.in[1], true);
    const eng_id narrow = eng_scale(b, product(call.in[0], a, true), scale_of(rank));
    out[0] = eng_add(b, y, product(narrow, each, false));
  }
  static eng_id path(eng_build* b, eng_id x, eng_id down, eng_id up, double scale) {  // (..., rows)
    return eng_linear(b, eng_scale(b, eng_linear(b, x, down, 0), scale), up, 0);
  }
  struct Decomposed {
    eng_id x, w, bias, down, up, m;
    double scale;
  };
  // W' x + bias, W' having the rows of W + scale B A with the lengths m. With dropout, as in PEFT, the input is dropped
  // for all that differs from W: W x + bias + (W' - W) dropped(x).
  eng_id decomposed(eng_build* b, const Decomposed& d) const {
    const eng_attr attr = {"scale", 0, d.scale};
    const eng_id matrices[3] = {d.w, d.down, d.up};
    const eng_id norm = eng_emit1(b, DORA_OP_ROW_NORM, matrices, 3, &attr, 1);  // (rows)
    const bool drops = dropout_ > 0;
    const eng_id x = eng_dropout(b, d.x, dropout_), y = eng_linear(b, x, d.w, 0);  // (..., rows)
    const eng_id in[4] = {eng_add(b, y, path(b, x, d.down, d.up, d.scale)), d.m, norm, drops ? 0 : d.bias};
    const eng_id turned = eng_emit1(b, DORA_OP_MAGNITUDE, in, 4, nullptr, 0);
    return drops ? eng_add(b, eng_add(b, eng_linear(b, d.x, d.w, d.bias), eng_scale(b, y, -1.0)), turned) : turned;
  }
  // The targeted matrix; without one, the first targeted parameter.
  static const eng_transform_param& matrix_of(const eng_transform_call& call) {
    const eng_transform_param *first = call.params, *last = first + call.n_params;
    const auto* found = std::find_if(first, last, [](const auto& p) { return p.targeted && p.shape->ndim == 2; });
    return found != last ? *found : *std::find_if(first, last - 1, [](const auto& p) { return p.targeted != 0; });
  }
  // True if this input is a matrix of the model that a target names.
  static bool reads_targeted(const eng_transform_call& call, uint32_t input) {
    return std::any_of(call.params, call.params + call.n_params, [&](const eng_transform_param& p) {
      return p.input == input && p.targeted && !*p.added_by && p.shape->ndim == 2;
    });
  }
  static std::vector<std::string> strings(const eng_options* options, const char* key) {
    uint32_t count = 0;
    options->get_count(options, key, &count, nullptr);
    std::vector<std::string> out;
    for (uint32_t i = 0; i < count; ++i) {
      const char* text = "";
      options->get_string_at(options, key, i, &text, nullptr);
      out.push_back(text);
    }
    return out;
  }
  void read_rank(const std::string& text) {
    const size_t at = text.rfind('=');
    const std::string digits = at == std::string::npos ? "" : text.substr(at + 1);
    const bool number =
        !digits.empty() && digits.size() < 8 && digits.find_first_not_of("0123456789") == std::string::npos;
    if (at == 0 || !number || std::stoll(digits) < 1)
      model::invalid("ranks has \"" + text + "\"; it must be PATTERN=RANK, for example \"*.down_proj=16\"");
    ranks_.emplace_back(text.substr(0, at), std::stoll(digits));
  }
  int64_t rank_of(const std::string& map, int64_t rows, int64_t columns) const {
    int64_t rank = rank_;
    const auto same = [&](const auto& one) { return matches(one.first.c_str(), map.c_str()); };
    const auto found = std::find_if(ranks_.begin(), ranks_.end(), same);
    if (found != ranks_.end()) rank = found->second;
    if (rank > std::min(rows, columns))
      model::invalid("rank is " + std::to_string(rank) + ", but " + map + " is " + std::to_string(rows) + " x " +
                     std::to_string(columns) + "; `ranks` gives single maps another one");
    return rank;
  }

  int64_t rank_ = 0;
  std::vector<std::pair<std::string, int64_t>> ranks_;  // patterns of maps
  double alpha_ = 0, dropout_ = 0;                      // alpha 0: as the rank
  bool root_ = false, dora_ = false, all_ = false, normal_ = false, freeze_ = true, export_ = false;
};

eng_status create(const eng_options* options, void** self, eng_error* error) {
  return common::guarded(error, [&] { *self = new LowRank(options, error); });
}

void destroy(void* self) {
  delete static_cast<LowRank*>(self);
}

eng_status apply(void* self, eng_build* b, const eng_transform_call* call, eng_id* out, eng_error* error) {
  return common::guarded(error, [&] {
    static_cast<LowRank*>(self)->apply(b, *call, out);
    return b->api->status(b, error);
  });
}

eng_status flags(void* self, const eng_transform_param* param, uint32_t* io, eng_error* error) {
  return common::guarded(error, [&] { static_cast<LowRank*>(self)->flags(*param, *io); });
}

constexpr eng_transform table = {.struct_size = sizeof(eng_transform),
                                 .minor = 0,
                                 .create = create,
                                 .destroy = destroy,
                                 .apply = apply,
                                 .flags = flags,
                                 .states = nullptr,
                                 .update = nullptr};

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const common::Asked asked{kind, name};
  if (asked(ENG_OPS_KIND, "low_rank")) return &dora::ops;
  if (asked(ENG_KERNELS_KIND, "cpu") || asked(ENG_KERNELS_KIND, "reference")) return &dora::kernels;
  return asked(ENG_TRANSFORM_KIND, "lora") || asked(ENG_TRANSFORM_KIND, "low_rank") ? &table : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
