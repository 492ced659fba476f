// SPDX-License-Identifier: Apache-2.0
// The software cuBLASLt beside NVIDIA's, as far as that goes without a driver: descriptors, and names of errors. It
// refuses to start; nothing is computed by it.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "run.hpp"

using namespace cuda_test;

namespace {

struct Library {
  explicit Library(const char* file) : handle(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) throw std::runtime_error(dlerror());
  }
  template <class F>
  F* function(F*, const char* name) const {
    void* address = dlsym(handle, name);
    if (!address) throw std::runtime_error(std::string(name) + " is missing");
    return reinterpret_cast<F*>(address);
  }
  void* handle;
};

// The answers to all that the plugin asks of descriptors, and to the same with a wrong size.
std::vector<int> answers(const Library& library) {
  std::vector<int> out;
#define CALL(name) library.function(name, #name)
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t layout;
  cublasLtMatmulPreferenceOpaque_t preference;
  const auto init_operation = CALL(cublasLtMatmulDescInit_internal);
  const auto init_layout = CALL(cublasLtMatrixLayoutInit_internal);
  const auto init_preference = CALL(cublasLtMatmulPreferenceInit_internal);
  out.push_back(init_operation(&operation, sizeof operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  for (const size_t less : {8, 0}) {
    out.push_back(init_layout(&layout, sizeof layout - less, CUDA_R_16BF, 8, 4, 8));
    out.push_back(init_preference(&preference, sizeof preference - less));
  }
  for (const cudaDataType_t type : {CUDA_R_8F_E4M3, CUDA_R_8F_E5M2})
    out.push_back(init_layout(&layout, sizeof layout, type, 16, 4, 16));
  char value[16] = {};
  for (const size_t size : {4, 8})
    for (const int what : {CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                           CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                           CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                           CUBLASLT_MATMUL_DESC_B_SCALE_POINTER}) {
      value[0] = 0;
      out.push_back(
          CALL(cublasLtMatmulDescSetAttribute)(&operation, cublasLtMatmulDescAttributes_t(what), value, size));
    }
  for (const uint32_t epilogue : {uint32_t{CUBLASLT_EPILOGUE_DEFAULT}, uint32_t{CUBLASLT_EPILOGUE_BIAS},
                                  uint32_t{CUBLASLT_EPILOGUE_RELU_AUX}, uint32_t{CUBLASLT_EPILOGUE_RELU_AUX_BIAS},
                                  uint32_t{CUBLASLT_EPILOGUE_DRELU}, uint32_t{CUBLASLT_EPILOGUE_DRELU_BGRAD}})
    out.push_back(CALL(cublasLtMatmulDescSetAttribute)(&operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4));
  for (const size_t size : {4, 8})
    for (const int what : {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                           CUBLASLT_MATMUL_PREF_IMPL_MASK, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      const uint64_t two = 2;
      out.push_back(CALL(cublasLtMatmulPreferenceSetAttribute)(&preference, cublasLtMatmulPreferenceAttributes_t(what),
                                                               &two, size));
    }
  return out;
}

}  // namespace

TEST_CASE("the software cuBLASLt answers like NVIDIA's where that needs no driver") {
  const Library real(CUBLASLT_REAL), software("libcublasLt.so.13");
  REQUIRE(real.handle != software.handle);
  const std::vector<int> want = answers(real), got = answers(software);
  CHECK(got == want);
  CHECK(std::count(want.begin(), want.end(), int{CUBLAS_STATUS_SUCCESS}) > 10);
  CHECK(std::count(want.begin(), want.end(), int{CUBLAS_STATUS_INVALID_VALUE}) > 5);
  for (const int status : {0, 1, 3, 7, 8, 13, 14, 15}) {
    const auto name = [&](const Library& l) {
      return std::string(l.function(cublasLtGetStatusName, "cublasLtGetStatusName")(cublasStatus_t(status)));
    };
    CHECK(name(software) == name(real));
  }
  CHECK(real.function(cublasLtGetVersion, "cublasLtGetVersion")() ==
        software.function(cublasLtGetVersion, "cublasLtGetVersion")());
}
