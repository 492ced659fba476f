// SPDX-License-Identifier: Apache-2.0
// The data that the software cuBLASLt keeps in the opaque structs of its callers.
#pragma once

#include <string>

#include "software_blas.hpp"

namespace softblas {

struct Layout {
  static constexpr uint32_t kind = 0x1a1a0001;
  uint32_t mark, type;
  int32_t order, batch;
  uint64_t rows, columns;
  int64_t ld;
  uint64_t unused[3];
};
struct Operation {
  static constexpr uint32_t kind = 0x1a1a0002;
  uint32_t mark;
  int32_t compute, scale, ta, tb, bias_type, pointer_mode;
  uint32_t epilogue;
  const void* bias;  // of a gradient: where it is written
  void* mask;
  int64_t mask_ld;                // bits
  const void *a_scale, *b_scale;  // of factors of 8 bits
  uint64_t unused[23];
};
struct Preference {
  static constexpr uint32_t kind = 0x1a1a0003;
  uint32_t mark, schemes;
  uint64_t scratch, numbers;
  uint32_t aligned[4];  // A, B, C, D
  uint64_t unused[3];
};
// One way to compute one product.
struct Algorithm {
  static constexpr uint32_t kind = 0x1a1a0004;
  uint32_t mark, scheme, parts, aligned;
  uint64_t numbers, scratch, product;  // product: a hash of what it is for
  uint64_t unused[3];
};
static_assert(sizeof(Layout) == sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Operation) == sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Preference) == sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

// The state behind a caller's struct; null: it was never initialised.
template <class T>
T* of(const void* opaque) {
  auto* t = static_cast<T*>(const_cast<void*>(opaque));
  return t && t->mark == T::kind ? t : nullptr;
}

struct Problem {
  Operation operation;
  Layout a, b, c, d;
  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.columns; }
  uint64_t k() const { return operation.ta ? a.rows : a.columns; }
  uint64_t hash() const;  // of all but the addresses of bias and mask
};
struct Addresses {
  const void *a, *b, *c;
  void *d, *scratch;
  uint64_t scratch_bytes;
  float alpha, beta;
};

// Values of 8 bits.
inline bool is_fp8(uint32_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}
inline bool has_mask(uint32_t epilogue) {
  return epilogue & 128;
}
// A bias, or the gradient of one.
inline bool has_vector(uint32_t epilogue) {
  return epilogue & (CUBLASLT_EPILOGUE_BIAS | 16);
}
uint64_t size_of(uint32_t type);  // bytes of an element
uint64_t reach(const Layout& l);  // bytes from the first to behind the last element
bool asked(const char* variable, const char* value);
void complain(const std::string& what);

// On memory of this process. "" or what is wrong.
std::string multiply(const Problem& p, const Algorithm& algorithm, const Addresses& at);

}  // namespace softblas
