// SPDX-License-Identifier: Apache-2.0
// The software cuBLASLt: libcublasLt.so.13 for tests, in memory of the software CUDA runtime. Nothing here says
// anything about which algorithms a GPU's cuBLASLt has, or how fast they are.
//
// It proposes tempting algorithms first, so that a mistake of its caller shows: TF32, parts of K that are added in any
// order, parts that are rounded to the result's type. What it does wrong comes from the environment, at each call:
//   SOFTCUBLAS_REFUSE   all: no product; narrow: no 16-bit product whose rows are not aligned to 16 bytes;
//                       bias: none with a bias alone; relu: none with relu or its gradient; sums: none that sums the
//                       gradient of a bias
//   SOFTCUBLAS_FAIL     create, heuristic, matmul: that call returns an error
//   SOFTCUBLAS_SLOW     parts: algorithms that divide K take 2 ms more; whole: those that do not
//   SOFTCUBLAS_CARELESS 1: the heuristic forgets which algorithms were excluded, but for their scratch
#pragma once

#include <cublasLt.h>

#include <cstdint>

extern "C" {

// The way in which the last product of this process was computed.
struct software_blas_use {
  uint64_t products;  // so many since the start
  uint64_t scratch;   // bytes that the algorithm needs
  uint32_t scheme;    // CUBLASLT_REDUCTION_SCHEME_*
  uint32_t parts;     // of K
  uint64_t numbers;   // CUBLASLT_NUMERICAL_IMPL_FLAGS_*
  uint32_t epilogue;
};
software_blas_use software_blas_last(void);
}
