// SPDX-License-Identifier: Apache-2.0
// Makes an eng_kernel from a small class, so that a kernel file is mostly maths:
//
//   struct Add {
//     static constexpr const char* op = ENG_OP_ADD;
//     static constexpr uint32_t flags = 0;            // optional: ENG_KERNEL_EXACT
//     static void check(const Call&);                 // optional: throws Error if this call cannot be served
//     static uint64_t workspace(const Call&);         // optional: bytes of scratch, default 0
//     explicit Add(const Call&);                      // prepare; or Add(const Call&, void* device)
//     void run(const Args&) const;                    // launch; or run of Bound, see below
//     struct Bound { Bound(const Add&, const Args&); void run(); };   // optional: what bind fixes per address
//   };                                                                // its run may take the launch: (const eng_exec&)
//   const eng_kernels all = kernel_table<Add, ...>;
//
// An exception becomes the text "[in f32 (2, 3) ...; out ...]: ...", which the host puts behind the op.
#pragma once

#include <string>
#include <type_traits>

#include "call.hpp"

namespace common {

template <class K>
struct KernelGlue {
  struct State {
    Call call;
    K kernel;
    static K make(const Call& c, void* device) {
      if constexpr (requires { K::check(c); }) K::check(c);
      if constexpr (std::is_constructible_v<K, const Call&, void*>)
        return K(c, device);
      else
        return K(c);
    }
    State(const eng_call& c, void* device) : call(c), kernel(make(call, device)) {}
  };
  struct Unbound {  // a kernel without a Bound of its own
    const K& kernel;
    Args args;
    Unbound(const K& k, const Args& a) : kernel(k), args(a) {}
    void run() { kernel.run(args); }
  };
  template <class U>
  static typename U::Bound bound_of(int);
  template <class U>
  static Unbound bound_of(long);
  using Bound = decltype(bound_of<K>(0));
  struct Record {
    const State* state;
    Bound bound;
    Record(const State* s, const Args& a) : state(s), bound(s->kernel, a) {}
  };

  static eng_status workspace(const eng_call* c, uint64_t* bytes, eng_error* sink) {
    const auto name = [&] { return Call(*c).text(); };
    return guarded(sink, name, [&] {
      const Call call(*c);
      if constexpr (requires { K::check(call); }) K::check(call);
      uint64_t need = 0;
      if constexpr (requires { K::workspace(call); }) need = K::workspace(call);
      *bytes = need;
    });
  }
  static eng_status prepare(void* device, const eng_call* c, void** state, eng_error* sink) {
    const auto name = [&] { return Call(*c).text(); };
    return guarded(sink, name, [&] { *state = new State(*c, device); });
  }
  static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                         eng_error* sink) {
    const State* s = static_cast<const State*>(state);
    return guarded(
        sink, [&] { return s->call.text(); },
        [&] {
          const size_t want = s->call.in.size() + s->call.out.size();
          if (n != want)
            throw Error{ENG_INVALID, "bound to " + std::to_string(n) + " tensors instead of " + std::to_string(want)};
          Args a{{}, s->call.in.size(), scratch};
          for (uint32_t k = 0; k < n; ++k) {
            const eng_desc& d = k < a.n_in ? s->call.in[k] : s->call.out[k - a.n_in];
            const bool given = args[k] && args[k]->data;
            if (d.dtype != 0 && !given && elements(d) > 0)
              throw Error{ENG_INVALID, "argument " + std::to_string(k) + " has no memory"};
            const bool use = d.dtype != 0 && given;
            a.data.push_back(use ? static_cast<char*>(args[k]->data) + args[k]->byte_offset : nullptr);
          }
          *record = new Record(s, a);
        });
  }
  static eng_status launch(void* record, const eng_exec* exec, eng_error* sink) {
    Record* r = static_cast<Record*>(record);
    return guarded(
        sink, [&] { return r->state->call.text(); },
        [&] {
          if constexpr (requires { r->bound.run(*exec); })
            r->bound.run(*exec);
          else
            r->bound.run();
        });
  }
  static void drop_record(void* record) { delete static_cast<Record*>(record); }
  static void drop_state(void* state) { delete static_cast<State*>(state); }
  static constexpr uint32_t flags() {
    if constexpr (requires { K::flags; })
      return K::flags;
    else
      return 0;
  }
};

template <class K>
inline constexpr eng_kernel kernel = {.struct_size = sizeof(eng_kernel),
                                      .flags = KernelGlue<K>::flags(),
                                      .op = K::op,
                                      .workspace = KernelGlue<K>::workspace,
                                      .prepare = KernelGlue<K>::prepare,
                                      .bind = KernelGlue<K>::bind,
                                      .launch = KernelGlue<K>::launch,
                                      .drop_record = KernelGlue<K>::drop_record,
                                      .drop_state = KernelGlue<K>::drop_state};

template <class... K>
inline constexpr const eng_kernel* kernel_list[] = {&kernel<K>...};
template <class... K>
inline constexpr eng_kernels kernel_table = {
    .struct_size = sizeof(eng_kernels), .count = sizeof...(K), .kernels = kernel_list<K...>};

}  // namespace common
