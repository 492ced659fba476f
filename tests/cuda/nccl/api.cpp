// SPDX-License-Identifier: Apache-2.0
// The part of NCCL's interface that the plugin uses, in software: libnccl.so.2 for tests, on the software CUDA runtime.
// Several processes of one machine. Nothing here says anything about a GPU, a network, or speed.
//   SOFTNCCL_FAIL     N: the Nth piece of work of this process fails later, as a lost connection does
//   SOFTNCCL_SECONDS  the longest wait, for tests that nobody ends (120)
//   SOFTNCCL_VERSION  its version, that of the header by default. From 23000 on ranks may have the same GPU, with
//                     NCCL_MULTI_RANK_GPU_ENABLE=1
#include <cuda_runtime_api.h>

#include <string>

#include "shared.hpp"

using namespace softnccl;

struct ncclComm {
  std::shared_ptr<Soft> soft;
};

namespace {

thread_local std::string last;  // of calls without a communicator
thread_local int depth = 0;
struct Pending {
  Job job;
  cudaStream_t stream;
};
thread_local std::vector<Pending> pending;

ncclResult_t wrong(const std::string& what) {
  last = what;
  return ncclInvalidArgument;
}

void CUDART_CB run(void* job) {
  static_cast<Job*>(job)->run();
}
void CUDART_CB run_once(void* job) {
  const std::unique_ptr<Job> owned(static_cast<Job*>(job));
  owned->run();
}

ncclResult_t enqueue(Job job, cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) return ncclUnhandledCudaError;
  const std::shared_ptr<Soft> soft = job.soft;
  if (status == cudaStreamCaptureStatusNone) {
    auto* once = new Job(std::move(job));
    return cudaLaunchHostFunc(stream, run_once, once) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  }
  auto kept = std::make_shared<Job>(std::move(job));
  const std::lock_guard lock(soft->mutex);
  soft->graphs.push_back(kept);
  return cudaLaunchHostFunc(stream, run, kept.get()) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t check_comm(ncclComm_t comm) {
  if (!comm) return wrong("no communicator");
  int device = -1;
  cudaGetDevice(&device);
  if (device != comm->soft->device) return wrong("the GPU of this thread is not that of the communicator");
  return comm->soft->error;
}
// A real NCCL would crash.
ncclResult_t check_memory(const void* address) {
  cudaPointerAttributes a{};
  if (cudaPointerGetAttributes(&a, address) != cudaSuccess || a.type == cudaMemoryTypeUnregistered)
    return wrong("pageable memory of the host");
  return ncclSuccess;
}

ncclResult_t put(Job job, ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t error = check_comm(comm)) return error;
  for (const void* address : {static_cast<const void*>(job.in), static_cast<const void*>(job.out)})
    if (const ncclResult_t error = address && job.count ? check_memory(address) : ncclSuccess) return error;
  if (depth) return wrong("this NCCL has no groups of collectives");
  job.soft = comm->soft;
  return enqueue(std::move(job), stream);
}

ncclResult_t put_message(bool send, const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream) {
  if (const ncclResult_t error = check_comm(comm)) return error;
  if (peer < 0 || peer >= comm->soft->size) return wrong("no such peer");
  if (const ncclResult_t error = count ? check_memory(data) : ncclSuccess) return error;
  if (!depth) return wrong("this NCCL has messages in groups only");
  if (pending.empty() || pending.back().job.soft != comm->soft || pending.back().stream != stream) {
    pending.push_back({Job{}, stream});
    pending.back().job.soft = comm->soft;
  }
  pending.back().job.messages.push_back(
      {send, peer, static_cast<char*>(const_cast<void*>(data)), count * size_of(type)});
  return ncclSuccess;
}

Job collective(Kind kind, const void* in, void* out, uint64_t count, ncclDataType_t type, int root = 0) {
  Job job;
  job.kind = kind, job.in = static_cast<const char*>(in), job.out = static_cast<char*>(out);
  job.count = count, job.type = type, job.root = root;
  return job;
}

bool can_sum(ncclDataType_t type, ncclRedOp_t op) {
  return op == ncclSum && (type == ncclFloat32 || type == ncclFloat64 || type == ncclBfloat16);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = softnccl::version();
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = new_id();
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int n, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
  if (config && (config->size != known.size || config->magic != known.magic || config->version != known.version))
    return wrong("the configuration was not initialised");
  if (n < 1 || n > most_ranks || rank < 0 || rank >= n) return wrong("no such rank");
  auto soft = std::make_shared<Soft>();
  soft->rank = rank, soft->size = n;
  if (cudaGetDevice(&soft->device) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) return ncclUnhandledCudaError;
  if (const ncclResult_t error = join(*soft, id)) {
    last = soft->text;
    return error;
  }
  *out = new ncclComm{std::move(soft)};
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->soft->ended = true;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->soft->error;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  static const char* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return static_cast<size_t>(result) < std::size(texts) ? texts[result] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t comm) {
  if (!comm || comm->soft->error == ncclSuccess) return last.c_str();
  return comm->soft->text.c_str();  // does not change any more
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return put(collective(Kind::all_gather, in, out, count, type), comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return put(collective(Kind::broadcast, in, out, count, type, root), comm, stream);
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (!can_sum(type, op)) return wrong("this NCCL sums f32, f64 and bf16");
  return put(collective(Kind::all_reduce, in, out, count, type), comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  if (!can_sum(type, op)) return wrong("this NCCL sums f32, f64 and bf16");
  return put(collective(Kind::reduce_scatter, in, out, count, type), comm, stream);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return put_message(true, data, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return put_message(false, data, count, type, peer, comm, stream);
}
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth) return ncclSuccess;
  ncclResult_t first = ncclSuccess;
  for (Pending& one : pending)
    if (const ncclResult_t error = enqueue(std::move(one.job), one.stream); !first) first = error;
  pending.clear();
  return first;
}
}
