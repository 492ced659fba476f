// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient by cuDNN. The graph is compiled at prepare, addresses are fixed at bind, and a launch
// executes: cuDNN's frontend, which makes a pack of addresses for each execution, has no part in it.
#include "attention_cudnn.hpp"

#include <memory>

#include "../common/call.hpp"
#include "attention_choice.hpp"
#include "attention_graph.hpp"
#include "device.hpp"

namespace cuda {
namespace served {
namespace {

using cpu::Call;

template <bool backward>
constexpr const char* op = backward ? ENG_OP_ATTENTION_GRAD : ENG_OP_ATTENTION;

template <bool backward>
const eng_kernel* own = nullptr;  // the kernel that was in the list

// The only handle of a device: cuDNN keeps memory for each.
void* handle_of(Device& device) {
  if (!device.cudnn) device.cudnn = std::shared_ptr<void>(sdpa::create_handle(), sdpa::destroy_handle);
  return device.cudnn.get();
}

// Another cuDNN than that of the plan may choose other engines.
std::unique_ptr<sdpa::Graph> compile(Device& device, const AttentionChoice& choice, double scale) {
  uint64_t installed = 0;
  try {
    installed = sdpa::loaded_version();
  } catch (const Error& e) {
    throw Error{ENG_UNAVAILABLE, e.text + ": install cuDNN " + sdpa::version_text(choice.version) +
                                     " and let LD_LIBRARY_PATH name its folder, or set [device] attention = \"own\""};
  }
  const uint32_t arch = arch_of(device.properties);
  const bool linear = sdpa::linear(choice.shape, arch, choice.version);
  if (linear && installed < sdpa::linear_since)
    refuse_installed(choice, installed, "has no engine whose scratch grows with the length only");
  const sdpa::Place place{arch, static_cast<uint32_t>(device.properties.multiProcessorCount), handle_of(device), ""};
  std::unique_ptr<sdpa::Graph> graph;
  try {
    graph = std::make_unique<sdpa::Graph>(choice.shape, scale, place, linear);
  } catch (const Error& e) {
    if (e.status != ENG_UNSUPPORTED) throw;
    refuse_installed(choice, installed, "does not compute this (" + e.text + ")");
  }
  check_workspace(choice, installed, graph->workspace());
  return graph;
}

struct State {
  Call call;
  Device* device = nullptr;            // cuDNN's
  std::unique_ptr<sdpa::Graph> graph;  // null: the own kernel computes
  const eng_kernel* own = nullptr;
  void* owns = nullptr;  // its state
  State(const char* name, const eng_call& c) : call(name, c) {}
};

struct Record {
  State* state;
  std::unique_ptr<sdpa::Pack> pack;
  void* owns = nullptr;  // the own kernel's record
};

template <bool backward>
eng_status workspace(const eng_call* c, uint64_t* bytes, eng_error* sink) {
  bool by_cudnn = false;
  const eng_status status = guarded(
      sink, [&] { return Call(op<backward>, *c).text(); },
      [&] {
        const AttentionChoice choice = choose_attention(*c, backward);
        if (!choice.cudnn) return;
        by_cudnn = true, *bytes = choice.bytes;
      });
  return status == ENG_OK && !by_cudnn ? own<backward>->workspace(c, bytes, sink) : status;
}

template <bool backward>
eng_status prepare(void* device, const eng_call* c, void** out, eng_error* sink) {
  eng_status inner = ENG_OK;
  const eng_status status = guarded(
      sink, [&] { return Call(op<backward>, *c).text(); },
      [&] {
        auto state = std::make_unique<State>(op<backward>, *c);
        const AttentionChoice choice = choose_attention(*c, backward);
        if (choice.cudnn) {
          state->device = &of(device);
          state->device->enter();
          state->graph = compile(*state->device, choice, state->call.real("scale"));
        } else {
          state->own = own<backward>;
          inner = state->own->prepare(device, c, &state->owns, sink);
          if (inner != ENG_OK) return;
        }
        *out = state.release();
      });
  return status == ENG_OK ? inner : status;
}

eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** out, eng_error* sink) {
  State& s = *static_cast<State*>(state);
  eng_status inner = ENG_OK;
  const eng_status status = guarded(
      sink, [&] { return s.call.text(); },
      [&] {
        auto record = std::make_unique<Record>(Record{&s, nullptr, nullptr});
        if (s.graph) {
          const size_t want = s.call.in.size() + s.call.out.size();
          if (n != want)
            throw Error{ENG_INVALID, "bound to " + std::to_string(n) + " tensors instead of " + std::to_string(want)};
          std::vector<void*> addresses;
          for (uint32_t k = 0; k < n; ++k) {
            if (!args[k] || !args[k]->data)
              throw Error{ENG_INVALID, "argument " + std::to_string(k) + " has no memory"};
            addresses.push_back(static_cast<char*>(args[k]->data) + args[k]->byte_offset);
          }
          record->pack = std::make_unique<sdpa::Pack>(*s.graph, addresses, scratch);
        } else {
          inner = s.own->bind(s.owns, args, n, scratch, &record->owns, sink);
          if (inner != ENG_OK) return;
        }
        *out = record.release();
      });
  return status == ENG_OK ? inner : status;
}

eng_status launch(void* record, const eng_exec* exec, eng_error* sink) {
  const Record& r = *static_cast<Record*>(record);
  if (!r.pack) return r.state->own->launch(r.owns, exec, sink);
  return guarded(
      sink, [&] { return r.state->call.text(); },
      [&] {
        Device& d = *r.state->device;
        d.enter();
        if (d.cudnn_queue != exec->queue) sdpa::set_stream(d.cudnn.get(), exec->queue), d.cudnn_queue = exec->queue;
        r.pack->execute(d.cudnn.get());
        finish_launch(d, *exec);
      });
}

void drop_record(void* record) {
  const std::unique_ptr<Record> r(static_cast<Record*>(record));
  if (r->owns) r->state->own->drop_record(r->owns);
}
void drop_state(void* state) {
  const std::unique_ptr<State> s(static_cast<State*>(state));
  if (s->owns) s->own->drop_state(s->owns);
}

template <bool backward>
constexpr eng_kernel dispatcher = {
    sizeof(eng_kernel), 0, op<backward>, workspace<backward>, prepare<backward>, bind, launch, drop_record, drop_state};

template <bool backward>
void take_place(List& list) {
  for (const eng_kernel*& kernel : list)
    if (std::string_view(kernel->op) == op<backward>) own<backward> = kernel, kernel = &dispatcher<backward>;
}

}  // namespace
}  // namespace served

void add_cudnn_attention(List& list) {
  served::take_place<false>(list), served::take_place<true>(list);
}

}  // namespace cuda
