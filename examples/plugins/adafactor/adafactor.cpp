// SPDX-License-Identifier: Apache-2.0
// Adafactor (Shazeer and Stern 2018) in C++17, with the rate of the schedule instead of its relative steps. Of a matrix
// (R, C) it keeps the second moment as two vectors, so it must see the matrix whole. With d = 1 - k^-decay at update k:
//   s = g^2 + eps;  row = d row + (1 - d) mean of s over columns;  col = d col + (1 - d) mean of s over rows
//   u = g / sqrt(row col / mean(row));  u = u / max(1, rms(u) / threshold);  p = p - lr (u + weight_decay p)
// Of every other parameter it keeps s itself, averaged in the same way: u = g / sqrt(that).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "engine/op.h"
#include "engine/ops.h"
#include "engine/optimizer.h"
#include "engine/plugin.h"

#define FACTORED \
  "org.example.adafactor.factored/1"         // in: g (R, C), row (R), col (C), scalars; out: u, row, col, in place
#define FULL "org.example.adafactor.full/1"  // in: g, s, scalars; out: u, s, in place
#define STEP "org.example.adafactor.step/1"  // in: p, u (n), scalars; out: p, in place

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.adafactor'
name = 'Adafactor'
version = '1.0.0'
license = 'Apache-2.0'
summary = 'an optimizer whose second moments are factored'

[[provides]]
kind = ')" ENG_OPTIMIZER_DRAFT R"('
name = 'adafactor'
summary = 'second moments of matrices as one value per row and column (Shazeer and Stern 2018)'

[provides.options]
decay = { type = 'float', default = 0.8, above = 0, max = 1, help = 'how fast the averages become long' }
eps = { type = 'float', default = 1e-30, above = 0, help = 'added to squares of gradients' }
threshold = { type = 'float', default = 1.0, above = 0, help = 'largest root mean square of an update, before the rate' }
weight_decay = { type = 'float', default = 0.0, min = 0, per_group = true, help = 'not for norms and biases' }

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'adafactor'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'
)")

namespace {

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

template <class T>
eng_status keep(const T& made, void** out, eng_error* error) {
  T* kept = new (std::nothrow) T(made);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *out = kept;
  return ENG_OK;
}

// ---- the optimizer ----

struct Adafactor {
  double decay, eps, threshold;
};

eng_status create(const eng_options* options, void** self, eng_error* error) {
  Adafactor made{};
  if (eng_status s = options->get_float(options, "decay", &made.decay, error)) return s;
  if (eng_status s = options->get_float(options, "eps", &made.eps, error)) return s;
  if (eng_status s = options->get_float(options, "threshold", &made.threshold, error)) return s;
  return keep(made, self, error);
}

void destroy(void* self) {
  delete static_cast<Adafactor*>(self);
}

// Shaped states are whole on every rank, and imply that the parameter is updated whole.
eng_status shaped(const eng_parameter* p, eng_state_shape* io, bool has, uint32_t first, uint32_t count) {
  io->kind = has ? ENG_STATE_SHAPED : ENG_STATE_NONE;
  io->ndim = has ? count : 0;
  for (uint32_t k = 0; has && k < count; ++k) io->dims[k] = p->shape->dims[first + k];
  return ENG_OK;
}
eng_status rows(void*, const eng_parameter* p, eng_state_shape* io, eng_error*) {
  return shaped(p, io, p->shape->ndim == 2, 0, 1);
}
eng_status columns(void*, const eng_parameter* p, eng_state_shape* io, eng_error*) {
  return shaped(p, io, p->shape->ndim == 2, 1, 1);
}
eng_status all(void*, const eng_parameter* p, eng_state_shape* io, eng_error*) {
  return shaped(p, io, p->shape->ndim != 2, 0, p->shape->ndim);
}

eng_status states(void*, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 3) return fail(error, ENG_OUT_OF_RANGE, "there is no room for three states");
  out[0] = {"exp_avg_sq_row", ENG_F32, 0, rows};
  out[1] = {"exp_avg_sq_col", ENG_F32, 0, columns};
  out[2] = {"exp_avg_sq", ENG_F32, 0, all};
  *n = 3;
  return ENG_OK;
}

eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is no room for a scalar");
  out[0] = static_cast<float>(1 - std::pow(static_cast<double>(k), -static_cast<Adafactor*>(self)->decay));
  *n = 1;
  return ENG_OK;
}

eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const Adafactor& me = *static_cast<const Adafactor*>(self);
  const eng_attr attrs[] = {{"eps", 0, me.eps}, {"threshold", 0, me.threshold}};
  if (run->stage == ENG_STAGE_WHOLE && run->states[0]) {
    const eng_id in[] = {run->grad, run->states[0], run->states[1], run->scalars};
    eng_id out[] = {run->grad, run->states[0], run->states[1]};
    return b->api->emit(b, FACTORED, in, 4, out, 3, attrs, 2, error);
  }
  if (run->stage == ENG_STAGE_WHOLE) {
    const eng_id in[] = {run->grad, run->states[2], run->scalars};
    eng_id out[] = {run->grad, run->states[2]};
    return b->api->emit(b, FULL, in, 3, out, 2, attrs, 2, error);
  }
  if (run->stage != ENG_STAGE_AFTER) return ENG_OK;  // nothing to do before
  eng_attr decay = {"weight_decay", 0, 0};
  if (run->n_ranges > 0 && !(run->flags & ENG_PARAM_NO_DECAY)) {
    const eng_options* own = run->ranges[0].parameter->options;
    if (eng_status s = own->get_float(own, "weight_decay", &decay.f, error)) return s;
  }
  const eng_id in[] = {run->master, run->grad, run->scalars};
  eng_id out = run->master;
  return b->api->emit(b, STEP, in, 3, &out, 1, &decay, 1, error);
}

const eng_optimizer optimizer = {sizeof(eng_optimizer), 0, create, destroy, states, scalars, update};

// ---- its ops: every output takes the memory of the input with its number ----

template <uint32_t outputs>
eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < outputs) return fail(error, ENG_OUT_OF_RANGE, "there is no room for the outputs");
  for (uint32_t k = 0; k < outputs; ++k) {
    if (call->in[k].dtype != ENG_F32)
      return fail(error, ENG_UNSUPPORTED, "adafactor needs masters and gradients in f32");
    out[k] = call->in[k];
  }
  *n = outputs;
  return ENG_OK;
}

const eng_in_place pairs[] = {{0, 0, 1, 0}, {1, 1, 1, 0}, {2, 2, 1, 0}};

template <uint32_t outputs>
constexpr eng_op op(const char* id, uint32_t inputs) {
  eng_op op{};
  op.struct_size = sizeof op;
  op.id = id;
  op.min_in = op.max_in = inputs;
  op.infer = infer<outputs>;
  op.in_place = pairs, op.n_in_place = outputs;
  return op;
}
const eng_op factored_op = op<3>(FACTORED, 4), full_op = op<2>(FULL, 3), step_op = op<1>(STEP, 3);
const eng_op* const op_list[] = {&factored_op, &full_op, &step_op};
const eng_ops ops = {sizeof(eng_ops), 3, op_list};

// ---- its kernels: sums are made in f64 ----

struct Use {
  int64_t n, columns;  // elements; of a matrix
  double number[2];    // the attributes
  float* at[8];        // the inputs
};

// Writes the update that the squares s (by element) give, limited in its root mean square.
template <class Squares>
void divide(const Use& u, float clip, const Squares& s) {
  double sum = 0;
  for (int64_t i = 0; i < u.n; ++i) {
    const double x = u.at[0][i] * clip / std::sqrt(s(i));
    u.at[0][i] = static_cast<float>(x), sum += x * x;
  }
  const double factor = 1 / std::max(1.0, std::sqrt(sum / static_cast<double>(u.n)) / u.number[1]);
  for (int64_t i = 0; i < u.n; ++i) u.at[0][i] = static_cast<float>(u.at[0][i] * factor);
}

// average = d * average + (1 - d) * mean of g^2 + eps, over `count` elements from `first`, `apart` from each other.
void average(const Use& u, float clip, double d, float* io, int64_t first, int64_t count, int64_t apart) {
  double sum = 0;
  for (int64_t k = 0; k < count; ++k) {
    const double g = u.at[0][first + k * apart] * clip;
    sum += g * g + u.number[0];
  }
  *io = static_cast<float>(d * *io + (1 - d) * sum / static_cast<double>(count));
}

eng_status factored(void* record, const eng_exec*, eng_error*) {
  const Use& u = *static_cast<const Use*>(record);
  const float *numbers = u.at[3], clip = numbers[ENG_S_CLIP], d = numbers[ENG_S_LR + 1];
  float *row = u.at[1], *col = u.at[2];
  const int64_t c = u.columns, r = u.n / c;
  if (numbers[ENG_S_OK] == 0) return ENG_OK;  // an update that does not count
  for (int64_t i = 0; i < r; ++i) average(u, clip, d, row + i, i * c, c, 1);
  for (int64_t j = 0; j < c; ++j) average(u, clip, d, col + j, j, r, c);
  double mean = 0;
  for (int64_t i = 0; i < r; ++i) mean += row[i];
  mean /= static_cast<double>(r);
  divide(u, clip, [&](int64_t i) { return row[i / c] * (col[i % c] / mean); });
  return ENG_OK;
}

eng_status full(void* record, const eng_exec*, eng_error*) {
  const Use& u = *static_cast<const Use*>(record);
  const float *numbers = u.at[2], clip = numbers[ENG_S_CLIP], d = numbers[ENG_S_LR + 1];
  if (numbers[ENG_S_OK] == 0) return ENG_OK;
  for (int64_t i = 0; i < u.n; ++i) average(u, clip, d, u.at[1] + i, i, 1, 1);
  divide(u, clip, [&](int64_t i) { return static_cast<double>(u.at[1][i]); });
  return ENG_OK;
}

eng_status step(void* record, const eng_exec*, eng_error*) {
  const Use& u = *static_cast<const Use*>(record);
  const float *numbers = u.at[2], rate = numbers[ENG_S_LR], decay = static_cast<float>(u.number[0]);
  if (numbers[ENG_S_OK] == 0) return ENG_OK;
  for (int64_t i = 0; i < u.n; ++i) u.at[0][i] -= rate * (u.at[1][i] + decay * u.at[0][i]);
  return ENG_OK;
}

eng_status workspace(const eng_call*, uint64_t* bytes, eng_error*) {
  *bytes = 0;
  return ENG_OK;
}

eng_status prepare(void*, const eng_call* call, void** state, eng_error* error) {
  Use made{1, 1, {}, {}};
  for (uint32_t k = 0; k < call->in[0].ndim; ++k) made.n *= made.columns = call->in[0].dims[k];
  for (uint32_t k = 0; k < call->n_attrs && k < 2; ++k) made.number[k] = call->attrs[k].f;
  return keep(made, state, error);
}

eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void*, void** record, eng_error* error) {
  Use made = *static_cast<const Use*>(state);
  for (uint32_t k = 0; k < n && k < 8; ++k)
    made.at[k] = reinterpret_cast<float*>(static_cast<char*>(args[k]->data) + args[k]->byte_offset);
  return keep(made, record, error);
}

void drop(void* kept) {
  delete static_cast<Use*>(kept);
}

constexpr eng_kernel kernel(const char* id, eng_status (*launch)(void*, const eng_exec*, eng_error*)) {
  return {sizeof(eng_kernel), 0, id, workspace, prepare, bind, launch, drop, drop};
}
const eng_kernel factored_kernel = kernel(FACTORED, factored), full_kernel = kernel(FULL, full),
                 step_kernel = kernel(STEP, step);
const eng_kernel* const kernel_list[] = {&factored_kernel, &full_kernel, &step_kernel};
const eng_kernels kernels = {sizeof(eng_kernels), 3, kernel_list};

// ---- the plugin ----

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}

const void* get_interface(const char* kind, const char*) {
  if (!std::strcmp(kind, ENG_OPTIMIZER_KIND)) return &optimizer;
  if (!std::strcmp(kind, ENG_OPS_KIND)) return &ops;
  return !std::strcmp(kind, ENG_KERNELS_KIND) ? &kernels : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
