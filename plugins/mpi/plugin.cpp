// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin.h"

#include <climits>
#include <cstring>
#include <memory>

#include "collectives.hpp"
#include "comm.hpp"

ENG_DESCRIPTION(R"toml([plugin]
id = 'eng.mpi'
name = 'mpi'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Many ranks, joined by Open MPI'

[[provides]]
kind = 'eng.comm/1'
name = 'mpi'
summary = 'The ranks that one mpirun or srun started; moves host memory'

[provides.options.message_bytes]
type = 'bytes'
default = '64MiB'
min = 1
max = '2047MiB'
help = 'Largest message; longer transfers are split into several'

[[provides]]
kind = 'eng.kernels/1'
name = 'mpi'
summary = 'all_gather, all_to_all and broadcast of any dtype; reduce_scatter and all_reduce of f32 and f64, summed by MPI'
)toml")

namespace {

using common::guarded;
using mpi::Comm;

Comm* living = nullptr;  // a process has one at most

Comm& comm(void* self) {
  return *static_cast<Comm*>(self);
}

eng_status create(const eng_options* options, double deadline, eng_world* out, void** self, eng_error* error) {
  int64_t message_bytes = 0;
  if (const eng_status s = options->get_int(options, "message_bytes", &message_bytes, error)) return s;
  return guarded(error, [&] {
    eng_world world = *out;
    living = new Comm(deadline, static_cast<uint64_t>(message_bytes), world);
    *out = world;
    *self = living;
  });
}

void destroy(void* self) {
  living = nullptr;
  delete static_cast<Comm*>(self);
}

eng_status group(void* self, eng_id id, const uint32_t* ranks, uint32_t n, eng_error* error) {
  return guarded(error, [&] { comm(self).make_group(id, ranks, n); });
}

eng_status exchange(void* self, const void* mine, uint64_t bytes, void* all, eng_error* error) {
  return guarded(error, [&] { comm(self).exchange_bytes(mine, bytes, all); });
}

eng_status poll(void* self, eng_error* error) {
  return guarded(error, [&] { comm(self).poll(); });
}

void abort(void* self, const char* reason) {
  guarded(nullptr, [&] { comm(self).abort(reason); });
}

const eng_comm comm_table = {.struct_size = sizeof(eng_comm),
                             .flags = 0,
                             .create = create,
                             .destroy = destroy,
                             .group = group,
                             .exchange = exchange,
                             .poll = poll,
                             .abort = abort,
                             .overhead_bytes = 11350000};

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {
  if (living) living->silence();  // the process ends while a communicator exists
}
const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "mpi") != 0) return nullptr;
  if (std::strcmp(kind, ENG_COMM_KIND) == 0) return &comm_table;
  if (std::strcmp(kind, ENG_KERNELS_KIND) == 0) return &mpi::collectives;
  return nullptr;
}

const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                           .abi_minor = ENG_ABI_MINOR,
                           .draft_id = ENG_ABI_DRAFT_ID,
                           .describe = describe,
                           .start = start,
                           .stop = stop,
                           .get_interface = get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
