// SPDX-License-Identifier: Apache-2.0
// Makes an eng_kernel from a small class, as plugins/common/kernel.hpp does for devices of the host:
//
//   struct Add {
//     static constexpr const char* op = ENG_OP_ADD;
//     static constexpr uint32_t flags = 0;                     // optional: ENG_KERNEL_EXACT
//     static void check(const Call&);                          // optional: throws Error
//     static uint64_t workspace(const Call&);                  // optional: bytes
//     explicit Add(const Call&);
//     void run(const Args&, cudaStream_t) const;               // enqueues
//   };
#pragma once

#include <vector>

#include "../kernel.hpp"
#include "device.cuh"
#include "launch.hpp"

namespace cuda {

using List = std::vector<const eng_kernel*>;

// A kernel and the device that it was prepared for.
template <class K>
struct Placed {
  static constexpr const char* op = K::op;
  static constexpr uint32_t flags = [] {
    if constexpr (requires { K::flags; })
      return K::flags;
    else
      return 0u;
  }();
  static void check(const Call& c) {
    if constexpr (requires { K::check(c); }) K::check(c);
  }
  static uint64_t workspace(const Call& c) {
    if constexpr (requires { K::workspace(c); })
      return K::workspace(c);
    else
      return 0;
  }
  Placed(const Call& c, void* on) : kernel(c), device(on) {}
  K kernel;
  void* device;
};

template <class K>
eng_status launch_kernel(void* record, const eng_exec* exec, eng_error* sink) {
  using Record = typename cpu::KernelGlue<Placed<K>>::Record;
  Record* r = static_cast<Record*>(record);
  return common::guarded(
      sink, [&] { return r->state->call.text(); },
      [&] {
        const Placed<K>& placed = r->bound.kernel;
        enter(placed.device, *exec);
        placed.kernel.run(r->bound.args, static_cast<cudaStream_t>(exec->queue));
        finish(placed.device, *exec);
      });
}

template <class K, class Glue = cpu::KernelGlue<Placed<K>>>
inline constexpr eng_kernel kernel = {.struct_size = sizeof(eng_kernel),
                                      .flags = Placed<K>::flags,
                                      .op = K::op,
                                      .workspace = Glue::workspace,
                                      .prepare = Glue::prepare,
                                      .bind = Glue::bind,
                                      .launch = launch_kernel<K>,
                                      .drop_record = Glue::drop_record,
                                      .drop_state = Glue::drop_state};

}  // namespace cuda
