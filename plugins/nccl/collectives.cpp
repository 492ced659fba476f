// SPDX-License-Identifier: Apache-2.0
// The collectives as kernels that enqueue. Bytes are moved as bytes; all_to_all is a group of sends and receives, so
// that the sum over ranks stays a kernel of the device, in the order that the strategy wants.
#include "collectives.hpp"

#include "../common/comm/collective.hpp"
#include "comm.hpp"

namespace nccl {
namespace {

using common::Args;
using common::Call;

struct Collective : common::Collective<Comm> {
  using common::Collective<Comm>::Collective;
  static void check(const Call& call) {
    if (call.device.struct_size && call.device.dl_device_type != kDLCUDA)
      throw Error{ENG_UNSUPPORTED,
                  "NCCL moves memory of GPUs: [comm] plugin = \"nccl\" needs [device] plugin = "
                  "\"cuda\", other devices need \"mpi\""};
  }
};

// The part that all bound collectives share: addresses, and how they are enqueued. Lives as long as captured graphs
// with it.
template <class K>
struct Enqueued {
  const K& k;
  const char* in;
  char* out;
  Enqueued(const K& kernel, const Args& args) : k(kernel), in(args.in<char>(0)), out(args.out<char>(0)) {}
  void run(const eng_exec& exec) {
    const auto stream = static_cast<cudaStream_t>(exec.queue);
    const auto mark = [&](cudaHostFn_t when) {
      nccl::check(cudaLaunchHostFunc(stream, when, this), "enqueuing a mark");
    };
    k.comm.enqueue(k.group, [&](ncclComm_t comm) {
      mark([](void* self) { of(self).comm.entered(of(self).group, of(self).what); });
      if (k.in_bytes) k.put(*this, comm, stream);
      mark([](void* self) { of(self).comm.left(of(self).group); });
    });
    if (!(exec.flags & ENG_EXEC_SYNC)) return;
    nccl::check(cudaStreamSynchronize(stream), "waiting for a collective");
    k.comm.poll();
  }
  static const K& of(void* self) { return static_cast<Enqueued*>(self)->k; }
};

struct AllGather : Collective {
  static constexpr const char* op = ENG_OP_ALL_GATHER;
  using Bound = Enqueued<AllGather>;
  AllGather(const Call& call, void* on) : Collective(call, on, What::all_gather) {}
  void put(const Bound& b, ncclComm_t to, cudaStream_t stream) const {
    nccl::check(ncclAllGather(b.in, b.out, in_bytes, ncclUint8, to, stream), "ncclAllGather", to);
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
    nccl::check(ncclGroupStart(), "ncclGroupStart");
    ncclResult_t first = ncclSuccess;
    for (uint32_t m = 0; m < n; ++m) {
      const int peer = static_cast<int>(m);
      for (const ncclResult_t r : {ncclSend(b.in + m * part, part, ncclUint8, peer, to, stream),
                                   ncclRecv(b.out + m * part, part, ncclUint8, peer, to, stream)})
        if (first == ncclSuccess) first = r;
    }
    const ncclResult_t ended = ncclGroupEnd();  // also after an error
    nccl::check(first, "ncclSend, ncclRecv", to);
    nccl::check(ended, "ncclGroupEnd", to);
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
    nccl::check(ncclBroadcast(from, b.out, in_bytes, ncclUint8, root, to, stream), "ncclBroadcast", to);
  }
};

// NCCL's own sums, for [comm] reduce = "fast".
struct Reduction : Collective {
  ncclDataType_t type;
  uint64_t size;
  Reduction(const Call& call, void* on, What w)
      : Collective(call, on, w), type(type_of(call.in[0].dtype)), size(common::dtype_size(call.in[0].dtype)) {}
  static void check(const Call& call) {
    Collective::check(call);
    type_of(call.in.at(0).dtype);
  }
  static ncclDataType_t type_of(int32_t dtype) {
    constexpr std::pair<int32_t, ncclDataType_t> types[] = {
        {ENG_F32, ncclFloat32}, {ENG_F64, ncclFloat64}, {ENG_BF16, ncclBfloat16}, {ENG_F16, ncclFloat16}};
    for (const auto& [ours, theirs] : types)
      if (ours == dtype) return theirs;
    throw Error{ENG_UNSUPPORTED, "NCCL sums f32, f64, bf16 and f16 here; [comm] reduce = \"tree\" sums every dtype"};
  }
};

struct AllReduce : Reduction {
  static constexpr const char* op = ENG_OP_ALL_REDUCE;
  using Bound = Enqueued<AllReduce>;
  AllReduce(const Call& call, void* on) : Reduction(call, on, What::all_reduce) {}
  void put(const Bound& b, ncclComm_t to, cudaStream_t stream) const {
    nccl::check(ncclAllReduce(b.in, b.out, in_bytes / size, type, ncclSum, to, stream), "ncclAllReduce", to);
  }
};

struct ReduceScatter : Reduction {
  static constexpr const char* op = ENG_OP_REDUCE_SCATTER;
  using Bound = Enqueued<ReduceScatter>;
  ReduceScatter(const Call& call, void* on) : Reduction(call, on, What::reduce_scatter) {}
  void put(const Bound& b, ncclComm_t to, cudaStream_t stream) const {
    nccl::check(ncclReduceScatter(b.in, b.out, out_bytes / size, type, ncclSum, to, stream), "ncclReduceScatter", to);
  }
};

}  // namespace

const eng_kernels collectives = common::collective_table<AllGather, AllToAll, Broadcast, ReduceScatter, AllReduce>;

}  // namespace nccl
