// SPDX-License-Identifier: Apache-2.0
#include "muon.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../optim.hpp"
#include "neurons.hpp"
#include "orthogonal.hpp"

namespace muon {
namespace {

enum class Scale { rms, shape, none };

struct Muon {
  double momentum, matrix_rate, beta1, beta2, eps, weight_decay;
  int64_t nesterov;
  Orthogonal how;
  Scale scale;
  bool neurons;  // NorMuon
  double neuron_beta;
};

eng_status create_with(bool neurons, const eng_options* options, void** self, eng_error* error) {
  Muon m{};
  m.neurons = neurons;
  int32_t nesterov = 0;
  const char *scale = nullptr, *coefficients = nullptr, *products = nullptr;
  const struct {
    const char* key;
    double limit;
    const char* text;
    double* out;
  } numbers[] = {{"momentum", 1.0, "momentum must be at least 0 and below 1", &m.momentum},
                 {"matrix_rate", HUGE_VAL, "matrix_rate must be a finite number, at least 0", &m.matrix_rate},
                 {"beta1", 1.0, "beta1 must be at least 0 and below 1", &m.beta1},
                 {"beta2", 1.0, "beta2 must be at least 0 and below 1", &m.beta2},
                 {"eps", HUGE_VAL, "eps must be a finite number, at least 0", &m.eps},
                 {"weight_decay", HUGE_VAL, "weight_decay must be a finite number, at least 0", &m.weight_decay}};
  for (const auto& [key, limit, text, out] : numbers)
    if (eng_status s = read_below(options, key, limit, text, out, error)) return s;
  if (neurons)
    if (eng_status s = read_below(options, "neuron_beta", 1.0, "neuron_beta must be at least 0 and below 1",
                                  &m.neuron_beta, error))
      return s;
  if (eng_status s = options->get_bool(options, "nesterov", &nesterov, error)) return s;
  if (eng_status s = options->get_int(options, "steps", &m.how.steps, error)) return s;
  if (eng_status s = options->get_string(options, "scale", &scale, error)) return s;
  if (eng_status s = options->get_string(options, "coefficients", &coefficients, error)) return s;
  if (eng_status s = options->get_string(options, "products", &products, error)) return s;
  m.nesterov = nesterov != 0;
  m.scale = !std::strcmp(scale, "rms") ? Scale::rms : !std::strcmp(scale, "shape") ? Scale::shape : Scale::none;
  m.how.coefficients = !std::strcmp(coefficients, "polar_express") ? Coefficients::polar_express : Coefficients::jordan;
  m.how.f32 = !std::strcmp(products, "f32");
  Muon* made = new (std::nothrow) Muon(m);
  if (!made) return report(error, ENG_NO_MEMORY, "out of memory");
  *self = made;
  return ENG_OK;
}

template <bool neurons>
eng_status create(const eng_options* options, void** self, eng_error* error) {
  return create_with(neurons, options, self, error);
}

void destroy(void* self) {
  delete static_cast<Muon*>(self);
}

// True for matrices of the layers. Matrices that the model excludes from weight decay are not meant: these are numbers
// stored in a matrix, such as the decay rates of a state space model. In embedding tables and the head each row has its
// own meaning, so they are not meant either.
eng_status is_matrix(const eng_parameter* p, bool* out, eng_error* error) {
  const char* update = nullptr;
  if (eng_status s = p->options->get_string(p->options, "update", &update, error)) return s;
  const bool two = p->shape->ndim == 2 && p->shape->dims[0] > 0 && p->shape->dims[1] > 0;
  if (std::strcmp(update, "muon") == 0 && !two) {
    const std::string text = std::string("update = \"muon\" for ") + p->name + ", which is not a matrix";
    return report(error, ENG_INVALID, text.c_str());
  }
  const bool layer = p->block > 0 && p->block + 1 < p->blocks;
  const bool automatic =
      two && layer && p->shape->dims[0] > 1 && p->shape->dims[1] > 1 && !(p->flags & ENG_PARAM_NO_DECAY);
  *out = std::strcmp(update, "auto") == 0 ? automatic : std::strcmp(update, "muon") == 0;
  return ENG_OK;
}

eng_status of_matrices(void*, const eng_parameter* p, eng_state_shape* io, eng_error* error) {
  bool matrix = false;
  if (eng_status s = is_matrix(p, &matrix, error)) return s;
  io->kind = matrix ? ENG_STATE_ELEMENTS : ENG_STATE_NONE;
  io->whole = matrix;
  return ENG_OK;
}

eng_status of_neurons(void* self, const eng_parameter* p, eng_state_shape* io, eng_error* error) {
  if (eng_status s = of_matrices(self, p, io, error)) return s;
  if (io->kind != ENG_STATE_NONE) io->kind = ENG_STATE_SHAPED, io->ndim = 1, io->dims[0] = p->shape->dims[0];
  return ENG_OK;
}

eng_status of_others(void*, const eng_parameter* p, eng_state_shape* io, eng_error* error) {
  bool matrix = false;
  if (eng_status s = is_matrix(p, &matrix, error)) return s;
  io->kind = matrix ? ENG_STATE_NONE : ENG_STATE_ELEMENTS;
  return ENG_OK;
}

uint32_t count_states(const Muon& m) {
  return m.neurons ? 4 : 3;
}

eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  *n = count_states(*static_cast<Muon*>(self));
  if (cap < *n) return report(error, ENG_OUT_OF_RANGE, "muon has more states than the host has room for");
  out[0] = {"momentum_buffer", ENG_F32, 0, of_matrices};
  out[1] = {"exp_avg", ENG_F32, 0, of_others};
  out[2] = {"exp_avg_sq", ENG_F32, 0, of_others};
  if (*n > 3) out[3] = {"neuron_sq", ENG_F32, 0, of_neurons};
  return ENG_OK;
}

eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const Muon& m = *static_cast<Muon*>(self);
  return adam_scalars(m.beta1, m.beta2, k, out, cap, n, error);
}

// The factor of the orthogonal matrix; the learning rate is applied separately.
double factor(const Muon& m, int64_t rows, int64_t columns) {
  const auto M = static_cast<double>(rows), N = static_cast<double>(columns);
  switch (m.scale) {
    case Scale::rms:  // as large as an update of AdamW: Liu et al. 2025, "Muon is scalable for LLM training"
      return m.matrix_rate * 0.2 * std::sqrt(std::max(M, N));
    case Scale::shape:
      return m.matrix_rate * std::sqrt(std::max(1.0, M / N));
    default:
      return m.matrix_rate;
  }
}

eng_status update_matrices(const Muon& m, eng_build* build, const eng_update* run, double decay, eng_error* error) {
  if (run->stage == ENG_STAGE_WHOLE) {
    const eng_desc& shape = *run->ranges[0].parameter->shape;
    const double by = factor(m, shape.dims[0], shape.dims[1]);
    if (!m.neurons) return orthogonalize(m.how, by, build, run->grad, shape, error);
    if (eng_status s = orthogonalize(m.how, 1, build, run->grad, shape, error)) return s;
    // The norm is that of an orthogonal matrix of this shape, times the factor.
    const double norm = by * std::sqrt(static_cast<double>(std::min(shape.dims[0], shape.dims[1])));
    const eng_id in[3] = {run->grad, run->states[3], run->scalars};
    eng_id out[2] = {run->grad, run->states[3]};
    const eng_attr attrs[3] = {{"beta2", 0, m.neuron_beta}, {"eps", 0, 1e-8}, {"norm", 0, norm}};
    return build->api->emit(build, MUON_OP_NEURONS, in, 3, out, 2, attrs, 3, error);
  }
  if (run->stage == ENG_STAGE_BEFORE) {
    const eng_id in[3] = {run->grad, run->states[0], run->scalars};
    eng_id out[2] = {run->grad, run->states[0]};
    const eng_attr attrs[2] = {{"momentum", 0, m.momentum}, {"nesterov", m.nesterov, 0}};
    return build->api->emit(build, MUON_OP_MOMENTUM, in, 3, out, 2, attrs, 2, error);
  }
  return emit_last(build, *run, MUON_OP_APPLY, {run->master, run->grad, run->scalars}, {run->master},
                   {{"weight_decay", 0, decay}}, error);
}

eng_status update(void* self, eng_build* build, const eng_update* run, eng_error* error) {
  const Muon& m = *static_cast<Muon*>(self);
  if (run->n_states != count_states(m)) return report(error, ENG_INVALID, "muon needs its states");
  if (eng_status s = needs_f32(build, *run, "muon", error)) return s;
  double decay = 0;
  if (eng_status s = decay_of(*run, m.weight_decay, &decay, error)) return s;
  return run->stage == ENG_STAGE_UPDATE
             ? emit_adamw(build, *run, &run->states[1], m.beta1, m.beta2, m.eps, decay, error)
             : update_matrices(m, build, run, decay, error);
}

}  // namespace

const eng_optimizer optimizer = {.struct_size = sizeof(eng_optimizer),
                                 .granularity = 1,
                                 .create = create<false>,
                                 .destroy = destroy,
                                 .states = states,
                                 .scalars = scalars,
                                 .update = update};
const eng_optimizer normuon = {.struct_size = sizeof(eng_optimizer),
                               .granularity = 1,
                               .create = create<true>,
                               .destroy = destroy,
                               .states = states,
                               .scalars = scalars,
                               .update = update};

}  // namespace muon
