// SPDX-License-Identifier: Apache-2.0
// An op of one's own with its gradient and kernels, and a small model that uses it.
//   y = x / sqrt(1 + a x^2), elementwise (Carlile et al. 2017); dy/dx = (1 + a x^2)^(-3/2)
#include <cmath>
#include <cstring>
#include <new>

#include "engine/model.h"
#include "engine/op.h"
#include "engine/ops.h"
#include "engine/plugin.h"

#define ISRU "org.example.my_thing.isru/1"            // in: x; out: y. attr: a f
#define ISRU_GRAD "org.example.my_thing.isru_grad/1"  // in: dy, x, [dx so far]; out: dx, in its place. attr: a f

// One table of kernels serves two devices: `cpu` trains, `reference` computes in f64 for checks of gradients.
ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'an op with kernels, and a model that uses it'

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'my_thing'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'my_thing'
summary = 'two linear maps with the op between them'

[provides.options]
vocab_size = { type = 'int', default = 256, min = 1, max = 2147483647, help = 'token ids are below this' }
hidden_size = { type = 'int', default = 64, min = 1, max = 65536, help = 'features of a position' }
a = { type = 'float', default = 1.0, min = 0, help = 'how early the op levels off' }
)")

namespace {

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

double attribute(const eng_attr* attrs, uint32_t n, const char* key, double otherwise) {
  for (uint32_t k = 0; k < n; ++k)
    if (!std::strcmp(attrs[k].key, key)) return attrs[k].f;
  return otherwise;
}

// ---- the ops: what the planner must know ----

eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is one output");
  for (uint32_t k = 1; k < call->n_in; ++k)
    if (call->in[k].dtype != 0 && std::memcmp(&call->in[k], &call->in[0], sizeof(eng_desc)) != 0)
      return fail(error, ENG_INVALID, "all inputs must have the same type and shape");
  out[0] = call->in[0];
  *n_out = 1;
  return ENG_OK;
}

double flops(const eng_call* call) {
  double n = 4;
  for (uint32_t k = 0; k < call->in[0].ndim; ++k) n *= static_cast<double>(call->in[0].dims[k]);
  return n;
}

// The inputs that are passed to an op here are kept for the backward: x, and nothing else.
eng_status isru_gradient(eng_gradient* g, eng_error* error) {
  const eng_gradient_api& api = *g->api;
  if (api.wants(g, 0)) {
    uint32_t n = 0;
    const eng_attr* attrs = api.attrs(g, &n);
    const eng_id in[] = {api.d_out(g, 0), api.in(g, 0), api.take(g, 0)};
    eng_id dx = 0;
    api.emit(g, ISRU_GRAD, in, 3, &dx, 1, attrs, n, nullptr);
    api.give(g, 0, dx);
  }
  return api.status(g, error);
}

constexpr eng_op make_op(const char* id, uint32_t flags, uint32_t min_in, uint32_t max_in) {
  eng_op op{};
  op.struct_size = sizeof op;
  op.flags = flags;
  op.id = id;
  op.min_in = min_in;
  op.max_in = max_in;
  op.infer = infer;
  op.flops = flops;
  return op;
}

constexpr eng_op make_isru() {
  // Cheap: run again rather than kept. By position: also serves the generation of text.
  eng_op op = make_op(ISRU, ENG_OP_CHEAP | ENG_OP_BY_POSITION, 1, 1);
  op.grad = isru_gradient;
  return op;
}

const eng_in_place onto_sum = {0, 2, 1, 0};  // output 0 takes the memory of input 2, where there is one
constexpr eng_op make_isru_grad() {
  eng_op op = make_op(ISRU_GRAD, 0, 2, 3);
  op.in_place = &onto_sum;
  op.n_in_place = 1;
  return op;
}

constexpr eng_op isru = make_isru(), isru_grad = make_isru_grad();
const eng_op* const op_list[] = {&isru, &isru_grad};
const eng_ops ops = {sizeof(eng_ops), 2, op_list};

// ---- the kernels: how they are computed on the host ----

template <class T>
void compute(int64_t n, double scale, const T* x, T* y) {
  const T a = static_cast<T>(scale);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / std::sqrt(1 + a * x[i] * x[i]);
}

template <class T>
void compute_grad(int64_t n, double scale, const T* dy, const T* x, const T* sum, T* dx) {
  const T a = static_cast<T>(scale);
  for (int64_t i = 0; i < n; ++i) {
    const T r = 1 / std::sqrt(1 + a * x[i] * x[i]);
    dx[i] = (sum ? sum[i] : 0) + dy[i] * r * r * r;
  }
}

struct Call {
  int64_t n;
  int32_t dtype;
  double a;
  void* at[4];
};

eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  if (call->in[0].dtype != ENG_F32 && call->in[0].dtype != ENG_F64)
    return fail(error, ENG_UNSUPPORTED, "these kernels compute in f32 and f64");
  *bytes = 0;
  return ENG_OK;
}

eng_status prepare(void*, const eng_call* call, void** state, eng_error* error) {
  Call* made = new (std::nothrow) Call{1, call->in[0].dtype, attribute(call->attrs, call->n_attrs, "a", 1), {}};
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  for (uint32_t k = 0; k < call->in[0].ndim; ++k) made->n *= call->in[0].dims[k];
  *state = made;
  return ENG_OK;
}

eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void*, void** record, eng_error* error) {
  Call* made = new (std::nothrow) Call(*static_cast<const Call*>(state));
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  for (uint32_t k = 0; k < n && k < 4; ++k)
    made->at[k] = args[k] ? static_cast<char*>(args[k]->data) + args[k]->byte_offset : nullptr;
  *record = made;
  return ENG_OK;
}

eng_status launch_isru(void* record, const eng_exec*, eng_error*) {
  const Call& c = *static_cast<const Call*>(record);
  if (c.dtype == ENG_F64)
    compute(c.n, c.a, static_cast<const double*>(c.at[0]), static_cast<double*>(c.at[1]));
  else
    compute(c.n, c.a, static_cast<const float*>(c.at[0]), static_cast<float*>(c.at[1]));
  return ENG_OK;
}

template <class T>
void run_grad(const Call& c) {
  compute_grad(c.n, c.a, static_cast<const T*>(c.at[0]), static_cast<const T*>(c.at[1]), static_cast<const T*>(c.at[2]),
               static_cast<T*>(c.at[3]));
}

eng_status launch_isru_grad(void* record, const eng_exec*, eng_error*) {
  const Call& c = *static_cast<const Call*>(record);
  if (c.dtype == ENG_F64)
    run_grad<double>(c);
  else
    run_grad<float>(c);
  return ENG_OK;
}

void drop(void* kept) {
  delete static_cast<Call*>(kept);
}

using Launch = eng_status (*)(void*, const eng_exec*, eng_error*);
constexpr eng_kernel make_kernel(const char* op, Launch launch) {
  return {sizeof(eng_kernel), 0, op, workspace, prepare, bind, launch, drop, drop};
}
constexpr eng_kernel isru_kernel = make_kernel(ISRU, launch_isru),
                     grad_kernel = make_kernel(ISRU_GRAD, launch_isru_grad);
const eng_kernel* const kernel_list[] = {&isru_kernel, &grad_kernel};
const eng_kernels kernels = {sizeof(eng_kernels), 2, kernel_list};

// ---- the model: tokens -> embedding -> linear, op, linear -> loss ----

struct Model {
  int64_t vocabulary, hidden;
  double a;
};

eng_status create(const eng_options* options, void** self, eng_error* error) {
  Model made{};
  if (eng_status s = options->get_int(options, "vocab_size", &made.vocabulary, error)) return s;
  if (eng_status s = options->get_int(options, "hidden_size", &made.hidden, error)) return s;
  if (eng_status s = options->get_float(options, "a", &made.a, error)) return s;
  Model* kept = new (std::nothrow) Model(made);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Model*>(self);
}

eng_status describe_model(void* self, eng_model_info* out, eng_error*) {
  out->vocabulary = static_cast<const Model*>(self)->vocabulary;
  out->layers = 1;
  return ENG_OK;
}

eng_id matrix(eng_build* b, const char* name, int64_t rows, int64_t columns) {
  const eng_attr normal[] = {{"mean", 0, 0.0}, {"std", 0, 1 / std::sqrt(static_cast<double>(columns))}};
  const int64_t dims[] = {rows, columns};
  const eng_param param = {sizeof(eng_param), 0, name, ENG_OP_INIT_NORMAL, normal, dims, 2, 2};
  eng_id id = 0;
  b->api->param(b, &param, &id, nullptr);
  return id;
}

eng_status declare(void* self, eng_build* b, eng_error* error) {
  const Model& m = *static_cast<const Model*>(self);
  const eng_id embed = matrix(b, "embed", m.vocabulary, m.hidden);
  const eng_id layer[] = {matrix(b, "up", m.hidden, m.hidden), matrix(b, "down", m.hidden, m.hidden)};
  const eng_id head = matrix(b, "head", m.vocabulary, m.hidden);
  b->api->block(b, "embed", 0, &embed, 1, nullptr);
  b->api->block(b, "layer", 1, layer, 2, nullptr);
  b->api->block(b, "head", 2, &head, 1, nullptr);
  return b->api->status(b, error);
}

eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t, const eng_id* in, uint32_t,
                 eng_id* out, uint32_t, uint32_t* n_out, eng_error* error) {
  const eng_attr a = {"a", 0, static_cast<const Model*>(self)->a};
  eng_id batch = 0;
  if (tmpl == 0) {
    b->api->batch(b, "tokens", &batch, nullptr);  // (B, T)
    out[0] = eng_embedding(b, batch, params[0]);  // (B, T, H)
  } else if (tmpl == 1) {
    const eng_id x = eng_linear(b, in[0], params[0], 0);
    const eng_id y = eng_emit1(b, ISRU, &x, 1, &a, 1);
    out[0] = eng_add(b, eng_linear(b, y, params[1], 0), in[0]);
  } else {
    b->api->batch(b, "labels", &batch, nullptr);
    out[0] = eng_cross_entropy(b, in[0], params[0], batch);  // (1)
  }
  *n_out = 1;
  return b->api->status(b, error);
}

const eng_model model = {sizeof(eng_model), 0, create, destroy, describe_model, declare, trace};

// ---- the plugin ----

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char*) {
  if (!std::strcmp(kind, ENG_OPS_KIND)) return &ops;
  if (!std::strcmp(kind, ENG_KERNELS_KIND)) return &kernels;
  return !std::strcmp(kind, ENG_MODEL_KIND) ? &model : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
