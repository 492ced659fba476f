// SPDX-License-Identifier: Apache-2.0
// Products of values of 8 bits by cuBLASLt. GPUs of sm_89 and sm_90 multiply them in one layout only, and newer ones in
// this one, too: the terms lie beside each other in both factors. cuBLASLt counts matrices by columns, so c^T = b a^T:
// its A is our b, transposed, and its B is our a.
//
// The algorithm is the first one that cuBLASLt proposes, from the shapes, the GPU and its version alone, and that gives
// the same bits in every run (common/cuda/cublaslt.hpp). Sums are f32; the mode that adds with fewer bits is left off.
#include <algorithm>
#include <climits>
#include <map>
#include <mutex>

#include "../../common/cuda/cublaslt.hpp"
#include "engine/ops_fp8.h"
#include "list.hpp"

namespace fp8 {
namespace {

using namespace cuda::lt;

constexpr uint32_t aligned = 256;  // bytes: what eng_kernel.bind promises
constexpr uint64_t numbers = ~CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F;

cudaDataType_t type_of_format(int32_t format) {
  return format == ENG_FP8_E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

// One for all products of the GPU of an address, and as long as there are any. The GPU becomes the current one.
std::shared_ptr<cublasLtContext> handle(const void* address) {
  static std::mutex lock;
  static std::map<int, std::weak_ptr<cublasLtContext>> handles;
  cudaPointerAttributes at{};
  cudaError_t error = cudaPointerGetAttributes(&at, address);
  if (error == cudaSuccess) error = cudaSetDevice(at.device);
  if (error != cudaSuccess)
    throw common::Error{ENG_UNAVAILABLE, std::string("selecting the GPU of a product: ") + cudaGetErrorString(error)};
  const std::lock_guard held(lock);
  std::shared_ptr<cublasLtContext> one = handles[at.device].lock();
  if (!one) handles[at.device] = one = make_handle();
  return one;
}

// Made anew for each launch: addresses are part of it.
struct Operation : MatmulOf {
  Operation(const Product& p, const void* bias, const float* scales) : MatmulOf(true, false) {
    set<const void*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales + b_scale);
    set<const void*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales);
    if (!p.bias) return;
    set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    set<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.type));
  }
};

class Chosen final : public Algorithm {
 public:
  Chosen(const Product& p, uint64_t scratch, const void* c)
      : handle_(handle(c)),
        p_(p),
        limits_{scratch, numbers, aligned, aligned, aligned},
        a_(type_of_format(p.a), p.m, p.k),
        b_(type_of_format(p.b), p.n, p.k),
        c_(type_of(p.result), p.m, p.n) {}

  // False: the library has nothing that fits.
  bool choose() {
    const auto* const any = reinterpret_cast<const float*>(uintptr_t{aligned});
    // Sizes that are no multiples of 16 bytes may be an invalid value.
    const auto proposed = propose(handle_.get(), Operation(p_, any, any), b_, a_, c_, limits_, true);
    if (proposed.empty()) return false;
    return algorithm_ = proposed[0], true;
  }

  void run(const Operands& o, void* scratch, void* queue) const override {
    const float one = 1, added = o.acc ? 1 : 0;
    check(cublasLtMatmul(handle_.get(), Operation(p_, o.bias, o.scales).get(), &one, o.b, b_.get(), o.a, a_.get(),
                         &added, o.acc ? o.acc : o.c, c_.get(), o.c, c_.get(), &algorithm_,
                         limits_.scratch ? scratch : nullptr, limits_.scratch, static_cast<cudaStream_t>(queue)),
          "multiplying in fp8");
  }

 private:
  std::shared_ptr<cublasLtContext> handle_;
  Product p_;
  Limits limits_;
  Layout a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
};

std::shared_ptr<const Algorithm> choose(const Product& p, uint64_t bytes, const Operands& o, const void* scratch) {
  if (p.m < 1 || p.n < 1 || p.k < 1 || std::max({p.m, p.n, p.k}) > INT_MAX) return nullptr;
  const auto chosen = std::make_shared<Chosen>(p, bytes, o.c);
  if (!chosen->choose()) return nullptr;
  for (const auto& [name, at] :
       {std::pair("scratch", scratch), {"result", o.c}, {"term", o.acc}, {"bias", p.bias ? o.bias : nullptr}})
    if (reinterpret_cast<uintptr_t>(at) % aligned)
      throw common::Error{ENG_INVALID,
                          std::string("the ") + name + " of a product in fp8 must be aligned to 256 bytes"};
  return chosen;
}

[[maybe_unused]] const bool given = (prepare = choose, true);  // when the plugin is loaded

}  // namespace
}  // namespace fp8
