// SPDX-License-Identifier: Apache-2.0
// eng.copy/1 is one cudaMemcpyAsync. Memory of the host must be pinned: of pageable memory the call would be
// synchronous, or read what the host has changed meanwhile.
#include "copy.hpp"

#include <memory>

#include "device.hpp"

namespace cuda {
namespace {

struct State {
  Device* device;
  cpu::Call call;
  uint64_t bytes;
};
struct Record {
  const State* state;
  void* to;
  const void* from;
};

std::string text(const eng_call& c) {
  return cpu::Call(ENG_OP_COPY, c).text();
}

void check_call(const eng_call& c) {
  if (c.n_in != 1 || c.n_out != 1) throw Error{ENG_INVALID, "takes one tensor and gives one"};
  if (c.in[0].dtype != c.out[0].dtype || cpu::elements(c.in[0]) != cpu::elements(c.out[0]))
    throw Error{ENG_INVALID, "x and its copy must have the same type and shape"};
}

eng_status workspace(const eng_call* c, uint64_t* bytes, eng_error* sink) {
  return guarded(
      sink, [&] { return text(*c); }, [&] { check_call(*c), *bytes = 0; });
}

eng_status prepare(void* device, const eng_call* c, void** state, eng_error* sink) {
  return guarded(
      sink, [&] { return text(*c); },
      [&] {
        check_call(*c);
        const auto bytes = static_cast<uint64_t>(cpu::elements(c->out[0])) * cpu::dtype_size(c->out[0].dtype);
        *state = new State{&of(device), cpu::Call(ENG_OP_COPY, *c), bytes};
      });
}

void need_reachable(const void* address, const char* what) {
  cudaPointerAttributes a{};
  check(cudaPointerGetAttributes(&a, address), "asking whose memory an address is");
  if (a.type == cudaMemoryTypeUnregistered)
    throw Error{ENG_INVALID,
                std::string(what) +
                    " is in pageable host memory: a queue copies only memory of the device and memory that "
                    "the device allocated as pinned or was given to pin"};
}

eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void*, void** record, eng_error* sink) {
  const State& s = *static_cast<State*>(state);
  return guarded(
      sink, [&] { return s.call.text(); },
      [&] {
        if (n != 2 || !args[0] || !args[1]) throw Error{ENG_INVALID, "is bound to two tensors"};
        s.device->enter();
        const auto address = [](const DLTensor& t) { return static_cast<char*>(t.data) + t.byte_offset; };
        const Record made{&s, address(*args[1]), address(*args[0])};
        if (s.bytes) need_reachable(made.from, "x"), need_reachable(made.to, "the copy");
        *record = new Record(made);
      });
}

eng_status launch(void* record, const eng_exec* exec, eng_error* sink) {
  const Record& r = *static_cast<Record*>(record);
  Device& d = *r.state->device;
  return guarded(
      sink, [&] { return r.state->call.text(); },
      [&] {
        d.enter();
        if (r.state->bytes)
          d.check(
              cudaMemcpyAsync(r.to, r.from, r.state->bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(exec->queue)),
              "copying", exec->queue);
        finish_launch(d, *exec);
      });
}

void drop_record(void* record) {
  delete static_cast<Record*>(record);
}
void drop_state(void* state) {
  delete static_cast<State*>(state);
}

}  // namespace

const eng_kernel copy_kernel = {sizeof(eng_kernel), ENG_KERNEL_EXACT, ENG_OP_COPY, workspace, prepare, bind, launch,
                                drop_record,        drop_state};

}  // namespace cuda
