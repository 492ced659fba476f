/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ops with kernels for the cpu, and the tables that list them. */
#include "hostile.h"

/* ---- ops -------------------------------------------------------------------------------------------- */

static eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  ENTER("op.infer");
  if (cap < 1) return ENG_OUT_OF_RANGE;
  out[0] = call->in[0];
  *n_out = 1;
  if (is("infer: no output")) *n_out = 0;
  if (is("infer: 4 billion outputs")) *n_out = UINT32_MAX;
  if (is("infer: does not write")) memset(out, 0, sizeof *out);
  if (is("infer: no such type")) out[0].dtype = 99;
  if (is("infer: 7 dimensions")) out[0].ndim = 7;
  if (is("infer: negative")) out[0].dims[1] = -1;
  if (is("infer: huge")) out[0].dims[0] = out[0].dims[1] = INT64_C(1) << 40;
  if (is("infer: nothing")) out[0].dims[1] = 0;
  if (is("infer: another shape")) out[0].dims[2] += 1;
  return ENG_OK;
}

static double flops(const eng_call* call) {
  (void)call;
  return is("flops: not a number") ? 0.0 * (1e308 * 10) : is("flops: negative") ? -1.0 : 1.0;
}

static eng_status grad(eng_gradient* g, eng_error* error) {
  const eng_gradient_api* api = g->api;
  eng_id in[2] = {0, 0}, out[4] = {0, 0, 0, 0};
  eng_attr attr = {NULL, 0, 0};
  eng_desc d;
  uint32_t n = 0;
  ENTER("op.grad");
  in[0] = api->d_out(g, 0);
  if (is("grad: nothing")) return ENG_OK;
  if (is("grad: no op")) api->emit(g, NULL, in, 1, out, 1, NULL, 0, NULL);
  if (is("grad: no inputs")) api->emit(g, OP_PASS, NULL, 1, out, 1, NULL, 0, NULL);
  if (is("grad: no outputs")) api->emit(g, OP_PASS, in, 1, NULL, 1, NULL, 0, NULL);
  if (is("grad: no attributes")) api->emit(g, OP_PASS, in, 1, out, 1, NULL, 1, NULL);
  if (is("grad: an attribute without key")) api->emit(g, OP_PASS, in, 1, out, 1, &attr, 1, NULL);
  if (is("grad: all_to_all")) api->emit(g, ENG_OP_ALL_TO_ALL, in, 1, out, 1, NULL, 0, NULL);
  if (is("grad: into a value")) out[0] = in[0];
  if (is("grad: of no input")) api->give(g, 5, in[0]);
  if (is("grad: unknown value")) api->give(g, 0, 4711);
  if (is("grad: 0")) api->give(g, 0, 0);
  if (is("grad: of an input")) api->give(g, 0, api->in(g, 77));
  if (is("grad: shape into NULL")) api->shape(g, in[0], NULL, NULL);
  if (is("grad: shape of nothing")) api->shape(g, 4711, &d, NULL);
  if (is("grad: attributes into NULL")) api->attrs(g, NULL);
  api->attrs(g, &n);
  api->emit(g, OP_PASS, in, 1, out, 1, NULL, 0, NULL);
  api->give(g, 0, out[0]);
  if (is("grad: twice")) api->give(g, 0, out[0]);
  return is("grad: says ENG_OK after an error") ? (api->give(g, 0, 4711), ENG_OK) : api->status(g, error);
}

static eng_status step(eng_stepping* s, eng_error* error) {
  const eng_stepping_api* api = s->api;
  eng_id in = 0, out = 0;
  eng_desc d = {ENG_F32, 1, {4, 0, 0, 0, 0, 0}};
  ENTER("op.step");
  in = api->in(s, 0);
  if (is("step: nothing")) return ENG_OK;
  if (is("step: a state that nobody writes")) api->state(s, &d);
  if (is("step: a state of nothing")) api->state(s, NULL);
  if (is("step: an odd state")) d.ndim = 99, api->state(s, &d);
  if (is("step: of no output")) api->give(s, 9, in);
  if (is("step: unknown value")) api->give(s, 0, 4711);
  if (is("step: another shape")) {
    api->give(s, 0, api->counters(s));
    return api->status(s, error);
  }
  api->emit(s, OP_PASS, &in, 1, &out, 1, NULL, 0, NULL);
  api->give(s, 0, out);
  return api->status(s, error);
}

static eng_in_place in_place[] = {{0, 0, 0, 0}};
static eng_op pass = {.struct_size = sizeof(eng_op),
                      .id = OP_PASS,
                      .min_in = 1,
                      .max_in = 1,
                      .infer = infer,
                      .flops = flops,
                      .grad = grad,
                      .in_place = in_place,
                      .n_in_place = 1,
                      .step = step};
static eng_op fill = {.struct_size = sizeof(eng_op), .id = OP_FILL};
static const eng_index no_input = {0, 7, 0, 0};
static const eng_op* op_list[3] = {&pass, &fill, &pass};
static eng_ops ops = {sizeof(eng_ops), 2, op_list};

const eng_ops* hostile_ops(void) {
  if (is("ops: an entry of NULL")) op_list[1] = NULL;
  if (is("ops: the same one twice")) ops.count = 3;
  if (is("ops: a small struct")) fill.struct_size = 8;
  if (is("ops: a struct of nothing")) fill.struct_size = 0;
  if (is("ops: no id")) fill.id = NULL;
  if (is("ops: an empty id")) fill.id = "";
  if (is("ops: a foreign id")) fill.id = "eng.linear/1";
  if (is("ops: an odd id")) fill.id = "org.example.hostile.\xff\n/1";
  if (is("ops: more at least than at most")) fill.min_in = 3;
  if (is("ops: no list of pairs")) pass.in_place = NULL;
  if (is("ops: no list of indexes")) pass.n_indexes = 1;
  if (is("ops: an index of no input")) pass.indexes = &no_input, pass.n_indexes = 1;
  if (is("ops: a loss without gradient")) fill.flags = ENG_OP_FUSED_GRAD;
  if (is("ops: random numbers for nothing")) fill.flags = ENG_OP_RANDOM;
  if (is("ops: a pair without output")) in_place[0].out = 77;
  if (is("ops: a pair without input")) in_place[0].in = UINT32_MAX;
  if (is("infer: another shape")) in_place[0].must = 1;
  if (is("ops: must overwrite what is needed")) in_place[0].must = 1;
  return &ops;
}

/* ---- kernels ---------------------------------------------------------------------------------------- */

struct bound {
  const float* in;
  float* out;
  int64_t n;
};

static eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  ENTER("kernel.workspace");
  (void)call;
  *bytes = 64;
  if (is("workspace: 2^64 - 1")) *bytes = UINT64_MAX;
  if (is("workspace: 2^63")) *bytes = UINT64_C(1) << 63;
  if (is("workspace: 2^62")) *bytes = UINT64_C(1) << 62;
  if (is("workspace: a terabyte")) *bytes = UINT64_C(1) << 40;
  return ENG_OK;
}

static eng_status prepare(void* device, const eng_call* call, void** state, eng_error* error) {
  int64_t* n;
  uint32_t k;
  ENTER("kernel.prepare");
  (void)device;
  if (call->out[0].dtype != ENG_F32) {
    const char text[] = "this kernel of hostile computes f32";
    error->set(error, ENG_UNSUPPORTED, text, sizeof text - 1);
    return ENG_UNSUPPORTED;
  }
  if (!(n = malloc(sizeof *n))) return ENG_NO_MEMORY;
  *n = 1;
  for (k = 0; k < call->out[0].ndim; ++k) *n *= call->out[0].dims[k];
  *state = n;
  return ENG_OK;
}

static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                       eng_error* error) {
  struct bound* made;
  ENTER("kernel.bind");
  (void)scratch;
  if (!(made = malloc(sizeof *made))) return ENG_NO_MEMORY;
  made->in = n > 1 ? args[0]->data : NULL, made->out = args[n - 1]->data, made->n = *(const int64_t*)state;
  *record = made;
  return ENG_OK;
}

static eng_status launch(void* record, const eng_exec* exec, eng_error* error) {
  const struct bound* k = record;
  int64_t i;
  ENTER("kernel.launch");
  (void)exec;
  for (i = 0; i < k->n; ++i) k->out[i] = k->in ? k->in[i] : 0.5f;
  if (is("kernel: not a number")) k->out[0] = (float)(0.0 * (1e308 * 10));
  return ENG_OK;
}

static eng_kernel pass_kernel = {sizeof(eng_kernel), 0, OP_PASS, workspace, prepare, bind, launch, free, free};
static eng_kernel fill_kernel = {sizeof(eng_kernel), 0, OP_FILL, workspace, prepare, bind, launch, free, free};
static const eng_kernel* kernel_list[3] = {&pass_kernel, &fill_kernel, &pass_kernel};
static eng_kernels kernels = {sizeof(eng_kernels), 2, kernel_list};

const eng_kernels* hostile_kernels(void) {
  if (is("kernels: an entry of NULL")) kernel_list[0] = NULL;
  if (is("kernels: none")) kernels.count = 0;
  if (is("kernels: the same one twice")) kernels.count = 3;
  if (is("kernels: a small struct")) pass_kernel.struct_size = 16;
  if (is("kernels: a struct of nothing")) pass_kernel.struct_size = 0;
  if (is("kernels: no op")) pass_kernel.op = NULL;
  if (is("kernels: no launch")) pass_kernel.launch = NULL;
  return &kernels;
}
