// SPDX-License-Identifier: Apache-2.0
// Low-rank adaptation (Hu et al. 2021): beside a linear map y = W x + b runs a path of its own,
// y + alpha / rank * B A x, with A (rank, inputs) and B (outputs, rank). B begins as zero, so the model begins as it
// was.
#include "../common/model.hpp"
#include "../common/plugin.hpp"
#include "engine/transform.h"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.low_rank'
name = 'Low-rank adaptation'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a trained low-rank path beside linear maps'

[[provides]]
kind = ')" ENG_TRANSFORM_DRAFT R"('
name = 'low_rank'
summary = 'adds a trained low-rank path to the linear maps of targets (LoRA)'

[provides.options]
rank = { type = 'int', default = 8, min = 1, help = 'width of the path' }
alpha = { type = 'float', above = 0, help = 'the path is scaled by alpha / rank; as rank if absent' }
dropout = { type = 'float', default = 0.0, min = 0, max = 0.99, help = 'probability with which an input of the path is dropped in training' }
init = { type = 'string', default = 'kaiming', choices = ['kaiming', 'normal'], help = 'of A: uniform up to 1 / sqrt(inputs), or normal with deviation 1 / rank' }
freeze = { type = 'bool', default = true, help = 'the parameters of the model itself keep their values' }
export = { type = 'bool', default = false, help = '`engine ckpt export` writes the path, too, under its own names' }
)")
// clang-format on

namespace {

class LowRank {
 public:
  LowRank(const eng_options* options, eng_error* error) {
    const model::Reader read(options, error);
    rank_ = read.size("rank");
    scale_ = read.real_or("alpha", static_cast<double>(rank_)) / static_cast<double>(rank_);
    dropout_ = read.real("dropout");
    normal_ = read.text("init") == "normal";
    freeze_ = read.flag("freeze"), export_ = read.flag("export");
    uint32_t targets = 0;
    options->get_count(options, "targets", &targets, nullptr);
    if (!targets) model::invalid("it needs targets: patterns of linear maps, for example [\"*.q_proj\", \"*.v_proj\"]");
  }

  void apply(eng_build* b, const eng_transform_call& call, eng_id* out) const {
    const eng_transform_param& weight = matrix_of(call);
    const std::string op = call.op, name = weight.name;
    const bool relu = op == ENG_OP_LINEAR_RELU;
    // An op that also reads the weight would not see the path.
    if ((!relu && op != ENG_OP_LINEAR) || weight.input != 1)
      model::invalid(name + " is read by " + op + ": a low-rank path stands for the weight of " ENG_OP_LINEAR " alone");
    const int64_t rows = weight.shape->dims[0], columns = weight.shape->dims[1];
    if (rank_ > std::min(rows, columns))
      model::invalid("rank is " + std::to_string(rank_) + ", but " + name + " is " + std::to_string(rows) + " x " +
                     std::to_string(columns));
    const std::string map = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
    const uint32_t flags =
        ENG_PARAM_OPTIONAL | (export_ ? 0u : ENG_PARAM_NOT_EXPORTED) | (weight.flags & ENG_PARAM_FP32);
    const double limit = 1.0 / std::sqrt(static_cast<double>(columns));
    const eng_attr uniform[2] = {{"low", 0, -limit}, {"high", 0, limit}},
                   normal[2] = {{"mean", 0, 0.0}, {"std", 0, 1.0 / static_cast<double>(rank_)}};
    const eng_attr zero = {.key = "value", .i = 0, .f = 0.0};
    const eng_id down = matrix(b, map + ".lora_A.weight", rank_, columns, flags,
                               normal_ ? ENG_OP_INIT_NORMAL : ENG_OP_INIT_UNIFORM, normal_ ? normal : uniform, 2);
    const eng_id up = matrix(b, map + ".lora_B.weight", rows, rank_, flags, ENG_OP_INIT_CONSTANT, &zero, 1);
    const eng_id x = call.in[0], y = eng_linear(b, x, call.in[1], call.n_in > 2 ? call.in[2] : 0);  // (..., rows)
    const eng_id low = eng_scale(b, eng_linear(b, eng_dropout(b, x, dropout_), down, 0), scale_);   // (..., rank)
    const eng_id path = eng_linear(b, low, up, 0);                                                  // (..., rows)
    const eng_id sum = eng_add(b, y, path);
    out[0] = relu ? eng_activation(b, sum, ENG_ACT_RELU) : sum;
  }

  // Other transforms' parameters are left as they are.
  void flags(const eng_transform_param& param, uint32_t& io) const {
    if (freeze_ && !*param.added_by) io |= ENG_PARAM_FROZEN;
  }

 private:
  // The targeted matrix; without one, the first targeted parameter.
  static const eng_transform_param& matrix_of(const eng_transform_call& call) {
    const eng_transform_param *first = call.params, *last = first + call.n_params;
    const auto* found = std::find_if(first, last, [](const auto& p) { return p.targeted && p.shape->ndim == 2; });
    return found != last ? *found : *std::find_if(first, last - 1, [](const auto& p) { return p.targeted != 0; });
  }
  static eng_id matrix(eng_build* b, const std::string& name, int64_t rows, int64_t columns, uint32_t flags,
                       const char* init_op, const eng_attr* init, uint32_t n_init) {
    const int64_t dims[2] = {rows, columns};
    const eng_param param = {.struct_size = sizeof(eng_param),
                             .flags = flags,
                             .name = name.c_str(),
                             .init_op = init_op,
                             .init = init,
                             .dims = dims,
                             .n_init = n_init,
                             .ndim = 2};
    eng_id id = 0;
    b->api->param(b, &param, &id, nullptr);
    return id;
  }

  int64_t rank_ = 0;
  double scale_ = 1, dropout_ = 0;
  bool normal_ = false, freeze_ = true, export_ = false;
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
                                 .flags = flags};

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  return common::Asked{kind, name}(ENG_TRANSFORM_KIND, "low_rank") ? &table : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
