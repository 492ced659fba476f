// SPDX-License-Identifier: Apache-2.0
// Tensors of more than 2^31 elements: memory of which almost nothing is touched, and the one block that touches it.
#include <sys/mman.h>

#include <new>

#include "emulated.hpp"

using namespace cuda_test;

namespace {

// Zeros, without memory until something is written.
class Sparse {
 public:
  explicit Sparse(const eng_desc& what) : d(what), bytes_(size_t(elements(what)) * dtype_size(what.dtype)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Sparse() {
    if (data_) munmap(data_, bytes_);
  }
  Sparse(Sparse&& o) noexcept : d(o.d), bytes_(o.bytes_), data_(std::exchange(o.data_, nullptr)) {}
  char* at(int64_t element) const { return static_cast<char*>(data_) + element * dtype_size(d.dtype); }
  // Rows of `columns` elements, `stride` elements apart: from and to a small tensor.
  void put(const Tensor& t, int64_t first, int64_t columns, int64_t stride) const {
    const size_t row = size_t(columns) * dtype_size(d.dtype);
    for (int64_t r = 0; r < t.size() / columns; ++r)
      std::memcpy(at(first + r * stride), t.memory.data() + size_t(r) * row, row);
  }
  Tensor get(const eng_desc& what, int64_t first, int64_t columns, int64_t stride) const {
    Tensor t(what);
    const size_t row = size_t(columns) * dtype_size(d.dtype);
    for (int64_t r = 0; r < t.size() / columns; ++r)
      std::memcpy(t.memory.data() + size_t(r) * row, at(first + r * stride), row);
    return t;
  }
  eng_desc d;

 private:
  size_t bytes_;
  void* data_;
};

// For each of `blocks`, runs that block of each grid, modulo their number.
void run_blocks(const char* op, const std::vector<const Sparse*>& in, const std::vector<const Sparse*>& out,
                const std::vector<eng_attr>& attrs, const std::vector<uint64_t>& blocks) {
  const eng_kernel* kernel = emulated().find(op);
  std::vector<eng_desc> in_descs, out_descs;
  std::vector<DLTensor> views(in.size() + out.size());
  std::vector<const DLTensor*> args;
  for (const auto& [tensors, descs] : {std::pair(&in, &in_descs), std::pair(&out, &out_descs)})
    for (const Sparse* t : *tensors) {
      descs->push_back(t->d);
      DLTensor& view = views[args.size()];
      view.data = t->at(0), view.ndim = int32_t(t->d.ndim), view.shape = const_cast<int64_t*>(t->d.dims);
      args.push_back(&view);
    }
  eng_call call{};
  call.struct_size = sizeof call, call.parallel = 1, call.device = &emulated().info;
  call.in = in_descs.data(), call.out = out_descs.data(), call.attrs = attrs.data();
  call.n_in = uint32_t(in.size()), call.n_out = uint32_t(out.size()), call.n_attrs = uint32_t(attrs.size());
  Sink sink;
  uint64_t bytes = 0;
  void *state = nullptr, *record = nullptr;
  sink.check(kernel->workspace(&call, &bytes, sink.get()));
  const Sparse workspace(desc(ENG_U8, {int64_t(bytes) + 1}));
  sink.check(kernel->prepare(emulated().self(), &call, &state, sink.get()));
  const std::unique_ptr<void, void (*)(void*)> drop_state(state, kernel->drop_state);
  sink.check(kernel->bind(state, args.data(), uint32_t(args.size()), workspace.at(0), &record, sink.get()));
  const std::unique_ptr<void, void (*)(void*)> drop_record(record, kernel->drop_record);
  ::setenv("ENG_EMULATED_ORDER", "forward", 1);
  const eng_exec exec = {sizeof(eng_exec), 0, nullptr};
  for (const uint64_t block : blocks) {
    ::setenv("ENG_EMULATED_BLOCK", std::to_string(block).c_str(), 1);
    const eng_status status = kernel->launch(record, &exec, sink.get());
    ::unsetenv("ENG_EMULATED_BLOCK");
    sink.check(status);
  }
}

constexpr int64_t beyond = int64_t{1} << 31;

}  // namespace

TEST_CASE("emulated cuda: attention on tensor cores, past 2^31 elements", "[emulated]") {
  // The last head of so many that its sequence alone has more.
  const int64_t length = 132, heads = 65536, size = 256, stride = heads * size, first = stride - size;
  REQUIRE((length - 4) * stride >= beyond);
  const auto attrs = [](int64_t n) {
    return std::vector<eng_attr>{whole("heads", n), whole("kv_heads", n), real("scale", 0.0625)};
  };
  const eng_desc one = desc(ENG_BF16, {1, length, size}), one_lse = desc(ENG_F32, {1, 1, length});
  Random random(1);
  std::vector<Tensor> small;
  for (int k = 0; k < 4; ++k) small.push_back(random_normal(random, ENG_BF16, {1, length, size}));
  const Tensor &q = small[0], &k = small[1], &v = small[2], &grad = small[3];
  const Device::Outputs o = reference().run(ENG_OP_ATTENTION, {q, k, v}, {one, one_lse}, attrs(1));
  const Device::Outputs grads =
      reference().run(ENG_OP_ATTENTION_GRAD, {grad, q, k, v, o[0], o[1]}, {one, one, one}, attrs(1));

  std::vector<Sparse> all;
  for (int n = 0; n < 8; ++n) all.emplace_back(desc(ENG_BF16, {1, length, stride}));
  const Sparse lse(desc(ENG_F32, {1, heads, length})), &to = all[4];
  for (size_t n = 0; n < 4; ++n) all[n].put(small[n], first, size, stride);
  // Tiles of 64 queries; within a tile all heads.
  const uint64_t last = heads - 1;
  run_blocks(ENG_OP_ATTENTION, {&all[0], &all[1], &all[2]}, {&to, &lse}, attrs(heads),
             {last, heads + last, 2 * heads + last});
  CHECK(error_of(to.get(one, first, size, stride), o[0]) < 0.013);
  CHECK(error_of(lse.get(one_lse, (heads - 1) * length, length, length), o[1]) < 1e-3);
  // dq has one block for each tile; dk and dv have two, for halves of the columns.
  std::vector<uint64_t> blocks = {last, heads + last, 2 * heads + last};
  for (const uint64_t tile : {0, 1, 2})
    for (const uint64_t half : {0, 1}) blocks.push_back(2 * (tile * heads + last) + half);
  run_blocks(ENG_OP_ATTENTION_GRAD, {&all[3], &all[0], &all[1], &all[2], &to, &lse}, {&all[5], &all[6], &all[7]},
             attrs(heads), blocks);
  for (size_t n = 0; n < 3; ++n) {
    INFO("gradient " << n);
    CHECK(error_of(all[5 + n].get(one, first, size, stride), grads[n]) < 0.02);
  }
}

TEST_CASE("emulated cuda: elementwise ops past 2^31 elements", "[emulated]") {
  // Blocks share the elements in strides of 4096 * 1024: block 0 has those right behind 2^31, and the last 3.
  const int64_t few = 1027, n = beyond + few;
  struct Op {
    const char* op;
    size_t inputs;
    int32_t from, to;
    std::vector<eng_attr> attrs;
  };
  const Op ops[] = {{ENG_OP_ADD, 2, ENG_BF16, ENG_BF16, {}},
                    {ENG_OP_ADD, 2, ENG_F32, ENG_F32, {}},
                    {ENG_OP_SCALE, 1, ENG_BF16, ENG_BF16, {real("factor", 0.3)}},
                    {ENG_OP_CAST, 1, ENG_F32, ENG_BF16, {whole("dtype", ENG_BF16)}},
                    {ENG_OP_ACTIVATION, 1, ENG_BF16, ENG_BF16, {whole("act", ENG_ACT_SILU)}},
                    {ENG_OP_GATED, 2, ENG_BF16, ENG_BF16, {whole("act", ENG_ACT_SILU)}}};
  Random random(2);
  for (const Op& o : ops) {
    INFO(o.op);
    std::vector<Tensor> small;
    std::vector<Sparse> in;
    std::vector<const Sparse*> in_of_op;
    for (size_t k = 0; k < o.inputs; ++k) small.push_back(random_normal(random, o.from, {few}));
    for (size_t k = 0; k < o.inputs; ++k) in.emplace_back(desc(o.from, {n})), in[k].put(small[k], beyond, few, few);
    for (const Sparse& t : in) in_of_op.push_back(&t);
    const Sparse out(desc(o.to, {n}));
    run_blocks(o.op, in_of_op, {&out}, o.attrs, {0});
    ::setenv("ENG_EMULATED_ORDER", "forward", 1);
    const Tensor want = emulated().run(o.op, small, {desc(o.to, {few})}, o.attrs)[0];
    CHECK(out.get(want.d, beyond, few, few).same_bits(want));
  }
}
