// SPDX-License-Identifier: Apache-2.0
// The kernels that are compiled once per instruction set, as a table; the device picks one at run time.
#pragma once

#include "../../common/simd/gemm_block.hpp"

namespace cpu {

// Queries and keys of one attention block.
inline constexpr int64_t attention_side = 64;

struct AttentionShape {
  int64_t batch, tokens, heads, kv_heads, width;  // width: D, elements of one head
  float scale;
  Stored stored;   // all tensors except lse, which is f32
  int64_t window;  // of keys that a query sees, its own included; 0: all before it
  float cap;       // of scores; 0: none

  // Inlined always: this header is also read by files for newer instruction sets, whose copies must not be shared.
  CPU_ALWAYS int64_t padded() const { return (width + 15) / 16 * 16; }  // a multiple of every vector
  CPU_ALWAYS int64_t query_blocks() const { return (tokens + attention_side - 1) / attention_side; }
  // Scratch bytes of one thread: packed keys and values (backward: and their gradients), one block of queries,
  // results and scores.
  CPU_ALWAYS uint64_t forward_scratch() const { return bytes(2, 2, 1); }
  CPU_ALWAYS uint64_t backward_scratch() const { return bytes(5, 3, 2); }
  // Scratch bytes for the next positions of a sequence: a block of keys and one of values, and of each query head that
  // reads them a block of queries and one of results.
  CPU_ALWAYS uint64_t step_scratch() const {
    const int64_t side = attention_side, block = side * padded();
    const int64_t floats = 2 * block + side * side + side + heads / kv_heads * (2 * block + 2 * side);
    return static_cast<uint64_t>(floats) * sizeof(float);
  }

 private:
  CPU_ALWAYS uint64_t bytes(int64_t matrices, int64_t blocks, int64_t scores) const {
    const int64_t side = attention_side;
    const int64_t floats = (matrices * query_blocks() + blocks) * side * padded() + scores * side * side + 3 * side;
    return static_cast<uint64_t>(floats) * sizeof(float);
  }
};

// Products of bf16 whose steps of the depth are pairs of neighbouring elements, each packed into the place of a float:
// see pairs_tile.hpp.
struct Pairs {
  PackA pack_a;
  void (*multiply)(const Block&);
};

// scale * (softmax - onehot) + 2 * z * lse * softmax.
struct RowGradient {
  float scale, z;
};

struct Isa {
  const char* name;
  bool (*supported)();
  // Products, see common/simd/gemm_tile.hpp.
  PackA pack_a[stored_kinds];
  void (*multiply[stored_kinds])(const Block&);  // by what B is
  // C = sums + plus in 16 bits, rounded once; plus may be null. By [what C is][whether plus is f32].
  void (*round_sums[stored_kinds][2])(int64_t rows, int64_t columns, const float* sums, int64_t ld, const void* plus,
                                      int64_t plus_stride, void* c, int64_t ldc);
  // Query blocks first, first + step, ... of the heads that read key head kv_head of sequence b. segments (tokens): of
  // that sequence, or null.
  void (*attention_forward)(const AttentionShape&, int64_t b, int64_t kv_head, int64_t first, int64_t step,
                            const int32_t* segments, const void* q, const void* k, const void* v, void* o, float* lse,
                            void* scratch);
  // One key head of sequence b with all the query heads that read it.
  void (*attention_backward)(const AttentionShape&, int64_t b, int64_t kv_head, const int32_t* segments,
                             const void* grad, const void* q, const void* k, const void* v, const void* o,
                             const float* lse, void* dq, void* dk, void* dv, void* scratch);
  // The queries q0 .. q0 + 63 of sequence b, which are at positions `at` + q0 and on, of the query heads first,
  // first + step, ... of those that read key head kv_head. k, v: caches (B, length, kv_heads * D), with their keys.
  void (*attention_step)(const AttentionShape&, int64_t at, int64_t length, int64_t b, int64_t q0, int64_t kv_head,
                         int64_t first, int64_t step, const void* q, const void* k, const void* v, void* o,
                         void* scratch);
  // Loss of one row of n logits, and log sum exp of them; with `gradient` the row becomes its gradient.
  double (*row_loss)(float* logits, int64_t n, int64_t label, const RowGradient* gradient, double* lse);
  // n numbers: y = cap tanh(x / cap), where y may be x; and dx times its derivative, from y.
  void (*cap_row)(const float* x, int64_t n, float cap, float* y);
  void (*cap_row_grad)(const float* y, int64_t n, float cap, float* dx);
  const Pairs* pairs;  // or null
};

extern const Isa isa_avx512, isa_avx2, isa_portable;
extern const Pairs pairs_avx512;

// The best table this processor runs, or the one of that name; nullptr if there is none or it cannot run here.
const Isa* best_isa();
const Isa* find_isa(const char* name);

}  // namespace cpu
