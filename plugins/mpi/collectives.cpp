// SPDX-License-Identifier: Apache-2.0
// The collectives as kernels. Those that move bytes consist of messages between all pairs, started together. A
// broadcast goes down a binomial tree.
#include "collectives.hpp"

#include <climits>
#include <cstring>
#include <vector>

#include "../common/comm/collective.hpp"
#include "comm.hpp"

namespace mpi {
namespace {

using common::Args;
using common::Call;

struct Collective : common::Collective<Comm> {
  using common::Collective<Comm>::Collective;
  // Each op of each group has its own number: ranks that call different ones wait, and report it, but never mix up
  // their bytes.
  int tag() const { return static_cast<int>(group.id * ops_per_group + static_cast<uint32_t>(what)); }
};

// Messages that live as long as the bound call.
struct Bundle {
  const Collective& c;
  Messages messages;
  explicit Bundle(const Collective& collective) : c(collective) {}
  ~Bundle() { c.comm.drop(messages); }
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;
  void send(const void* data, uint64_t bytes, uint32_t member) {
    c.comm.add_send(messages, data, bytes, c.group.ranks[member], c.tag(), c.comm.step());
  }
  void receive(void* data, uint64_t bytes, uint32_t member) {
    c.comm.add_receive(messages, data, bytes, c.group.ranks[member], c.tag(), c.comm.step());
  }
  void run() { c.comm.run(messages, c.group); }
};

void move(void* to, const void* from, uint64_t bytes) {
  if (to != from && bytes) std::memcpy(to, from, bytes);
}

// Every member sends one part to each member, and receives one. `step` is the number of bytes between what goes to one
// member and what goes to the next: 0 where all get the same.
struct Parts {
  const Collective& k;
  const uint64_t part;
  const char* from_own;
  char* to_own;
  Bundle bundle;
  Parts(const Collective& kernel, const Args& args, uint64_t bytes, uint64_t step)
      : k(kernel),
        part(bytes),
        from_own(args.in<char>(0) + k.self * step),
        to_own(args.out<char>(0) + k.self * part),
        bundle(kernel) {
    // Each rank starts with its next neighbour, so that not all send to the same rank first.
    for (uint32_t d = 1; d < k.n; ++d) {
      const uint32_t from = (k.self + k.n - d) % k.n;
      bundle.receive(args.out<char>(0) + from * part, part, from);
    }
    for (uint32_t d = 1; d < k.n; ++d) {
      const uint32_t to = (k.self + d) % k.n;
      bundle.send(args.in<char>(0) + to * step, part, to);
    }
  }
  void run(const eng_exec&) {
    const Comm::Round round(k.comm, k.group, k.what);
    bundle.run();
    move(to_own, from_own, part);
  }
};

struct AllGather : Collective {
  static constexpr const char* op = ENG_OP_ALL_GATHER;
  AllGather(const Call& call, void* device) : Collective(call, device, What::all_gather) {}
  struct Bound : Parts {
    Bound(const AllGather& kernel, const Args& args) : Parts(kernel, args, kernel.in_bytes, 0) {}
  };
};

struct AllToAll : Collective {
  static constexpr const char* op = ENG_OP_ALL_TO_ALL;
  AllToAll(const Call& call, void* device) : Collective(call, device, What::all_to_all) {}
  struct Bound : Parts {
    Bound(const AllToAll& kernel, const Args& args)
        : Parts(kernel, args, kernel.in_bytes / kernel.n, kernel.in_bytes / kernel.n) {
      kernel.need(args.in<char>(0) != args.out<char>(0) || !part, "input and output must be different memory");
    }
  };
};

struct Broadcast : Collective {
  static constexpr const char* op = ENG_OP_BROADCAST;
  uint32_t root;
  Broadcast(const Call& call, void* device)
      : Collective(call, device, What::broadcast), root(static_cast<uint32_t>(call.integer("root"))) {}
  struct Bound {
    const Broadcast& k;
    const void* in;  // NULL: not the root
    char* out;
    Bundle above, below;
    // Places count from the root. Place p receives from the place that is p without its lowest set bit, and sends to p
    // + 1, p + 2, p + 4 ... below that bit.
    Bound(const Broadcast& kernel, const Args& args)
        : k(kernel), in(nullptr), out(args.out<char>(0)), above(kernel), below(kernel) {
      const uint32_t place = (k.self + k.n - k.root) % k.n;
      const auto member = [&](uint32_t p) { return (p + k.root) % k.n; };
      uint32_t low = 1;
      while (low < k.n && !(place & low)) low *= 2;
      if (place)
        above.receive(out, k.out_bytes, member(place - low));
      else
        in = args.in<char>(0);
      while (low /= 2)
        if (place + low < k.n) below.send(out, k.out_bytes, member(place + low));
    }
    void run(const eng_exec&) {
      const Comm::Round round(k.comm, k.group, k.what);
      if (in) move(out, in, k.out_bytes);
      above.run();
      below.run();
    }
  };
};

MPI_Datatype type_of(int32_t dtype) {
  if (dtype == ENG_F32) return MPI_FLOAT;
  if (dtype == ENG_F64) return MPI_DOUBLE;
  throw Error{ENG_UNSUPPORTED, "MPI sums f32 and f64 only; [comm] reduce = \"tree\" sums every dtype"};
}

// The part that both reductions share.
struct Reduction : Collective {
  MPI_Datatype type;
  uint64_t size;
  MPI_Comm library;
  Reduction(const Call& call, void* device, What w)
      : Collective(call, device, w),
        type(type_of(call.in[0].dtype)),
        size(common::dtype_size(call.in[0].dtype)),
        library(group.library) {}
  struct Pending {
    const Reduction& k;
    MPI_Request request = MPI_REQUEST_NULL;
    explicit Pending(const Reduction& kernel) : k(kernel) {}
    ~Pending() {
      if (request != MPI_REQUEST_NULL) k.comm.fall_silent();
    }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
  };
};

struct AllReduce : Reduction {
  static constexpr const char* op = ENG_OP_ALL_REDUCE;
  AllReduce(const Call& call, void* device) : Reduction(call, device, What::all_reduce) {}
  struct Bound : Pending {
    const AllReduce& k;
    const char* in;
    char* out;
    Bound(const AllReduce& kernel, const Args& args)
        : Pending(kernel), k(kernel), in(args.in<char>(0)), out(args.out<char>(0)) {}
    void run(const eng_exec&) {
      const Comm::Round round(k.comm, k.group, k.what);
      const uint64_t total = k.in_bytes / k.size, most = std::max<uint64_t>(k.comm.message_bytes() / k.size, 1);
      for (uint64_t at = 0; at < total; at += most) {
        const int count = static_cast<int>(std::min(most, total - at));
        char* to = out + at * k.size;
        const void* from = in == out ? MPI_IN_PLACE : in + at * k.size;
        k.comm.run_library(k.group, request, [&] {
          check(MPI_Iallreduce(from, to, count, k.type, MPI_SUM, k.library, &request), "MPI_Iallreduce");
        });
      }
    }
  };
};

struct ReduceScatter : Reduction {
  static constexpr const char* op = ENG_OP_REDUCE_SCATTER;
  ReduceScatter(const Call& call, void* device) : Reduction(call, device, What::reduce_scatter) {
    if (in_bytes / size > INT_MAX)
      throw Error{ENG_UNSUPPORTED, "MPI sums up to 2^31 elements at once: give [zero] bucket a smaller size"};
  }
  struct Bound : Pending {
    const ReduceScatter& k;
    const char* in;
    char* out;
    Bound(const ReduceScatter& kernel, const Args& args)
        : Pending(kernel), k(kernel), in(args.in<char>(0)), out(args.out<char>(0)) {}
    void run(const eng_exec&) {
      const Comm::Round round(k.comm, k.group, k.what);
      const int count = static_cast<int>(k.out_bytes / k.size);
      k.comm.run_library(k.group, request, [&] {
        check(MPI_Ireduce_scatter_block(in, out, count, k.type, MPI_SUM, k.library, &request),
              "MPI_Ireduce_scatter_block");
      });
    }
  };
};

}  // namespace

const eng_kernels collectives = common::collective_table<AllGather, AllToAll, Broadcast, ReduceScatter, AllReduce>;

}  // namespace mpi
