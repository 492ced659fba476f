// SPDX-License-Identifier: Apache-2.0
// Blocks of matrix products, as gemm_tile.hpp multiplies them for one instruction set.
#pragma once

#include <cstdint>

#define CPU_ALWAYS inline __attribute__((always_inline))

namespace cpu {

// The type of a tensor's elements in memory. Sums are in f32.
enum Stored { stored_f32, stored_bf16, stored_f16, stored_kinds };
CPU_ALWAYS constexpr int64_t stored_bytes(Stored s) {
  return s == stored_f32 ? 4 : 2;
}

// Packed operands of a product, for any instruction set: a panel of B is at most 32 columns wide, the panels of n rows
// of A take at most 4/3 n + 16 rows of their depth.
inline constexpr int64_t most_tile_columns = 32;
constexpr int64_t most_packed_rows(int64_t n) {
  return (n * 4 + 2) / 3 + 16;
}

// Rows that a thread will read soon. It fetches them into the cache while it multiplies.
struct Ahead {
  const char* from = nullptr;
  int64_t stride = 0, width = 0, count = 0;  // `count` rows of `width` bytes
};

// One block of depth of some rows and columns of C: C = A B + plus. A is packed. B is packed panel by panel on the way.
struct Block {
  int64_t rows, columns, depth;
  const float* a;
  const void* b;  // element (k, n) is at k * b_k + n * b_column; one of both strides is 1
  int64_t b_k, b_column;
  float* panel;       // room for a packed panel of B
  const float* plus;  // (rows, columns), rows plus_stride apart: 0 for one row that is added to all; or null
  int64_t plus_stride;
  float* c;
  int64_t ldc;
  Ahead later;  // what is fetched meanwhile
};

// Packs the A of a block: element (row, k) is at row * row_stride + k * k_stride; one of both strides is 1.
using PackA = void (*)(const void* a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t depth, float* out);

}  // namespace cpu
