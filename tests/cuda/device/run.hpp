// SPDX-License-Identifier: Apache-2.0
// Runs one op of cuda.eng.so as it ships, on the software CUDA runtime and the software cuBLASLt (emulated), each
// tensor in an allocation of its own, which ends where the tensor ends.
#pragma once

#include <memory>

#include "plugin.hpp"
#include "plugins/cuda/kernels/library.hpp"
#include "tests/cuda/cublaslt/software_blas.hpp"
#include "tests/kernels/kernel_harness.hpp"

namespace cuda_test {

using kernels_test::desc;
using kernels_test::error_of;
using kernels_test::Random;
using kernels_test::random_ints;
using kernels_test::random_normal;
using kernels_test::real;
using kernels_test::reference;
using kernels_test::Tensor;
using kernels_test::whole;

constexpr int64_t cap = 1 << 20;  // [device] workspace of these tests

// The environment of a machine with kernels of its own.
inline Variables with_twins(Variables more = {}) {
  more["SOFTCUDA_TWINS"] = CUDA_TWINS;
  return more;
}

inline Options with_workspace(int64_t bytes) {
  return Options({}, false, bytes);
}

struct Use {
  std::string op;
  std::vector<Tensor> in;
  std::vector<eng_desc> out;
  std::vector<eng_attr> attrs = {};
  std::vector<std::pair<size_t, size_t>> in_place = {};  // (output, the input whose memory it takes)
  const eng_plugin* of = &plugin();                      // whose kernel it is
};

class Room {  // memory of the device
 public:
  explicit Room(uint64_t bytes) {
    if (cudaMalloc(&address, bytes) != cudaSuccess) throw std::runtime_error("out of memory");
  }
  ~Room() { cudaFree(address); }
  Room(const Room&) = delete;
  void* address = nullptr;
};

inline eng_call call_of(const Use& use, std::vector<eng_desc>& in, const eng_device_info& info) {
  for (const Tensor& t : use.in) in.push_back(t.d);
  eng_call call{};
  call.struct_size = sizeof call, call.parallel = info.parallel, call.device = &info;
  call.n_in = uint32_t(in.size()), call.n_out = uint32_t(use.out.size()), call.n_attrs = uint32_t(use.attrs.size());
  call.in = in.data(), call.out = use.out.data(), call.attrs = use.attrs.data();
  return call;
}

inline uint64_t workspace_of(const Use& use, const eng_device_info& info) {
  std::vector<eng_desc> in;
  const eng_call call = call_of(use, in, info);
  uint64_t bytes = 0;
  Told told;
  if (kernel_of(use.op, *use.of).workspace(&call, &bytes, told) != ENG_OK) throw std::runtime_error(told.text);
  return bytes;
}

// The way an op is run: the workspace that is given, how far from aligned addresses its tensors begin, and how often it
// is launched, by a captured graph if `graph`. With `choices` the device tunes: it is given them, unless they are
// empty, and they become what it has chosen.
struct How {
  int64_t workspace = cap;
  uint64_t offset = 0;
  int times = 1;
  bool graph = false;
  std::string* choices = nullptr;
  uint64_t loss_chunk = 0;  // 0: what it is by default
  uint32_t gpu = 0;         // while it is prepared and bound, GPU 0 is the thread's current one, as in a new thread
};

// Throws what the plugin reports.
inline std::vector<Tensor> run(const Use& use, const How& how = {}) {
  Options options({}, false, how.workspace);
  options.tune = how.choices != nullptr;
  const Device d(options, how.gpu);
  if (how.choices && !how.choices->empty())
    d.call(table().choose, static_cast<const char*>(how.choices->data()), uint64_t{how.choices->size()});
  eng_device_info info = describe(options);
  if (how.loss_chunk) info.settings[cuda::library::loss_chunk_setting] = how.loss_chunk;
  const eng_kernel& kernel = kernel_of(use.op, *use.of);
  std::vector<eng_desc> in;
  const eng_call call = call_of(use, in, info);
  const uint64_t bytes = workspace_of(use, info);
  Told told;
  const auto check = [&](eng_status status) {
    if (status != ENG_OK) throw std::runtime_error(told.text);
  };
  std::vector<std::unique_ptr<Room>> rooms;
  std::vector<DLTensor> views(in.size() + use.out.size());
  std::vector<DLTensor*> args;
  std::vector<Tensor> out;
  for (const eng_desc& one : use.out) out.emplace_back(one, 0xFF);
  const auto place = [&](const Tensor& t) {
    DLTensor& v = views[args.size()];
    args.push_back(t.d.dtype ? &v : nullptr);
    if (!t.d.dtype) return;
    rooms.push_back(std::make_unique<Room>(t.memory.size() + how.offset));
    v = {static_cast<char*>(rooms.back()->address) + how.offset,
         {kDLCUDA, 0},
         int32_t(t.d.ndim),
         {},
         nullptr,
         nullptr,
         0};
    v.shape = const_cast<int64_t*>(t.d.dims);
    d.call(table().upload, v.data, static_cast<const void*>(t.memory.data()), uint64_t{t.memory.size()});
  };
  for (const Tensor& t : use.in) place(t);
  for (const Tensor& t : out) place(t);
  for (const auto& [o, i] : use.in_place) args[in.size() + o]->data = args[i]->data;
  const Room workspace(bytes + 1);
  void *state = nullptr, *record = nullptr, *const queue = d.queue();
  cudaSetDevice(0);
  check(kernel.prepare(d.self, &call, &state, told));
  const std::unique_ptr<void, void (*)(void*)> drop_state(state, kernel.drop_state);
  check(kernel.bind(state, args.data(), uint32_t(args.size()), bytes ? workspace.address : nullptr, &record, told));
  const std::unique_ptr<void, void (*)(void*)> drop_record(record, kernel.drop_record);
  const eng_exec exec = {sizeof(eng_exec), 0, queue};
  if (how.graph) {
    void* graph = nullptr;
    d.call(table().capture_begin, queue);
    check(kernel.launch(record, &exec, told));
    d.call(table().capture_end, queue, &graph);
    for (int k = 0; k < how.times; ++k) d.call(table().graph_launch, graph, queue);
    d.call(table().sync, queue);
    table().graph_destroy(d.self, graph);
  } else {
    for (int k = 0; k < how.times; ++k) check(kernel.launch(record, &exec, told));
  }
  d.call(table().sync, queue);
  if (how.choices) {
    uint64_t size = 0;
    d.call(table().choices, static_cast<char*>(nullptr), uint64_t{0}, &size);
    how.choices->resize(size);
    d.call(table().choices, how.choices->data(), size, &size);
  }
  for (size_t k = 0; k < out.size(); ++k)
    d.call(table().download, static_cast<void*>(out[k].memory.data()),
           static_cast<const void*>(args[in.size() + k]->data), uint64_t{out[k].memory.size()});
  return out;
}

// Within `most` of the largest value; 16-bit outputs within a unit of their last place besides.
inline void check_close(const Use& use, double most, const How& how = {}) {
  const std::vector<Tensor> got = run(use, how),
                            want = reference().run(use.op, use.in, use.out, use.attrs, use.in_place);
  for (size_t k = 0; k < want.size(); ++k) {
    const int32_t type = want[k].d.dtype;
    const double unit = type == ENG_BF16 ? 0x1p-8 : type == ENG_F16 ? 0x1p-11 : 0;
    INFO(use.op << ", output " << k);
    CHECK(error_of(got[k], want[k]) <= most + unit);
  }
}

inline Use linear(Random& random, int32_t type, int64_t m, int64_t n, int64_t k, bool bias) {
  Use use{ENG_OP_LINEAR, {random_normal(random, type, {m, k}), random_normal(random, type, {n, k})}, {}};
  if (bias) use.in.push_back(random_normal(random, type, {n}));
  use.out = {desc(type, {m, n})};
  return use;
}

enum class Add { no, yes, in_place };
inline Use matmul(Random& random, int32_t type, int32_t result, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                  Add add) {
  const auto matrix = [&](int64_t rows, int64_t columns, bool turned) {
    return random_normal(random, type, turned ? kernels_test::Dims{columns, rows} : kernels_test::Dims{rows, columns});
  };
  Use use{ENG_OP_MATMUL, {matrix(m, k, ta), matrix(k, n, tb)}, {desc(result, {m, n})}};
  use.attrs = {whole("ta", ta), whole("tb", tb)};
  if (add != Add::no) use.in.push_back(random_normal(random, result, {m, n}));
  if (add == Add::in_place) use.in_place = {{0, 2}};
  return use;
}

// Counts the products that the software cuBLASLt computed meanwhile.
class Count {
 public:
  uint64_t operator()() const { return software_blas_last().products - from_; }

 private:
  uint64_t from_ = software_blas_last().products;
};

}  // namespace cuda_test
