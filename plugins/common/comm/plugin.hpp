// SPDX-License-Identifier: Apache-2.0
// A plugin with one communicator and its collectives, made from a class:
//
//   using Functions = common::CommFunctions<Comm>;
//   const eng_comm comm_table = Functions::table(flags, create, overhead_bytes);
//   ... common::CommPlugin<Comm, comm_table, collectives, name, eng_description>::plugin ...
#pragma once

#include <memory>

#include "../error.hpp"
#include "../plugin.hpp"
#include "engine/comm.h"

namespace common {

// All of eng_comm but `create`, which ends with adopt().
template <class Comm>
struct CommFunctions {
  inline static Comm* living = nullptr;  // a process has one at most

  static void* adopt(std::unique_ptr<Comm> made) { return living = made.release(); }
  static void destroy(void* self) {
    living = nullptr;
    delete static_cast<Comm*>(self);
  }
  static eng_status group(void* self, eng_id id, const uint32_t* ranks, uint32_t n, eng_error* error) {
    return guarded(error, [&] { of(self).make_group(id, ranks, n); });
  }
  static eng_status exchange(void* self, const void* mine, uint64_t bytes, void* all, eng_error* error) {
    return guarded(error, [&] { of(self).exchange_bytes(mine, bytes, all); });
  }
  static eng_status poll(void* self, eng_error* error) {
    return guarded(error, [&] { of(self).poll(); });
  }
  static void abort(void* self, const char* reason) {
    guarded(nullptr, [&] { of(self).abort(reason); });
  }
  static constexpr eng_comm table(uint32_t flags, decltype(eng_comm::create) create, uint64_t overhead_bytes) {
    return {.struct_size = sizeof(eng_comm),
            .flags = flags,
            .create = create,
            .destroy = destroy,
            .group = group,
            .exchange = exchange,
            .poll = poll,
            .abort = abort,
            .overhead_bytes = overhead_bytes};
  }

 private:
  static Comm& of(void* self) { return *static_cast<Comm*>(self); }
};

// Both are provided under `name`.
template <class Comm, const eng_comm& comm, const eng_kernels& kernels, const char* name, const char* description>
struct CommPlugin {
  static const char* describe() { return description; }
  static void stop() {
    if (Comm* living = CommFunctions<Comm>::living) living->silence();  // the process ends while a communicator exists
  }
  static const void* get_interface(const char* kind, const char* asked) {
    const Asked is{kind, asked};
    return is(ENG_COMM_KIND, name) ? static_cast<const void*>(&comm) : is(ENG_KERNELS_KIND, name) ? &kernels : nullptr;
  }
  static constexpr eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start_nothing, stop, get_interface};
};

}  // namespace common
