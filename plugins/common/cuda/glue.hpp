// SPDX-License-Identifier: Apache-2.0
// Makes an eng_kernel from a small class, as plugins/common/kernel.hpp does for devices of the host:
//
//   struct Add {
//     static constexpr const char* op = ENG_OP_ADD;
//     static constexpr uint32_t flags = 0;                     // optional: ENG_KERNEL_EXACT, which the base Exact says
//     static void check(const Call&);                          // optional: throws Error
//     static uint64_t workspace(const Call&);                  // optional: bytes
//     explicit Add(const Call&);                               // prepare; or Add(const Call&, void* device); or none
//     void run(const Args&, cudaStream_t) const;               // enqueues; or run(const Call&, const Args&,
//   };                                                         // cudaStream_t): shapes and types need no members
#pragma once

#include <vector>

#include "../kernel.hpp"
#include "device.cuh"
#include "launch.hpp"

namespace cuda {

using List = std::vector<const eng_kernel*>;

// The base of kernels that give the bits of the CPU.
struct Exact {
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
};

// A kernel, the call and the device that it was prepared for, and a launch on a queue of it.
template <class K>
struct Placed : K {
  static constexpr bool from_device = std::is_constructible_v<K, const Call&, void*>;
  static constexpr bool from_call = !from_device && std::is_constructible_v<K, const Call&>;
  Placed(const Call& c, void* on) requires from_device : K(c, on), call(c), device(on) {}
  Placed(const Call& c, void* on) requires from_call : K(c), call(c), device(on) {}
  Placed(const Call& c, void* on) requires(!from_device && !from_call) : call(c), device(on) {
    static_assert(std::is_empty_v<K>, "members are made from the call");
  }
  const Call& call;  // lives as long as this
  void* device;

  struct Bound {
    const Placed& kernel;
    Args args;
    Bound(const Placed& k, const Args& a) : kernel(k), args(a) {}
    void run(const eng_exec& exec) const {
      enter(kernel.device, exec);
      const auto stream = static_cast<cudaStream_t>(exec.queue);
      if constexpr (requires { kernel.run(kernel.call, args, stream); })
        kernel.run(kernel.call, args, stream);
      else
        kernel.run(args, stream);
      finish(kernel.device, exec);
    }
  };
};

template <class K>
inline constexpr const eng_kernel& kernel = common::kernel<Placed<K>>;

}  // namespace cuda
