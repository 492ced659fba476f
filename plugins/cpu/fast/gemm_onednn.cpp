// SPDX-License-Identifier: Apache-2.0
#include "gemm_onednn.hpp"

#ifdef CPU_ONEDNN
#include <dnnl.h>

#include <cstring>

#include "../../common/call.hpp"
#include "threads.hpp"
#endif

namespace cpu {

#ifndef CPU_ONEDNN

struct OnednnTile::Primitive {};
struct OnednnTile::Call::Memory {};
OnednnTile::OnednnTile() = default;
OnednnTile::~OnednnTile() = default;
std::unique_ptr<OnednnTile> OnednnTile::make(const TileShape&) {
  return nullptr;
}
OnednnTile::Call::Call(const OnednnTile&, const float*, const float*, const float*, float*) {}
OnednnTile::Call::~Call() = default;
OnednnTile::Call::Call(Call&&) noexcept = default;
void OnednnTile::Call::run(void*) const {}
void* onednn_make_scratch(void*) {
  return nullptr;
}
void onednn_drop_scratch(void*) {}

#else

namespace {

void need(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  throw Error{ENG_INTERNAL, std::string("oneDNN: ") + what + " failed with status " + std::to_string(status)};
}

// One engine and stream for the process: both are empty shells for a processor.
struct Library {
  dnnl_engine_t engine = nullptr;
  dnnl_stream_t stream = nullptr;
  Library() {
    need(dnnl_engine_create(&engine, dnnl_cpu, 0), "making an engine");
    need(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "making a stream");
  }
  ~Library() {
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
  }
};
const Library& library() {
  static const Library instance;
  return instance;
}

dnnl_memory_desc_t matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  const dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};
  dnnl_memory_desc_t desc;
  need(dnnl_memory_desc_init_by_strides(&desc, 2, dims, dnnl_f32, strides), "describing a matrix");
  return desc;
}

template <class T, dnnl_status_t (*destroy)(T)>
struct Owned {
  T value = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (value) destroy(value);
  }
};
using OwnedMemory = Owned<dnnl_memory_t, dnnl_memory_destroy>;

}  // namespace

struct OnednnTile::Primitive {
  TileShape shape;
  dnnl_memory_desc_t a, b, bias, c;
  Owned<dnnl_primitive_t, dnnl_primitive_destroy> primitive;
};

struct OnednnTile::Call::Memory {
  const Primitive* primitive = nullptr;
  OwnedMemory a, b, bias, c;
  dnnl_exec_arg_t args[4];
  int count = 0;
  void take(int arg, OwnedMemory& memory, const dnnl_memory_desc_t& desc, const float* data) {
    // oneDNN's handles are not const; it only reads its sources.
    need(dnnl_memory_create(&memory.value, &desc, library().engine, const_cast<float*>(data)), "naming memory");
    args[count++] = {arg, memory.value};
  }
};

OnednnTile::OnednnTile() = default;
OnednnTile::~OnednnTile() = default;

std::unique_ptr<OnednnTile> OnednnTile::make(const TileShape& s) {
  std::unique_ptr<OnednnTile> tile(new OnednnTile);
  tile->primitive_ = std::make_unique<Primitive>();
  Primitive& p = *tile->primitive_;
  p.shape = s;
  p.a = matrix(s.m, s.k, s.ta ? 1 : s.lda, s.ta ? s.lda : 1);
  p.b = matrix(s.k, s.n, s.tb ? 1 : s.ldb, s.tb ? s.ldb : 1);
  p.c = matrix(s.m, s.n, s.ldc, 1);
  p.bias = matrix(1, s.n, s.n, 1);
  dnnl_matmul_desc_t op;
  need(dnnl_matmul_desc_init(&op, &p.a, &p.b, s.bias ? &p.bias : nullptr, &p.c), "describing a product");

  Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy> attr;
  need(dnnl_primitive_attr_create(&attr.value), "making attributes");
  need(dnnl_primitive_attr_set_scratchpad_mode(attr.value, dnnl_scratchpad_mode_user), "asking for own scratch");
  if (s.accumulate) {
    Owned<dnnl_post_ops_t, dnnl_post_ops_destroy> post;
    need(dnnl_post_ops_create(&post.value), "making post-ops");
    need(dnnl_post_ops_append_sum(post.value, 1.0f), "adding a sum");
    need(dnnl_primitive_attr_set_post_ops(attr.value, post.value), "setting post-ops");
  }

  const ThreadCountGuard one_thread(1);
  Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy> desc;
  const dnnl_status_t status = dnnl_primitive_desc_create(&desc.value, &op, attr.value, library().engine, nullptr);
  if (status == dnnl_unimplemented || status == dnnl_invalid_arguments) return nullptr;
  need(status, "choosing an algorithm");
  // Its other implementations call malloc in every run or are slower than the own kernel.
  const char* name = nullptr;
  need(dnnl_primitive_desc_query(desc.value, dnnl_query_impl_info_str, 0, &name), "asking for the algorithm");
  if (!name || std::strncmp(name, "brg:", 4) != 0) return nullptr;
  const dnnl_memory_desc_t* scratch = dnnl_primitive_desc_query_md(desc.value, dnnl_query_scratchpad_md, 0);
  if (scratch && dnnl_memory_desc_get_size(scratch) > gemm_tile_scratch) return nullptr;
  need(dnnl_primitive_create(&p.primitive.value, desc.value), "making a product");
  return tile;
}

OnednnTile::Call::Call(const OnednnTile& tile, const float* a, const float* b, const float* bias, float* c)
    : memory_(std::make_unique<Memory>()) {
  const Primitive& p = *tile.primitive_;
  Memory& m = *memory_;
  m.primitive = &p;
  m.take(DNNL_ARG_SRC, m.a, p.a, a);
  m.take(DNNL_ARG_WEIGHTS, m.b, p.b, b);
  m.take(DNNL_ARG_DST, m.c, p.c, c);
  if (p.shape.bias) m.take(DNNL_ARG_BIAS, m.bias, p.bias, bias);
}
OnednnTile::Call::~Call() = default;
OnednnTile::Call::Call(Call&&) noexcept = default;

void OnednnTile::Call::run(void* scratch_handle) const {
  const Memory& m = *memory_;
  dnnl_exec_arg_t args[5];
  std::memcpy(args, m.args, sizeof m.args);
  args[m.count] = {DNNL_ARG_SCRATCHPAD, static_cast<dnnl_memory_t>(scratch_handle)};
  need(dnnl_primitive_execute(m.primitive->primitive.value, library().stream, m.count + 1, args), "a product");
}

void* onednn_make_scratch(void* bytes) {
  const dnnl_dims_t dims = {static_cast<int64_t>(gemm_tile_scratch)}, strides = {1};
  dnnl_memory_desc_t desc;
  need(dnnl_memory_desc_init_by_strides(&desc, 1, dims, dnnl_u8, strides), "describing scratch");
  dnnl_memory_t memory = nullptr;
  need(dnnl_memory_create(&memory, &desc, library().engine, bytes), "naming scratch");
  return memory;
}
void onednn_drop_scratch(void* handle) {
  dnnl_memory_destroy(static_cast<dnnl_memory_t>(handle));
}

#endif

}  // namespace cpu
