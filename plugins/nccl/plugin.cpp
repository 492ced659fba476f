// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "collectives.hpp"
#include "comm.hpp"

ENG_DESCRIPTION(R"toml([plugin]
id = 'eng.nccl'
name = 'nccl'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Many ranks with one GPU each, joined by NCCL'

[[provides]]
kind = 'eng.comm/1'
name = 'nccl'
summary = 'The ranks that any launcher started; moves memory of GPUs. Not yet run on a GPU'

[provides.options.address]
type = 'string'
default = '127.0.0.1'
help = 'where rank 0 listens and the others find it; MASTER_ADDR comes first, where it is set'

[provides.options.port]
type = 'int'
default = 29500
min = 1
max = 65535
help = 'the port there; MASTER_PORT comes first, where it is set'

[[provides]]
kind = 'eng.kernels/1'
name = 'nccl'
summary = 'all_gather, all_to_all and broadcast of any dtype; reduce_scatter and all_reduce of floats, summed by NCCL'
)toml")

namespace {

using common::guarded;
using nccl::Comm;

Comm* living = nullptr;  // a process has one at most

Comm& comm(void* self) {
  return *static_cast<Comm*>(self);
}

eng_status create(const eng_options* options, double deadline, eng_world* out, void** self, eng_error* error) {
  const char* address = nullptr;
  int64_t port = 0;
  if (const eng_status s = options->get_string(options, "address", &address, error)) return s;
  if (const eng_status s = options->get_int(options, "port", &port, error)) return s;
  return guarded(error, [&] {
    if (living) throw nccl::Error{ENG_PRECONDITION, "this process has already joined the other ranks"};
    eng_world world = *out;
    constexpr double most = 1e9;  // seconds: what clocks count
    auto made = std::make_unique<Comm>(*out, address, static_cast<uint16_t>(port), std::min(deadline, most), world);
    made->take_gpu();
    living = made.release();
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
                             .flags = ENG_COMM_DEVICE_MEMORY | ENG_COMM_ANY_LAUNCHER,
                             .create = create,
                             .destroy = destroy,
                             .group = group,
                             .exchange = exchange,
                             .poll = poll,
                             .abort = abort,
                             .overhead_bytes = uint64_t{256} << 20};  // assumed: not yet measured on a GPU

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
  if (std::strcmp(name, "nccl") != 0) return nullptr;
  if (std::strcmp(kind, ENG_COMM_KIND) == 0) return &comm_table;
  if (std::strcmp(kind, ENG_KERNELS_KIND) == 0) return &nccl::collectives;
  return nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
