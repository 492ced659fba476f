// SPDX-License-Identifier: Apache-2.0
// Descriptions of products for cuBLASLt, the choice of its algorithms, and its errors.
#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../error.hpp"

namespace cuda {
namespace lt {

inline eng_status status_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return ENG_NO_MEMORY;
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_LICENSE_ERROR:
      return ENG_UNAVAILABLE;
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return ENG_UNSUPPORTED;
    default:
      return ENG_INTERNAL;
  }
}

inline void check(cublasStatus_t status, std::string_view doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw common::Error{status_of(status), std::string(doing) + ": " + cublasLtGetStatusName(status) + " (" +
                                             cublasLtGetStatusString(status) + "), cuBLASLt " +
                                             std::to_string(cublasLtGetVersion())};
}

// A handle for the current device. Throws Error.
inline std::shared_ptr<cublasLtContext> make_handle() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting cuBLASLt");
  return {handle, [](cublasLtContext* context) { cublasLtDestroy(context); }};
}

// The types f32, bf16 and f16.
inline cudaDataType_t type_of(int32_t dtype) {
  return dtype == ENG_BF16 ? CUDA_R_16BF : dtype == ENG_F16 ? CUDA_R_16F : CUDA_R_32F;
}

inline constexpr char describing[] = "describing a product to cuBLASLt";

// An object of the library, on the stack, and the function that sets its attributes.
template <class Opaque, auto set_attribute>
struct Described {
  Opaque opaque{};
  Opaque* get() const { return const_cast<Opaque*>(&opaque); }
  template <class T, class Attribute>
  void set(Attribute what, T value) {
    check(set_attribute(&opaque, what, &value, sizeof value), describing);
  }
};

// cuBLASLt counts matrices by columns, and the engine by rows: (rows, columns) of one are (columns, rows) of the other.
struct Layout : Described<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutSetAttribute> {
  // Rows and columns of the engine. stride: from row to row; 0: columns.
  Layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride = 0) {
    check(cublasLtMatrixLayoutInit(&opaque, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                   stride ? stride : columns),
          describing);
  }
};

// An operation with sums in f32; op(A) and op(B) of cuBLASLt.
struct MatmulOf : Described<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescSetAttribute> {
  MatmulOf(bool a_transposed, bool b_transposed) {
    check(cublasLtMatmulDescInit(&opaque, CUBLAS_COMPUTE_32F, CUDA_R_32F), describing);
    set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  }
};

// The requirements of an algorithm. scratch: the most bytes; numbers: CUBLASLT_NUMERICAL_IMPL_FLAGS_* that it may have;
// aligned: bytes of A, B, and C and D.
struct Limits {
  uint64_t scratch, numbers;
  uint32_t a_aligned, b_aligned, c_aligned;
};
struct Preference : Described<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceSetAttribute> {
  explicit Preference(const Limits& limits) {
    check(cublasLtMatmulPreferenceInit(&opaque), describing);
    set<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limits.scratch);
    set<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    set<uint64_t>(CUBLASLT_MATMUL_PREF_IMPL_MASK, limits.numbers);
    set<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, limits.a_aligned);
    set<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, limits.b_aligned);
    set<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, limits.c_aligned);
    set<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, limits.c_aligned);
  }
};

// True if the proposed algorithm is within the limits and gives the same bits in every run. The library was told; what
// it proposes is looked at all the same.
inline bool acceptable(const cublasLtMatmulHeuristicResult_t& proposed, const Limits& limits) {
  constexpr char looking[] = "asking cuBLASLt how an algorithm computes";
  if (proposed.state != CUBLAS_STATUS_SUCCESS || proposed.workspaceSize > limits.scratch) return false;
  uint32_t scheme = 0;
  uint64_t flags = 0;
  size_t written = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&proposed.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                             sizeof scheme, &written),
        looking);
  check(cublasLtMatmulAlgoCapGetAttribute(&proposed.algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags,
                                          &written),
        looking);
  return (scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) &&
         (flags & ~limits.numbers) == 0;
}

// The acceptable algorithms that the library proposes for D = op(A) op(B) [+ C], in its order. None if it refuses;
// `odd`: an invalid value is a refusal, too. Throws Error.
inline std::vector<cublasLtMatmulAlgo_t> propose(cublasLtContext* handle, const MatmulOf& operation, const Layout& a,
                                                 const Layout& b, const Layout& c, const Limits& limits, bool odd) {
  std::array<cublasLtMatmulHeuristicResult_t, 16> proposed{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, operation.get(), a.get(), b.get(), c.get(), c.get(),
                                     Preference(limits).get(), int{proposed.size()}, proposed.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (odd && status == CUBLAS_STATUS_INVALID_VALUE)) return {};
  check(status, "choosing an algorithm");
  std::vector<cublasLtMatmulAlgo_t> out;
  for (int k = 0; k < std::clamp(count, 0, int{proposed.size()}); ++k)
    if (acceptable(proposed[k], limits)) out.push_back(proposed[k].algo);
  return out;
}

}  // namespace lt
}  // namespace cuda
