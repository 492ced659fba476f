// SPDX-License-Identifier: Apache-2.0
// The communicator "far_ranks": that of another plugin, with collectives that take memory of the device and run on its
// queues.
#include <array>
#include <cstring>
#include <map>

#include "engine/comm.h"
#include "far.hpp"

namespace far {
namespace {

constexpr size_t most_collectives = 8;
std::array<const eng_kernel*, most_collectives> collectives;
eng_comm comm_table{};

std::map<void*, uint64_t> binds;  // by communicator

struct Prepared {
  const eng_kernel* kernel;
  void *comm, *inner;
};

template <size_t K>
struct Between {
  static eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* sink) {
    return collectives[K]->workspace(call, bytes, sink);
  }
  static eng_status prepare(void* comm, const eng_call* call, void** state, eng_error* sink) {
    auto made = std::make_unique<Prepared>(Prepared{collectives[K], comm, nullptr});
    const eng_status status = collectives[K]->prepare(comm, call, &made->inner, sink);
    if (status == ENG_OK) *state = made.release();
    return status;
  }
};

eng_status bind_between(void* state, const DLTensor* const* args, uint32_t n, void*, void** record, eng_error* sink) {
  const Prepared& s = *static_cast<Prepared*>(state);
  return guarded(sink, [&] {
    std::vector<DLTensor> tensors(n);
    std::vector<const DLTensor*> list(n);
    for (uint32_t k = 0; k < n; ++k) {
      tensors[k] = *args[k];
      tensors[k].data = device_bytes_of(args[k]->data, 1);
      list[k] = &tensors[k];
    }
    auto made = std::make_unique<Record>();
    made->kernel = s.kernel, made->number = first_collective + binds[s.comm]++;
    if (s.kernel->bind(s.inner, list.data(), n, nullptr, &made->record, sink) != ENG_OK)
      throw Error{ENG_INVALID, std::string(s.kernel->op) + " cannot be bound"};
    made->fresh = fresh_bytes(list, n - 1);
    *record = made.release();
  });
}

eng_status launch_between(void* record, const eng_exec* exec, eng_error* sink) {
  return guarded(sink, [&] {
    auto* queue = static_cast<Queue*>(exec->queue);
    if (!queue) throw Error{ENG_PRECONDITION, "a collective without a queue"};
    queue->device->launch(*static_cast<Record*>(record), queue, (exec->flags & ENG_EXEC_SYNC) != 0);
  });
}

void drop_between(void* record) {
  const std::unique_ptr<Record> own(static_cast<Record*>(record));
  own->kernel->drop_record(own->record);
}

void drop_prepared(void* state) {
  const std::unique_ptr<Prepared> own(static_cast<Prepared*>(state));
  own->kernel->drop_state(own->inner);
}

template <size_t... K>
std::array<eng_kernel, most_collectives> between(std::index_sequence<K...>) {
  return {eng_kernel{sizeof(eng_kernel), 0, nullptr, Between<K>::workspace, Between<K>::prepare, bind_between,
                     launch_between, drop_between, drop_prepared}...};
}

std::array<eng_kernel, most_collectives> wrapped = between(std::make_index_sequence<most_collectives>());
std::array<const eng_kernel*, most_collectives> listed;
eng_kernels all_collectives = {sizeof(eng_kernels), 0, listed.data()};

}  // namespace

static void forget(void* self) {
  binds.erase(self);
  static_cast<const eng_comm*>(open_plugin(THREADS).get_interface(ENG_COMM_KIND, "threads"))->destroy(self);
}

const eng_comm* comm() {
  // The place of the inner one must be known before there are options: tests build it beside this file.
  if (!comm_table.struct_size) {
    const eng_plugin& plugin = open_plugin(THREADS);
    comm_table = *static_cast<const eng_comm*>(plugin.get_interface(ENG_COMM_KIND, "threads"));
    comm_table.flags |= ENG_COMM_DEVICE_MEMORY, comm_table.destroy = forget;
    const auto& kernels = *static_cast<const eng_kernels*>(plugin.get_interface(ENG_KERNELS_KIND, "threads"));
    for (uint32_t k = 0; k < kernels.count; ++k) {
      collectives[k] = kernels.kernels[k];
      wrapped[k].op = kernels.kernels[k]->op, listed[k] = &wrapped[k];
    }
    all_collectives.count = kernels.count;
  }
  return &comm_table;
}
const eng_kernels* comm_kernels() {
  comm();
  return &all_collectives;
}

}  // namespace far
