// SPDX-License-Identifier: Apache-2.0
#include "attention_graph.hpp"

#include <dlfcn.h>

#include <mutex>

#include "errors.hpp"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // plans are not written to files
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the frontend looks functions up
}

namespace cuda::sdpa {
namespace {

namespace fe = cudnn_frontend;
namespace backend = fe::detail;  // the functions of the loaded library
using Attributes = fe::graph::Tensor_attributes;

void check(cudnnStatus_t status, const char* doing) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error{status == CUDNN_STATUS_ALLOC_FAILED ? ENG_NO_MEMORY : ENG_UNAVAILABLE,
                std::string(doing) + ": cuDNN says " + backend::get_error_string(status)};
}

// The frontend reports most refusals, and throws some. Only its first line says what it means.
template <class Body>
void ask(const char* what, Body&& body) {
  std::string why;
  try {
    fe::error_t error = body();
    if (error.is_good()) return;
    why = error.get_message();
  } catch (const std::exception& e) {
    why = e.what();
  }
  why = why.substr(0, why.find('\n'));
  throw Error{ENG_UNSUPPORTED, std::string("cuDNN ") + what + (why.empty() ? "" : ": " + why)};
}

// `ids` are the order of the tensors in Pack.
Attributes& describe(Attributes& t, int64_t id, const Shape& s, int64_t heads) {
  return t.set_uid(id)
      .set_dim({s.batch, heads, s.length, s.size})  // in memory: (B, T, heads, D)
      .set_stride({s.length * heads * s.size, s.size, heads * s.size, 1});
}
Attributes& describe_lse(Attributes& t, int64_t id, const Shape& s) {
  return t.set_uid(id)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({s.batch, s.heads, s.length, 1})  // in memory: (B, heads, T)
      .set_stride({s.heads * s.length, s.length, 1, 1});
}
std::shared_ptr<Attributes> input(fe::graph::Graph& g, int64_t id, const Shape& s, int64_t heads) {
  Attributes t;
  return g.tensor(describe(t, id, s, heads));
}

void add_forward(fe::graph::Graph& g, const Shape& s, float scale) {
  const auto q = input(g, 1, s, s.heads), k = input(g, 2, s, s.kv_heads), v = input(g, 3, s, s.kv_heads);
  auto wanted = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
  wanted.set_causal_mask(true).set_attn_scale(scale);
  const auto [o, lse] = g.sdpa(q, k, v, wanted);
  describe(*o, 4, s, s.heads).set_output(true);
  describe_lse(*lse, 5, s).set_output(true);
}

// The engine is deterministic if the graph asks for that, or, for linear scratch, if it is chosen by hand.
void add_backward(fe::graph::Graph& g, const Shape& s, float scale, bool linear) {
  const auto dout = input(g, 1, s, s.heads), q = input(g, 2, s, s.heads), k = input(g, 3, s, s.kv_heads),
             v = input(g, 4, s, s.kv_heads), o = input(g, 5, s, s.heads);
  Attributes lse;
  auto wanted = fe::graph::SDPA_backward_attributes().set_name("attention_grad").set_causal_mask(true);
  wanted.set_attn_scale(scale).set_deterministic_algorithm(!linear);
  const auto [dq, dk, dv] = g.sdpa_backward(q, k, v, o, dout, g.tensor(describe_lse(lse, 6, s)), wanted);
  describe(*dq, 7, s, s.heads).set_output(true);
  describe(*dk, 8, s, s.kv_heads).set_output(true);
  describe(*dv, 9, s, s.kv_heads).set_output(true);
}

// The gradient on sm_90 that adds to dq in the order of the keys: blocks of 64 x 64, as the frontend sets it up.
constexpr int64_t ordered_engine = 6;
const std::unordered_map<fe::KnobType_t, int64_t> ordered_knobs = {
    {fe::KnobType_t::TILE_M, 2},   {fe::KnobType_t::TILE_N, 1},     {fe::KnobType_t::KERNEL_CFG, 2},
    {fe::KnobType_t::STREAM_K, 0}, {fe::KnobType_t::TILE_CGA_M, 0}, {fe::KnobType_t::STAGES, 4},
};

}  // namespace

// The plan that was chosen, which the frontend keeps to itself, and where it expects what.
struct Graph::Impl : fe::graph::Graph {
  const fe::ExecutionPlan& plan() const { return *plans.execution_plans.at(static_cast<size_t>(plans.candidate)); }
};

uint64_t loaded_version() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!fe::cudnn_dlhandle) fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!fe::cudnn_dlhandle) {
    const char* why = dlerror();
    throw Error{ENG_UNAVAILABLE, std::string("cuDNN does not load: ") + (why ? why : "libcudnn.so.9 is not found")};
  }
  if (!dlsym(fe::cudnn_dlhandle, "cudnnGetVersion"))
    throw Error{ENG_UNAVAILABLE, "libcudnn.so.9 does not say its version"};
  return backend::get_backend_version();
}

Graph::Graph(const Shape& s, double scale, const Place& place, bool linear) : impl_(std::make_shared<Impl>()) {
  loaded_version();
  Impl& g = *impl_;
  // Told here, so that the frontend does not look for a CUDA runtime of its own.
  g.set_sm_version(static_cast<int32_t>(place.arch)).set_sm_count(static_cast<int32_t>(place.processors));
  g.set_io_data_type(s.type == ENG_F16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto handle = static_cast<cudnnHandle_t>(place.handle);
  if (!handle) {
    const auto properties = std::make_shared<fe::DeviceProperties>();
    ask("does not take the properties of the GPU", [&] {
      return properties->deserialize({place.properties.begin(), place.properties.end()});
    });
    g.set_device_properties(properties);
  }
  s.backward ? add_backward(g, s, static_cast<float>(scale), linear) : add_forward(g, s, static_cast<float>(scale));
  ask("refuses the shape", [&] { return g.validate(); });
  ask("refuses the graph", [&] { return g.build_operation_graph(handle); });
  ask("has no engine", [&] {
    return linear ? g.create_execution_plan(ordered_engine, ordered_knobs)
                  : g.create_execution_plans({fe::HeurMode_t::A});
  });
  ask("supports no engine", [&] { return g.check_support(); });
  ask("compiles no engine", [&] { return g.build_plans(); });
  if (!g.cuda_graph_direct_population_eligible())
    throw Error{ENG_UNSUPPORTED, "cuDNN needs tensors that its frontend fills before each execution"};
}

uint64_t Graph::workspace() const {
  int64_t bytes = 0;
  ask("does not say its workspace", [&] { return impl_->get_workspace_size(bytes); });
  return static_cast<uint64_t>(bytes);
}

std::string Graph::engine() const {
  std::string name;
  ask("does not name its engine", [&] { return impl_->get_plan_name(name); });
  return name;
}

Pack::Pack(const Graph& graph, const std::vector<void*>& tensors, void* workspace) {
  const Graph::Impl& g = *graph.impl_;
  const auto& layout = g.varpack_template;
  if (layout.user_slots.size() != tensors.size() || !layout.replacement_slots.empty() || !layout.backend_slots.empty())
    throw Error{ENG_INTERNAL, "cuDNN expects other tensors than those of the op"};
  std::vector<void*> addresses = layout.template_ptrs;
  for (size_t k = 0; k < tensors.size(); ++k) addresses[layout.user_slots[k]] = tensors[k];  // in the order of ids
  for (const auto& [slot, offset] : layout.workspace_slots) addresses[slot] = static_cast<char*>(workspace) + offset;
  for (const auto& [slot, alignment] : layout.aligned_slots)
    if (reinterpret_cast<uintptr_t>(addresses[slot]) % static_cast<uintptr_t>(alignment))
      throw Error{ENG_INVALID, "cuDNN needs addresses aligned to " + std::to_string(alignment) + " bytes"};
  // The frontend's own tensors lie before the engine's workspace.
  void* engine =
      static_cast<char*>(workspace) + (graph.workspace() - static_cast<uint64_t>(g.plan().getWorkspaceSize()));
  plan_ = g.plan().get_raw_desc();
  const auto n = static_cast<int64_t>(addresses.size());
  cudnnBackendDescriptor_t pack = nullptr;
  check(backend::create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "making a pack of addresses");
  pack_.reset(pack, backend::destroy_descriptor);
  check(backend::set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &engine),
        "setting the workspace");
  check(backend::set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, addresses.data()),
        "setting addresses");
  check(backend::set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, layout.all_uids.data()),
        "setting ids");
  check(backend::finalize(pack), "finishing a pack of addresses");
}

void Pack::execute(void* handle) const {
  check(backend::execute(static_cast<cudnnHandle_t>(handle), plan_, pack_.get()), "executing");
}

std::shared_ptr<void> create_handle() {
  cudnnHandle_t handle = nullptr;
  ask("does not start on this GPU", [&] {
    const cudnnStatus_t status = backend::create_handle(&handle);
    if (status == CUDNN_STATUS_ALLOC_FAILED) check(status, "starting");  // memory is short, cuDNN itself is not
    const bool good = status == CUDNN_STATUS_SUCCESS;
    return fe::error_t{good ? fe::error_code_t::OK : fe::error_code_t::HANDLE_ERROR, backend::get_error_string(status)};
  });
  return {handle, backend::destroy_handle};
}
void set_stream(void* handle, void* stream) {
  check(backend::set_stream(static_cast<cudnnHandle_t>(handle), static_cast<cudaStream_t>(stream)),
        "setting the stream");
}

}  // namespace cuda::sdpa
