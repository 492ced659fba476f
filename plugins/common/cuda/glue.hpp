// SPDX-License-Identifier: Apache-2.0
// Makes an eng_kernel from a small class, as plugins/common/kernel.hpp does for devices of the host:
//
//   struct Add {
//     static constexpr const char* op = ENG_OP_ADD;
//     static constexpr uint32_t flags = 0;                     // optional: ENG_KERNEL_EXACT
//     static void check(const Call&);                          // optional: throws Error
//     static uint64_t workspace(const Call&);                  // optional: bytes
//     explicit Add(const Call&);                              // prepare; or Add(const Call&, void* device)
//     void run(const Args&, cudaStream_t) const;               // enqueues
//   };
#pragma once

#include <vector>

#include "../kernel.hpp"
#include "device.cuh"
#include "launch.hpp"

namespace cuda {

using List = std::vector<const eng_kernel*>;

// A kernel, the device that it was prepared for, and a launch on a queue of it.
template <class K>
struct Placed : K {
  Placed(const Call& c, void* on) : K(c), device(on) {}
  Placed(const Call& c, void* on) requires std::is_constructible_v<K, const Call&, void*> : K(c, on), device(on) {}
  void* device;

  struct Bound {
    const Placed& kernel;
    Args args;
    Bound(const Placed& k, const Args& a) : kernel(k), args(a) {}
    void run(const eng_exec& exec) const {
      enter(kernel.device, exec);
      kernel.run(args, static_cast<cudaStream_t>(exec.queue));
      finish(kernel.device, exec);
    }
  };
};

template <class K>
inline constexpr const eng_kernel& kernel = cpu::kernel<Placed<K>>;

}  // namespace cuda
