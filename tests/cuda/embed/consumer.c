/* SPDX-License-Identifier: Apache-2.0
 * A program with CUDA streams of its own beside a session on the device `cuda`. What it takes is complete for its
 * streams, without a wait of its own; what it writes in device memory, or gives as a batch there, counts. Arguments:
 * the configuration. On the software CUDA runtime (CPU) actions of different streams run in random orders. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/embed.h"

#define STEPS 3

static void told(eng_error* self, eng_status code, const char* text, uint64_t length) {
  (void)self;
  fprintf(stderr, "status %d: %.*s\n", (int)code, (int)length, text ? text : "");
}

static eng_error sink = {sizeof(eng_error), 0, NULL, told};

static void need(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

static void check(eng_status status) {
  need(status == ENG_OK, "a call of the session failed");
}

static void cuda(cudaError_t error) {
  need(error == cudaSuccess, cudaGetErrorString(error));
}

static eng_session* opened(const char* config) {
  static const char* const activations[] = {"layers.0.output"};
  eng_session_request request = {.struct_size = sizeof(request),
                                 .flags = ENG_SESSION_NO_FILES | ENG_SESSION_ALONE | ENG_SESSION_GRADIENTS,
                                 .activations = activations,
                                 .n_activations = 1};
  eng_session* out = NULL;
  request.target = config;
  check(eng_session_open(&request, &out, &sink));
  check(eng_session_start(out, &sink));
  return out;
}

static DLManagedTensorVersioned* taken(eng_session* run, const char* name, const char* role, uint32_t flags) {
  DLManagedTensorVersioned* out = NULL;
  check(eng_session_take(run, name, role, flags, &out, &sink));
  return out;
}

static size_t bytes_of(const DLTensor* t) {
  size_t n = t->dtype.bits / 8;
  int k;
  for (k = 0; k < t->ndim; ++k) n *= (size_t)t->shape[k];
  return n;
}

/* Copied on a stream of the program's own, right after a step: the bytes of the engine's own copy. */
static void reads_on_own_stream(eng_session* run, cudaStream_t stream, const char* name, const char* role) {
  DLManagedTensorVersioned *there = taken(run, name, role, 0), *here = taken(run, name, role, ENG_TAKE_COPY);
  const size_t n = bytes_of(&there->dl_tensor);
  void* host = NULL;
  need(there->dl_tensor.device.device_type == kDLCUDA && there->dl_tensor.device.device_id == 0, "it is on the device");
  need(there->flags & DLPACK_FLAG_BITMASK_READ_ONLY, "it is read-only");
  need(here->dl_tensor.device.device_type == kDLCPU && bytes_of(&here->dl_tensor) == n, "the copy is on the host");
  cuda(cudaHostAlloc(&host, n, cudaHostAllocDefault));
  memset(host, 0xFF, n);
  cuda(cudaMemcpyAsync(host, there->dl_tensor.data, n, cudaMemcpyDeviceToHost, stream));
  cuda(cudaStreamSynchronize(stream));
  need(memcmp(host, here->dl_tensor.data, n) == 0, name);
  cuda(cudaFreeHost(host));
  there->deleter(there), here->deleter(here);
}

static int deleted;

static void forget(DLManagedTensorVersioned* self) {
  (void)self;
  ++deleted;
}

int main(int argc, char** argv) {
  eng_session *run, *other;
  eng_session_info info = {.struct_size = sizeof(info)};
  eng_eval_result eval = {.struct_size = sizeof(eval)};
  DLManagedTensorVersioned* norm;
  cudaStream_t stream;
  int32_t *tokens, *device_tokens;
  int64_t shape[2], n, k, i;
  float last;
  if (argc != 2) return 2;
  run = opened(argv[1]), other = opened(argv[1]);
  check(eng_session_describe(run, &info, &sink));
  need(info.dl_device_type == kDLCUDA, "the session says that its tensors are on the device");
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  shape[0] = info.rows, shape[1] = info.length + 1;
  n = shape[0] * shape[1];
  cuda(cudaHostAlloc((void**)&tokens, (size_t)n * sizeof(*tokens), cudaHostAllocDefault));
  cuda(cudaMalloc((void**)&device_tokens, (size_t)n * sizeof(*tokens)));
  for (k = 0; k < STEPS; ++k) {
    eng_step_result step = {.struct_size = sizeof(step)}, same = {.struct_size = sizeof(same)};
    DLManagedTensorVersioned given = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, .deleter = forget};
    eng_tensor_in field = {.struct_size = sizeof(field), .name = "tokens", .versioned = &given};
    DLTensor* view = &given.dl_tensor;
    for (i = 0; i < n; ++i) tokens[i] = (int32_t)((k * 31 + i / shape[1] * 7 + i % shape[1]) % info.vocabulary);
    cuda(cudaMemcpyAsync(device_tokens, tokens, (size_t)n * sizeof(*tokens), cudaMemcpyHostToDevice, stream));
    cuda(cudaStreamSynchronize(stream)); /* a batch must be complete when it is given */
    view->device.device_type = kDLCUDA, view->ndim = 2, view->dtype.code = kDLInt, view->dtype.bits = 32;
    view->dtype.lanes = 1, view->data = device_tokens, view->shape = shape;
    check(eng_session_step(run, &field, 1, &step, &sink));
    need(deleted == k + 1, "the deleter of a batch is called once");
    reads_on_own_stream(run, stream, "model.layers.0.mlp.down_proj.weight", ENG_TENSOR_PARAMETER);
    reads_on_own_stream(run, stream, "model.layers.0.mlp.down_proj.weight", ENG_TENSOR_GRADIENT);
    reads_on_own_stream(run, stream, "model.layers.0.mlp.down_proj.weight", "exp_avg");
    reads_on_own_stream(run, stream, "layers.0.output", ENG_TENSOR_ACTIVATION);
    /* Trains on the same batch from memory of the host, in another session: the bits are equal. */
    view->device.device_type = kDLCPU, view->data = tokens;
    field.versioned = NULL, field.borrowed = view;
    check(eng_session_step(other, &field, 1, &same, &sink));
    need(step.step == k + 1 && step.loss == same.loss && step.grad_norm == same.grad_norm,
         "the same batch, the same bits");
    need(isfinite(step.loss), "the loss is a number");
  }
  /* Zeros in the last norm, written on the program's stream: all logits are equal. */
  norm = taken(run, "model.norm.weight", ENG_TENSOR_PARAMETER, ENG_TAKE_WRITABLE);
  cuda(cudaMemsetAsync(norm->dl_tensor.data, 0, bytes_of(&norm->dl_tensor), stream));
  cuda(cudaStreamSynchronize(stream));
  {
    DLTensor view = {.data = tokens, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}, .shape = shape};
    eng_tensor_in field = {.struct_size = sizeof(field), .name = "tokens", .borrowed = &view};
    check(eng_session_evaluate(run, &field, 1, 0, &eval, &sink));
  }
  need(fabs(eval.loss - log((double)info.vocabulary)) < 1e-5, "what was written on the device counts");
  /* The tensor keeps its memory after the session. */
  check(eng_session_close(run, &sink)), check(eng_session_close(other, &sink));
  cuda(cudaMemcpyAsync(tokens, norm->dl_tensor.data, sizeof(last), cudaMemcpyDeviceToHost, stream));
  cuda(cudaStreamSynchronize(stream));
  memcpy(&last, tokens, sizeof(last));
  need(last == 0, "a tensor outlives its session");
  norm->deleter(norm);
  cuda(cudaFree(device_tokens)), cuda(cudaFreeHost(tokens)), cuda(cudaStreamDestroy(stream));
  puts("streams of the program and of the engine agree");
  return 0;
}
