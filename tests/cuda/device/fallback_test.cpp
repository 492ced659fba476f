// SPDX-License-Identifier: Apache-2.0
// Products that cuBLASLt does not take, and what is told where it fails (emulated).
#include <catch2/catch.hpp>

#include "run.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

// Own kernels compute it.
void check_own(const Use& use, const How& how = {}) {
  const Count count;
  check_close(use, 2e-6, how);
  CHECK(count() == 0);
}

}  // namespace

TEST_CASE("own kernels compute what cuBLASLt refuses, in the plan of those that it takes") {
  Random random(1);
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
    const Use with_bias = linear(random, type, 5, 16, 24, true), plain = linear(random, type, 5, 16, 24, false),
              narrow = matmul(random, type, ENG_F32, 8, 7, 16, false, false, Add::in_place);
    INFO("dtype " << type);
    {
      const Machine machine(with_twins({{"SOFTCUBLAS_REFUSE", "all"}}));
      check_own(with_bias), check_own(plain), check_own(narrow);
      CHECK(workspace_of(plain, describe(with_workspace(cap))) == uint64_t{cap});
    }
    {
      const Machine machine(with_twins({{"SOFTCUBLAS_REFUSE", "bias"}}));
      check_own(with_bias);
      const Count count;
      check_close(plain, 2e-6);
      CHECK(count() == 1);
    }
    const Machine machine(with_twins({{"SOFTCUBLAS_REFUSE", "narrow"}}));
    const Count count;
    check_close(plain, 2e-6);
    CHECK(count() == 1);
    if (type != ENG_F32) check_own(narrow);
  }
}

TEST_CASE("what is empty is not given to cuBLASLt and needs no scratch") {
  const Machine machine(with_twins());
  Random random(2);
  for (const auto& use : {linear(random, ENG_BF16, 0, 8, 8, true), linear(random, ENG_BF16, 4, 8, 0, true),
                          matmul(random, ENG_F32, ENG_F32, 3, 5, 0, true, true, Add::yes),
                          matmul(random, ENG_F16, ENG_F32, 3, 0, 8, true, true, Add::no)}) {
    CHECK(workspace_of(use, describe(with_workspace(cap))) == 0);
    check_own(use);
  }
}

TEST_CASE("addresses that are less aligned than promised go to own kernels") {
  const Machine machine(with_twins());
  Random random(3);
  for (const int32_t type : {ENG_F32, ENG_BF16}) {
    check_own(linear(random, type, 8, 16, 32, true), {cap, 128});
    check_own(matmul(random, type, ENG_F32, 8, 16, 32, false, true, Add::yes), {cap, 16});
  }
}

TEST_CASE("a failing cuBLASLt is told with shapes, queue and its own name for it") {
  Random random(4);
  const Use use = linear(random, ENG_BF16, 8, 16, 32, false);
  const std::string shapes = "[in bf16 (8, 32) bf16 (16, 32); out bf16 (8, 16)]: ";
  {
    const Machine machine(Variables{{"SOFTCUBLAS_FAIL", "create"}});
    CHECK_THROWS_WITH(Device(), Contains("device cuda: starting cuBLASLt: CUBLAS_STATUS_ALLOC_FAILED"));
  }
  {
    const Machine machine(Variables{{"SOFTCUBLAS_FAIL", "heuristic"}});
    CHECK_THROWS_WITH(run(use), Contains(shapes + "choosing an algorithm: CUBLAS_STATUS_INTERNAL_ERROR"));
  }
  const Machine machine(Variables{{"SOFTCUBLAS_FAIL", "matmul"}});
  CHECK_THROWS_WITH(run(use), Contains(shapes + "queue 0, multiplying: CUBLAS_STATUS_EXECUTION_FAILED"));
}

// The checks of the software library must find mistakes that a plugin could make.
TEST_CASE("the software cuBLASLt finds planted mistakes") {
  const Machine machine;
  cublasLtHandle_t handle = nullptr;
  REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  constexpr uint64_t m = 8, n = 4, k = 64, need = 4 * m * n * sizeof(float);
  const Room a(m * k * 4), b(k * n * 4), d(m * n * 4), scratch(need);
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t la, lb, ld;
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutInit(&la, CUDA_R_32F, m, k, m);
  cublasLtMatrixLayoutInit(&lb, CUDA_R_32F, k, n, k);
  cublasLtMatrixLayoutInit(&ld, CUDA_R_32F, m, n, m);
  cublasLtMatmulPreferenceInit(&preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
    CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  };
  std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
  int count = 0;
  const auto ask = [&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, &operation, &la, &lb, &ld, &ld, &preference, int{found.size()},
                                          found.data(), &count);
  };
  // By default TF32 comes first, and no algorithm may use scratch.
  REQUIRE(ask() == CUBLAS_STATUS_SUCCESS);
  uint64_t numbers = 0;
  size_t written = 0;
  cublasLtMatmulAlgoCapGetAttribute(&found[0].algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &numbers, sizeof numbers,
                                    &written);
  CHECK((numbers & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32) != 0);
  for (int i = 0; i < count; ++i) CHECK(found[size_t(i)].workspaceSize == 0);
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{need});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_IMPL_MASK, ~uint64_t{CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32});
  REQUIRE(ask() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(found[0].workspaceSize == need);

  const float one = 1, zero = 0;
  const auto multiply = [&](void* to, void* room, uint64_t bytes) {
    return cublasLtMatmul(handle, &operation, &one, a.address, &la, b.address, &lb, &zero, to, &ld, to, &ld,
                          &found[0].algo, room, bytes, nullptr);
  };
  CHECK(multiply(d.address, scratch.address, need) == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(d.address, scratch.address, need - 1) == CUBLAS_STATUS_INVALID_VALUE);  // too little scratch
  CHECK(multiply(d.address, nullptr, need) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(multiply(static_cast<char*>(d.address) + 4, scratch.address, need) ==
        CUBLAS_STATUS_INVALID_VALUE);                                                // alignment
  CHECK(multiply(a.address, scratch.address, need) == CUBLAS_STATUS_INVALID_VALUE);  // in place of A
  cublasLtMatrixLayoutInit(&lb, CUDA_R_32F, k, n, k - 1);
  CHECK(multiply(d.address, scratch.address, need) == CUBLAS_STATUS_INVALID_VALUE);  // columns overlap
  cublasLtMatrixLayoutInit(&lb, CUDA_R_32F, k, n + 1, k);
  CHECK(multiply(d.address, scratch.address, need) == CUBLAS_STATUS_INVALID_VALUE);  // sizes
  cublasLtMatrixLayoutInit(&lb, CUDA_R_32F, k, n, k + 4);
  CHECK(multiply(d.address, scratch.address, need) == CUBLAS_STATUS_INVALID_VALUE);  // the algorithm of another product
  int32_t wrong_size[2] = {};
  CHECK(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, wrong_size, 8) ==
        CUBLAS_STATUS_INVALID_VALUE);
  // Masks: of rows that are no multiple of 128 bits, or too short; without an address, or one that is not aligned.
  const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
    CHECK(cublasLtMatmulDescSetAttribute(&operation, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
  };
  const Room mask(n * 16 + 16);
  cublasLtMatrixLayoutInit(&lb, CUDA_R_32F, k, n, k);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_RELU_AUX});
  for (const int64_t bits : {0, 8, 192}) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, bits);
    CHECK(ask() == CUBLAS_STATUS_INVALID_VALUE);
  }
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{128});
  REQUIRE(ask() == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(d.address, scratch.address, need) == CUBLAS_STATUS_INVALID_VALUE);
  for (const int off : {8, 0}) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(static_cast<char*>(mask.address) + off));
    CHECK(multiply(d.address, scratch.address, need) == (off ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS));
  }
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
  CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
  // Reading beyond an allocation ends the context, when the product runs.
  cublasLtMatrixLayoutInit(&lb, CUDA_R_32F, k, n, k + 4);
  REQUIRE(ask() == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(d.address, scratch.address, need) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaStreamSynchronize(nullptr) == cudaErrorIllegalAddress);
  CHECK(cublasLtDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}
