// SPDX-License-Identifier: Apache-2.0
// The collectives as kernels that enqueue. Bytes are moved as bytes; all_to_all is a group of sends and receives, so
// that the sum over ranks stays a kernel of the device, in the order that the strategy wants.
#include "collectives.hpp"

#include <iterator>

#include "../common/comm/collective.hpp"
#include "../common/kernel.hpp"
#include "comm.hpp"

namespace nccl {
namespace {

using cpu::Args;
using cpu::Call;

using Collective = common::Collective<Comm>;

// What all bound ones have: addresses, and the marks around what is enqueued.
template <class K>
struct Enqueued {
  const K& k;
  const char* in;
  char* out;
  Mark mark;
  Enqueued(const K& kernel, const Args& args)
      : k(kernel), in(args.in<char>(0)), out(args.out<char>(0)), mark(kernel.comm, kernel.group, kernel.what) {}
  void run(cudaStream_t stream) {
    k.comm.enqueue(k.group, [&](ncclComm_t comm) {
      mark.before(stream);
      if (k.in_bytes) k.put(*this, comm, stream);
      mark.after(stream);
    });
  }
};

struct AllGather : Collective {
  static constexpr const char* op = ENG_OP_ALL_GATHER;
  using Bound = Enqueued<AllGather>;
  AllGather(const Call& call, void* on) : Collective(call, on, What::all_gather) {}
  void put(const Bound& b, ncclComm_t to, cudaStream_t stream) const {
    check(ncclAllGather(b.in, b.out, in_bytes, ncclUint8, to, stream), "ncclAllGather", to);
  }
};

struct AllToAll : Collective {
  static constexpr const char* op = ENG_OP_ALL_TO_ALL;
  struct Bound : Enqueued<AllToAll> {
    Bound(const AllToAll& kernel, const Args& args) : Enqueued(kernel, args) {
      kernel.need(in != out || !kernel.in_bytes, "input and output must be different memory");
    }
  };
  AllToAll(const Call& call, void* on) : Collective(call, on, What::all_to_all) {}
  void put(const Enqueued<AllToAll>& b, ncclComm_t to, cudaStream_t stream) const {
    const uint64_t part = in_bytes / n;
    check(ncclGroupStart(), "ncclGroupStart");
    ncclResult_t first = ncclSuccess;
    for (uint32_t m = 0; m < n; ++m) {
      const int peer = static_cast<int>(m);
      for (const ncclResult_t r : {ncclSend(b.in + m * part, part, ncclUint8, peer, to, stream),
                                   ncclRecv(b.out + m * part, part, ncclUint8, peer, to, stream)})
        if (first == ncclSuccess) first = r;
    }
    const ncclResult_t ended = ncclGroupEnd();  // also after an error
    check(first, "ncclSend, ncclRecv", to);
    check(ended, "ncclGroupEnd", to);
  }
};

struct Broadcast : Collective {
  static constexpr const char* op = ENG_OP_BROADCAST;
  using Bound = Enqueued<Broadcast>;
  int root;
  Broadcast(const Call& call, void* on)
      : Collective(call, on, What::broadcast), root(static_cast<int>(call.integer("root"))) {}
  void put(const Bound& b, ncclComm_t to, cudaStream_t stream) const {
    // NCCL does not read the input of others than the root, but looks at its address.
    const char* from = static_cast<int>(self) == root ? b.in : b.out;
    check(ncclBroadcast(from, b.out, in_bytes, ncclUint8, root, to, stream), "ncclBroadcast", to);
  }
};

// NCCL's own sums, for [comm] reduce = "fast".
struct Reduction : Collective {
  ncclDataType_t type;
  uint64_t size;
  Reduction(const Call& call, void* on, What w)
      : Collective(call, on, w), type(type_of(call.in[0].dtype)), size(cpu::dtype_size(call.in[0].dtype)) {}
  static ncclDataType_t type_of(int32_t dtype) {
    switch (dtype) {
      case ENG_F32:
        return ncclFloat32;
      case ENG_F64:
        return ncclFloat64;
      case ENG_BF16:
        return ncclBfloat16;
      case ENG_F16:
        return ncclFloat16;
      default:
        throw Error{ENG_UNSUPPORTED,
                    "NCCL sums f32, f64, bf16 and f16 here; [comm] reduce = \"tree\" sums every dtype"};
    }
  }
};

struct AllReduce : Reduction {
  static constexpr const char* op = ENG_OP_ALL_REDUCE;
  using Bound = Enqueued<AllReduce>;
  AllReduce(const Call& call, void* on) : Reduction(call, on, What::all_reduce) {}
  void put(const Bound& b, ncclComm_t to, cudaStream_t stream) const {
    check(ncclAllReduce(b.in, b.out, in_bytes / size, type, ncclSum, to, stream), "ncclAllReduce", to);
  }
};

struct ReduceScatter : Reduction {
  static constexpr const char* op = ENG_OP_REDUCE_SCATTER;
  using Bound = Enqueued<ReduceScatter>;
  ReduceScatter(const Call& call, void* on) : Reduction(call, on, What::reduce_scatter) {}
  void put(const Bound& b, ncclComm_t to, cudaStream_t stream) const {
    check(ncclReduceScatter(b.in, b.out, out_bytes / size, type, ncclSum, to, stream), "ncclReduceScatter", to);
  }
};

template <class K>
eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* sink) {
  return common::guarded(
      sink, [&] { return Call(K::op, *call).text(); },
      [&] {
        if (call->device && call->device->dl_device_type != kDLCUDA)
          throw Error{ENG_UNSUPPORTED,
                      "NCCL moves memory of GPUs: [comm] plugin = \"nccl\" needs [device] plugin = "
                      "\"cuda\", other devices need \"mpi\""};
        if constexpr (std::is_base_of_v<Reduction, K>) Reduction::type_of(call->in[0].dtype);
        *bytes = 0;
      });
}

template <class K>
eng_status launch(void* record, const eng_exec* exec, eng_error* sink) {
  using Record = typename cpu::KernelGlue<K>::Record;
  // The text of a failure is complete; nothing is added to it.
  return common::guarded(sink, [&] {
    auto& bound = static_cast<Record*>(record)->bound;
    const auto stream = static_cast<cudaStream_t>(exec->queue);
    bound.run(stream);
    if (!(exec->flags & ENG_EXEC_SYNC)) return;
    check(cudaStreamSynchronize(stream), "waiting for a collective");
    bound.k.comm.poll();
  });
}

template <class K>
constexpr eng_kernel kernel = {.struct_size = sizeof(eng_kernel),
                               .flags = 0,
                               .op = K::op,
                               .workspace = workspace<K>,
                               .prepare = cpu::KernelGlue<K>::prepare,
                               .bind = cpu::KernelGlue<K>::bind,
                               .launch = launch<K>,
                               .drop_record = cpu::KernelGlue<K>::drop_record,
                               .drop_state = cpu::KernelGlue<K>::drop_state};

const eng_kernel* const all[] = {&kernel<AllGather>, &kernel<AllToAll>, &kernel<Broadcast>, &kernel<ReduceScatter>,
                                 &kernel<AllReduce>};

}  // namespace

const eng_kernels collectives = {
    .struct_size = sizeof(eng_kernels), .count = static_cast<uint32_t>(std::size(all)), .kernels = all};

}  // namespace nccl
