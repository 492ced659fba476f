/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that computes nothing, and a communicator of one process with its mirror. */
#define _POSIX_C_SOURCE 200809L
#include "hostile.h"

static char object;

static void destroy(void* self) {
  (void)self;
}
static void drop(void* what) {
  (void)what;
}

/* ---- device ----------------------------------------------------------------------------------------- */

static eng_status describe(const eng_options* options, eng_device_info* out, eng_error* error) {
  take_fault(options);
  ENTER("device.describe");
  out->flags = ENG_DEVICE_HOST_MEMORY, out->parallel = 1, out->dl_device_type = kDLCPU;
  out->total_bytes = UINT64_C(1) << 33;
  memcpy(out->name, "void", 5);
  if (is("device: absent")) out->total_bytes = 0;
  if (is("device: nothing parallel")) out->parallel = 0;
  if (is("device: a name without end")) memset(out->name, 'n', sizeof out->name);
  if (is("device: all of memory for itself")) out->overhead_bytes = UINT64_MAX;
  if (is("device: a negative peak")) out->peak_f32 = -1;
  if (is("device: queues without functions")) out->flags |= ENG_DEVICE_ASYNC;
  if (is("device: graphs without functions")) out->flags |= ENG_DEVICE_GRAPHS;
  if (is("device: a context larger than all")) out->device_overhead_bytes = UINT64_MAX;
  if (is("device: a negative bandwidth")) out->memory_bandwidth = -1;
  if (is("device: no way back")) out->to_host = 0.0 * (1e308 * 10);
  if (is("device: no peak at all")) out->peak_f32 = 0.0 * (1e308 * 10);
  return ENG_OK;
}

static eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* error) {
  (void)options, (void)local_rank;
  ENTER("device.create");
  if (is("device: absent")) {
    static const char why[] = "there is no such card on this machine";
    if (error) error->set(error, ENG_UNAVAILABLE, why, sizeof why - 1);
    return ENG_UNAVAILABLE;
  }
  *self = &object;
  return ENG_OK;
}

static eng_status alloc(void* self, int32_t kind, uint64_t bytes, void** out, eng_error* error) {
  void* memory = NULL;
  (void)self, (void)kind;
  ENTER("device.alloc");
  if (is("device: no memory")) return ENG_OK;
  if (posix_memalign(&memory, 4096, (size_t)bytes + 64) != 0) return ENG_NO_MEMORY;
  memset(memory, 0, (size_t)bytes + 64);
  *out = memory;
  if (is("device: crooked memory")) *out = (char*)memory + 64;
  return ENG_OK;
}

static void release(void* self, int32_t kind, void* arena, uint64_t bytes) {
  (void)self, (void)kind, (void)bytes;
  free(is("device: crooked memory") && arena ? (char*)arena - 64 : arena);
}

static eng_status upload(void* self, void* dst, const void* src, uint64_t bytes, eng_error* error) {
  (void)self;
  ENTER("device.upload");
  memcpy(dst, src, (size_t)bytes);
  return ENG_OK;
}

static eng_status download(void* self, void* dst, const void* src, uint64_t bytes, eng_error* error) {
  (void)self;
  ENTER("device.download");
  memcpy(dst, src, (size_t)bytes);
  return ENG_OK;
}

static eng_status sync(void* self, void* queue, eng_error* error) {
  (void)self, (void)queue;
  ENTER("device.sync");
  return ENG_OK;
}

const eng_device hostile_device = {
    .struct_size = sizeof(eng_device),
    .minor = ENG_ABI_MINOR,
    .describe = describe,
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .free = release,
    .upload = upload,
    .download = download,
    .sync = sync,
};

static eng_status no_workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  (void)call;
  ENTER("device kernel.workspace");
  *bytes = 0;
  return ENG_OK;
}

/* Neither a state nor a record: NULL is one like any other. */
static eng_status prepare_nothing(void* device, const eng_call* call, void** state, eng_error* error) {
  (void)device, (void)call, (void)state;
  ENTER("device kernel.prepare");
  return ENG_OK;
}
static eng_status bind_nothing(void* state, const DLTensor* const* args, uint32_t n, void* workspace, void** record,
                               eng_error* error) {
  (void)state, (void)args, (void)n, (void)workspace, (void)record;
  ENTER("device kernel.bind");
  return ENG_OK;
}
static eng_status launch_nothing(void* record, const eng_exec* exec, eng_error* error) {
  (void)record, (void)exec;
  ENTER("device kernel.launch");
  return ENG_OK;
}

#define NOTHING(op) \
  { sizeof(eng_kernel), 0, op, no_workspace, prepare_nothing, bind_nothing, launch_nothing, drop, drop }
static const eng_kernel nothing[] = {
    NOTHING(ENG_OP_EMBEDDING),
    NOTHING(ENG_OP_LINEAR),
    NOTHING(ENG_OP_ADD),
    NOTHING(ENG_OP_CROSS_ENTROPY),
    NOTHING(ENG_OP_MATMUL),
    NOTHING(ENG_OP_EMBEDDING_GRAD),
    NOTHING(ENG_OP_BEGIN),
    NOTHING(ENG_OP_GET_ROW),
    NOTHING(ENG_OP_PUT_ROW),
    NOTHING(ENG_OP_COPY),
    NOTHING(ENG_OP_SUM_SQUARES),
    NOTHING(ENG_OP_FINISH),
    NOTHING(ENG_OP_SGD),
    NOTHING(ENG_OP_INIT_CONSTANT),
    NOTHING(ENG_OP_INIT_NORMAL),
    NOTHING(ENG_OP_CROSS_ENTROPY_GRAD),
    NOTHING(OP_PASS),
    NOTHING(OP_FILL),
    NOTHING(ENG_OP_SUM_ROWS),
    NOTHING(ENG_OP_SCALE),
};
enum { n_nothing = sizeof nothing / sizeof nothing[0] };

const eng_kernels* hostile_device_kernels(void) {
  static const eng_kernel* list[n_nothing];
  static const eng_kernels kernels = {sizeof(eng_kernels), n_nothing, list};
  uint32_t k;
  for (k = 0; k < n_nothing; ++k) list[k] = &nothing[k];
  return &kernels;
}

/* ---- communicator ----------------------------------------------------------------------------------- */

static eng_status join(const eng_options* options, double deadline, eng_world* out, void** self, eng_error* error) {
  (void)deadline;
  take_fault(options);
  ENTER("comm.create");
  out->rank = 0, out->size = 2, out->local_rank = 0, out->local_size = 2;
  if (is("comm: nobody is there")) out->size = 0;
  if (is("comm: beyond the last")) out->rank = 2;
  if (is("comm: nobody is near")) out->local_size = 0;
  if (is("comm: does not write")) memset((char*)out + 4, 0, sizeof *out - 4);
  if (is("comm: more near than all")) out->local_size = 99;
  *self = &object;
  return ENG_OK;
}

static void leave(void* self) {
  (void)self;
}

static eng_status group(void* self, eng_id id, const uint32_t* ranks, uint32_t n, eng_error* error) {
  (void)self, (void)id, (void)ranks, (void)n;
  ENTER("comm.group");
  return ENG_OK;
}

static eng_status exchange(void* self, const void* mine, uint64_t bytes, void* all, eng_error* error) {
  (void)self;
  ENTER("comm.exchange");
  if (!bytes || is("comm: exchanges nothing")) return ENG_OK;
  memcpy(all, mine, (size_t)bytes);
  memcpy((char*)all + bytes, mine, (size_t)bytes);
  if (is("comm: exchanges noise")) memset((char*)all + bytes, 0x7f, (size_t)bytes);
  if (is("comm: exchanges ones")) memset((char*)all + bytes, 0xff, (size_t)bytes);
  return ENG_OK;
}

static eng_status poll(void* self, eng_error* error) {
  (void)self, (void)error;
  return ENG_OK;
}

static void stop_all(void* self, const char* reason) {
  (void)self, (void)reason;
}

const eng_comm hostile_comm = {sizeof(eng_comm), 0, join, leave, group, exchange, poll, stop_all, 4096};

struct transfer {
  const char* in;
  char* out;
  size_t in_bytes, out_bytes;
  int to_all; /* all_to_all */
};

static eng_status transfer_workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  (void)call;
  ENTER("collective.workspace");
  *bytes = 0;
  return ENG_OK;
}

static eng_status transfer_prepare(void* device, const eng_call* call, void** state, eng_error* error) {
  struct transfer* t;
  (void)device;
  ENTER("collective.prepare");
  if (!(t = calloc(1, sizeof *t))) return ENG_NO_MEMORY;
  t->in_bytes = (size_t)call->in[0].dims[0] * 4, t->out_bytes = (size_t)call->out[0].dims[0] * 4;
  t->to_all = t->in_bytes == t->out_bytes;
  *state = t;
  return ENG_OK;
}

static eng_status transfer_bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                                eng_error* error) {
  struct transfer* t;
  (void)scratch;
  ENTER("collective.bind");
  if (!(t = malloc(sizeof *t))) return ENG_NO_MEMORY;
  *t = *(const struct transfer*)state;
  t->in = args[0]->data, t->out = args[n - 1]->data;
  *record = t;
  return ENG_OK;
}

static eng_status transfer_launch(void* record, const eng_exec* exec, eng_error* error) {
  const struct transfer* t = record;
  const size_t part = t->to_all ? t->in_bytes / 2 : t->in_bytes;
  (void)exec;
  ENTER("collective.launch");
  if (t->in != t->out) memcpy(t->out, t->in, part);
  memcpy(t->out + part, t->in, part);
  return ENG_OK;
}

static const eng_kernel gather = {sizeof(eng_kernel),
                                  0,
                                  ENG_OP_ALL_GATHER,
                                  transfer_workspace,
                                  transfer_prepare,
                                  transfer_bind,
                                  transfer_launch,
                                  free,
                                  free};
static const eng_kernel to_all = {sizeof(eng_kernel),
                                  0,
                                  ENG_OP_ALL_TO_ALL,
                                  transfer_workspace,
                                  transfer_prepare,
                                  transfer_bind,
                                  transfer_launch,
                                  free,
                                  free};

const eng_kernels* hostile_collectives(void) {
  static const eng_kernel* const list[] = {&gather, &to_all};
  static const eng_kernels kernels = {sizeof(eng_kernels), 2, list};
  return &kernels;
}
