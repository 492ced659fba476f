// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient by cuDNN, or by the plugin's own kernels. A graph of cuDNN is compiled at prepare,
// addresses are fixed at bind, and a launch executes: cuDNN's frontend, which makes a pack of addresses for each
// execution, has no part in it.
#include <atomic>
#include <memory>

#include "../common/kernel.hpp"
#include "attention_choice.hpp"
#include "attention_graph.hpp"
#include "attention_measure.hpp"
#include "device.hpp"
#include "engine/ops_attention.h"

namespace cuda {
namespace served {
namespace {

using common::Args;
using common::Call;

// Once in a process: the layers of a run are told of together.
void tell(const std::string& text) {
  static std::atomic<bool> told;
  if (host && !told.exchange(true)) host->log(host, ENG_LOG_WARNING, text.data(), text.size());
}

// Another cuDNN than that of the plan may choose other engines. Throws Error(ENG_UNAVAILABLE) if it does not serve.
std::unique_ptr<sdpa::Graph> compile(Device& device, const AttentionChoice& choice, double scale) {
  const uint64_t installed = sdpa::loaded_version();
  const auto refuse = [&](const std::string& what) { throw Error{ENG_UNAVAILABLE, refusal(choice, installed, what)}; };
  const uint32_t arch = arch_of(device.properties);
  const bool linear = sdpa::linear(choice.shape, arch, choice.version);
  if (linear && installed < sdpa::linear_since) refuse("has no engine whose scratch grows with the length only");
  const auto processors = static_cast<uint32_t>(device.properties.multiProcessorCount);
  std::unique_ptr<sdpa::Graph> graph;
  try {
    if (!device.cudnn) device.cudnn = sdpa::create_handle();
    graph = std::make_unique<sdpa::Graph>(choice.shape, scale, sdpa::Place{arch, processors, device.cudnn.get(), ""},
                                          linear);
  } catch (const Error& e) {
    if (e.status != ENG_UNSUPPORTED) throw;
    refuse("does not compute this (" + e.text + ")");
  }
  if (graph->workspace() > choice.bytes) refuse("wants " + bytes_text(graph->workspace()));
  return graph;
}

// A call that cuDNN computes.
template <bool backward>
struct ByCudnn {
  static constexpr const char* op = backward ? ENG_OP_ATTENTION_GRAD : ENG_OP_ATTENTION;
  Device& device;
  std::unique_ptr<sdpa::Graph> graph;
  ByCudnn(const Call& c, void* on)
      : device(of(on)), graph(compile(device, choose_attention(c, backward), c.real("scale"))) {}

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

eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** out, eng_error* sink) {
  const Made& s = *static_cast<Made*>(state);
  return guarded(sink, [&] {
    auto made = std::make_unique<Made>(Made{s.by});
    const eng_status status = s.by->bind(s.what, args, n, scratch, &made->what, sink);
    if (status == ENG_OK) *out = made.release();
    return status;
  });
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
  inline static const eng_kernel* own = nullptr;  // the kernel that was in the list

  // Enough for either of the two.
  static eng_status workspace(const eng_call* c, uint64_t* bytes, eng_error* sink) {
    const auto name = [&] { return Call(*c).text(); };
    return guarded(sink, name, [&] {
      const AttentionChoice choice = choose_attention(*c, backward);
      uint64_t ours = 0;
      const eng_status status = own->workspace(c, &ours, choice.cudnn ? nullptr : sink);
      *bytes = std::max(choice.bytes, ours);
      return choice.cudnn ? ENG_OK : status;
    });
  }
  static eng_status prepare(void* on, const eng_call* c, void** out, eng_error* sink) {
    const auto name = [&] { return Call(*c).text(); };
    return guarded(sink, name, [&] {
      of(on).enter();
      const AttentionChoice choice = choose_attention(*c, backward);
      Made made{own};
      const auto make = [&] {
        made = {&common::kernel<ByCudnn<backward>>, new typename common::KernelGlue<ByCudnn<backward>>::State(*c, on)};
        return "cuDNN " + sdpa::version_text(sdpa::loaded_version());
      };
      uint64_t bytes = 0;
      const bool own_can = own->workspace(c, &bytes, nullptr) == ENG_OK;
      Served& run = of(on).choices.attention;
      eng_device_info info = Call(*c).device;
      eng_call wgmma = *c;  // as [device] attention = "own-wgmma" would have it
      const bool asked = info.settings[library::attention_setting] % 4 == library::own_wgmma;
      const bool can = own_can && backward && !choice.strict && !asked && has_wgmma(*c);
      info.settings[library::attention_setting] |= library::own_wgmma, wgmma.device = &info;
      if (can && of(on).choices.measure && !run.contains(choice.name)) {
        Race race(*c, std::max(bytes, choice.bytes));
        for (const eng_call* call : {c, static_cast<const eng_call*>(&wgmma)})
          if (made = {own}; own->prepare(on, call, &made.what, sink) == ENG_OK)
            race.add(call == c ? "own" : "own wgmma", made, tell);
        try {
          if (choice.cudnn) race.add(make(), made, tell);
        } catch (const Error&) {  // the installed cuDNN does not serve it
        }
        run[choice.name] = race.fastest, of(on).cudnn_queue = nullptr, made = {own};
      }
      const bool by_wgmma = can && run.contains(choice.name) && run[choice.name] == "own wgmma",
                 by_cudnn = !by_wgmma && choice.cudnn && made_by_cudnn(choice, own_can, run, make, tell);
      const eng_status status = by_cudnn ? ENG_OK : own->prepare(on, by_wgmma ? &wgmma : c, &made.what, sink);
      if (status == ENG_OK) *out = new Made(made);
      return status;
    });
  }
  static constexpr eng_kernel kernel = {
      sizeof(eng_kernel),           0, op, workspace, prepare, bind, launch, drop<&eng_kernel::drop_record>,
      drop<&eng_kernel::drop_state>};

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
