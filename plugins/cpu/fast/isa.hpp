// SPDX-License-Identifier: Apache-2.0
// The kernels that are compiled once per instruction set, as a table; the device picks one at run time.
#pragma once

#include <cstdint>

namespace cpu {

// One product of a single thread: C (m, n) = op(A) op(B) [+ C] [+ bias by column]. A and B are row-major in memory
// with leading dimensions lda, ldb; ta, tb say that they are stored transposed.
struct TileShape {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  bool ta, tb, bias, accumulate;
};

// Scratch bytes of one thread for any tile.
inline constexpr uint64_t gemm_tile_scratch = uint64_t{2} << 20;

struct AttentionShape {
  int64_t batch, tokens, heads, kv_heads, width;  // width: D, elements of one head
  float scale;
};

// Loss and gradient of one row of logits; see softmax.hpp.
struct Isa {
  const char* name;
  bool (*supported)();
  void (*gemm)(const TileShape&, const float* a, const float* b, const float* bias, float* c, void* scratch);
};

extern const Isa isa_avx512, isa_avx2, isa_portable;

// The best table this processor runs, or the one of that name; nullptr if there is none or it cannot run here.
const Isa* best_isa();
const Isa* find_isa(const char* name);

}  // namespace cpu
