// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient by cuDNN, or by the plugin's own kernels. A graph of cuDNN is compiled at prepare,
// addresses are fixed at bind, and a launch executes: cuDNN's frontend, which makes a pack of addresses for each
// execution, has no part in it.
#include <memory>

#include "../common/kernel.hpp"
#include "attention_choice.hpp"
#include "attention_graph.hpp"
#include "device.hpp"
#include "engine/ops_attention.h"

namespace cuda {
namespace served {
namespace {

using common::Args;
using common::Call;

// Another cuDNN than that of the plan may choose other engines.
std::unique_ptr<sdpa::Graph> compile(Device& device, const AttentionChoice& choice, double scale) {
  uint64_t installed = 0;
  try {
    installed = sdpa::loaded_version();
  } catch (const Error& e) {
    const std::string version = sdpa::version_text(choice.version);
    throw Error{ENG_UNAVAILABLE, e.text + ": install cuDNN " + version + " (pip install nvidia-cudnn-cu13==" + version +
                                     ".*), name its folder in LD_LIBRARY_PATH if it lies elsewhere, or set [device] "
                                     "attention = \"own\""};
  }
  const uint32_t arch = arch_of(device.properties);
  const bool linear = sdpa::linear(choice.shape, arch, choice.version);
  if (linear && installed < sdpa::linear_since)
    refuse_installed(choice, installed, "has no engine whose scratch grows with the length only");
  if (!device.cudnn) device.cudnn = sdpa::create_handle();
  const auto processors = static_cast<uint32_t>(device.properties.multiProcessorCount);
  std::unique_ptr<sdpa::Graph> graph;
  try {
    graph = std::make_unique<sdpa::Graph>(choice.shape, scale, sdpa::Place{arch, processors, device.cudnn.get(), ""},
                                          linear);
  } catch (const Error& e) {
    if (e.status != ENG_UNSUPPORTED) throw;
    refuse_installed(choice, installed, "does not compute this (" + e.text + ")");
  }
  check_workspace(choice, installed, graph->workspace());
  return graph;
}

// A call that cuDNN computes.
template <bool backward>
struct ByCudnn {
  static constexpr const char* op = backward ? ENG_OP_ATTENTION_GRAD : ENG_OP_ATTENTION;
  Device& device;
  std::unique_ptr<sdpa::Graph> graph;
  static uint64_t workspace(const Call& c) { return choose_attention(c, backward).bytes; }
  ByCudnn(const Call& c, void* on) : device(of(on)) {
    device.enter();
    graph = compile(device, choose_attention(c, backward), c.real("scale"));
  }

  struct Bound {
    Device& device;
    sdpa::Pack pack;
    Bound(const ByCudnn& k, const Args& args) : device(k.device), pack(*k.graph, args.data, args.workspace) {}
    void run(const eng_exec& exec) const {
      device.enter();
      void* const handle = device.cudnn.get();
      if (device.cudnn_queue != exec.queue) sdpa::set_stream(handle, exec.queue), device.cudnn_queue = exec.queue;
      pack.execute(handle);
      finish(&device, exec);
    }
  };
};

// The state or record of a kernel: of one for cuDNN, or of the plugin's own.
struct Made {
  const eng_kernel* by;
  void* what = nullptr;
};

// make(what) returns a status.
template <class Make>
eng_status keep(const eng_kernel* by, void** out, eng_error* sink, Make make) {
  return guarded(sink, [&] {
    auto made = std::make_unique<Made>(Made{by});
    const eng_status status = make(&made->what);
    if (status == ENG_OK) *out = made.release();
    return status;
  });
}

eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** out, eng_error* sink) {
  const Made& s = *static_cast<Made*>(state);
  return keep(s.by, out, sink, [&](void** record) { return s.by->bind(s.what, args, n, scratch, record, sink); });
}

eng_status launch(void* record, const eng_exec* exec, eng_error* sink) {
  const Made& r = *static_cast<Made*>(record);
  return r.by->launch(r.what, exec, sink);
}

template <auto give_back>  // &eng_kernel::drop_record or drop_state
void drop(void* made) {
  const std::unique_ptr<Made> m(static_cast<Made*>(made));
  if (m->what) (m->by->*give_back)(m->what);
}

// windowed: of eng.attention_window/1, which is asked for cuDNN's refusal alone.
template <bool backward, bool windowed>
struct Dispatcher {
  static constexpr const char* op = windowed   ? (backward ? ENG_OP_ATTENTION_WINDOW_GRAD : ENG_OP_ATTENTION_WINDOW)
                                    : backward ? ENG_OP_ATTENTION_GRAD
                                               : ENG_OP_ATTENTION;
  static constexpr const eng_kernel& by_cudnn = common::kernel<ByCudnn<backward>>;
  inline static const eng_kernel* own = nullptr;  // the kernel that was in the list

  // ask(kernel) returns the status of the one that computes the call.
  template <class Ask>
  static eng_status chosen(const eng_call* c, eng_error* sink, Ask ask) {
    const eng_kernel* by = own;
    const eng_status status = guarded(
        sink, [&] { return Call(*c).text(); },
        [&] {
          if (choose_attention(*c, backward).cudnn) by = &by_cudnn;
        });
    return status == ENG_OK ? ask(by) : status;
  }
  static eng_status workspace(const eng_call* c, uint64_t* bytes, eng_error* sink) {
    return chosen(c, sink, [&](const eng_kernel* by) { return by->workspace(c, bytes, sink); });
  }
  static eng_status prepare(void* device, const eng_call* c, void** out, eng_error* sink) {
    return chosen(c, sink, [&](const eng_kernel* by) {
      return keep(by, out, sink, [&](void** state) { return by->prepare(device, c, state, sink); });
    });
  }
  static constexpr eng_kernel kernel = {.struct_size = sizeof(eng_kernel),
                                        .flags = 0,
                                        .op = op,
                                        .workspace = workspace,
                                        .prepare = prepare,
                                        .bind = bind,
                                        .launch = launch,
                                        .drop_record = drop<&eng_kernel::drop_record>,
                                        .drop_state = drop<&eng_kernel::drop_state>};

  static void take_place(List& list) {
    for (const eng_kernel*& one : list)
      if (std::string_view(one->op) == kernel.op) own = one, one = &kernel;
  }
};

}  // namespace
}  // namespace served

void add_cudnn_attention(List& list) {
  using namespace served;
  Dispatcher<false, false>::take_place(list), Dispatcher<true, false>::take_place(list);
  Dispatcher<false, true>::take_place(list), Dispatcher<true, true>::take_place(list);
}

}  // namespace cuda
