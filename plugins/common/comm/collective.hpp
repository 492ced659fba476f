// SPDX-License-Identifier: Apache-2.0
// The descriptions from which the collectives of any communicator are prepared, and the table of their kernels.
#pragma once

#include "../kernel.hpp"
#include "place.hpp"

namespace common {

// A call of a collective, checked. `Comm` has group(id), which gives its kind of group.
template <class Comm>
struct Collective {
  using Group = std::remove_reference_t<decltype(std::declval<Comm&>().group(eng_id{}))>;
  Comm& comm;
  Group& group;
  const What what;
  const uint64_t in_bytes, out_bytes;
  const uint32_t n, self;

  // `on` is the Comm. Throws Error.
  Collective(const Call& call, void* on, What w)
      : comm(*static_cast<Comm*>(on)),
        group(comm.group(static_cast<eng_id>(call.integer("group")))),
        what(w),
        in_bytes(size_of(call.in.at(0))),
        out_bytes(size_of(call.out.at(0))),
        n(static_cast<uint32_t>(group.ranks.size())),
        self(group.self) {
    if (call.integer("members") != int64_t{n})
      throw Error{ENG_INVALID, "group " + std::to_string(group.id) + " has " + std::to_string(n) + " members, not " +
                                   std::to_string(call.integer("members"))};
    need(call.in[0].dtype == call.out[0].dtype, "input and output differ in dtype");
    if (what == What::all_gather)
      need(out_bytes == in_bytes * n, "the output must hold the inputs of all members");
    else if (what == What::all_to_all)
      need(out_bytes == in_bytes && elements(call.in[0]) % n == 0, "the members need equal parts");
    else if (what == What::reduce_scatter)
      need(out_bytes * n == in_bytes, "the members need equal parts");
    else
      need(out_bytes == in_bytes, "input and output differ in size");
    if (what == What::broadcast)
      need(call.integer("root") >= 0 && call.integer("root") < int64_t{n}, "the root is not a member of the group");
  }
  static uint64_t size_of(const eng_desc& d) { return static_cast<uint64_t>(elements(d)) * dtype_size(d.dtype); }
  static void need(bool right, const char* text) {
    if (!right) throw Error{ENG_INVALID, text};
  }
};

// `K` as for kernel, but what a launch calls is run(const eng_exec&) of its Bound. The text of what that throws is
// complete; nothing is added to it.
template <class K>
eng_status launch_collective(void* record, const eng_exec* exec, eng_error* sink) {
  return guarded(sink, [&] { static_cast<typename KernelGlue<K>::Record*>(record)->bound.run(*exec); });
}
template <class K>
inline constexpr eng_kernel collective = [] {
  eng_kernel kernel = common::kernel<K>;
  kernel.launch = launch_collective<K>;
  return kernel;
}();
template <class... K>
inline constexpr const eng_kernel* collective_list[] = {&collective<K>...};
template <class... K>
inline constexpr eng_kernels collective_table = {
    .struct_size = sizeof(eng_kernels), .count = sizeof...(K), .kernels = collective_list<K...>};

}  // namespace common
