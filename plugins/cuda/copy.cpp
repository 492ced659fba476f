// SPDX-License-Identifier: Apache-2.0
// eng.copy/1 is one cudaMemcpyAsync. Memory of the host must be pinned: of pageable memory the call would be
// synchronous, or read what the host has changed meanwhile.
#include "../common/kernel.hpp"
#include "device.hpp"

namespace cuda {
namespace {

using common::Args;
using common::Call;

void need_reachable(const void* address, const char* what) {
  cudaPointerAttributes a{};
  check(cudaPointerGetAttributes(&a, address), "asking whose memory an address is");
  if (a.type == cudaMemoryTypeUnregistered)
    throw Error{ENG_INVALID,
                std::string(what) +
                    " is in pageable host memory: a queue copies only memory of the device and memory that "
                    "the device allocated as pinned or was given to pin"};
}

struct Copy {
  static constexpr const char* op = ENG_OP_COPY;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  static void check(const Call& c) {
    if (c.in.size() != 1 || c.out.size() != 1) throw Error{ENG_INVALID, "takes one tensor and gives one"};
    if (c.in[0].dtype != c.out[0].dtype || common::elements(c.in[0]) != common::elements(c.out[0]))
      throw Error{ENG_INVALID, "x and its copy must have the same type and shape"};
  }
  Device& device;
  uint64_t bytes;
  Copy(const Call& c, void* on)
      : device(of(on)), bytes(static_cast<uint64_t>(common::elements(c.out[0])) * common::dtype_size(c.out[0].dtype)) {}

  struct Bound {
    const Copy& k;
    void* to;
    const void* from;
    Bound(const Copy& kernel, const Args& args) : k(kernel), to(args.out<char>(0)), from(args.in<char>(0)) {
      k.device.enter();
      if (k.bytes) need_reachable(from, "x"), need_reachable(to, "the copy");
    }
    void run(const eng_exec& exec) const {
      k.device.enter();
      if (k.bytes)
        k.device.check(cudaMemcpyAsync(to, from, k.bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(exec.queue)),
                       "copying", exec.queue);
      finish(&k.device, exec);
    }
  };
};

}  // namespace

void add_copy(List& list) {
  list.push_back(&common::kernel<Copy>);
}

}  // namespace cuda
