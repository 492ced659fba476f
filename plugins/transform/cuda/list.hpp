// SPDX-License-Identifier: Apache-2.0
// The kernels of the ops of engine/ops_fp8.h for the device "cuda", and the library that multiplies for them.
#pragma once

#include <memory>
#include <vector>

#include "../../common/call.hpp"

namespace fp8 {

// c (M, N) = a b^T [+ acc] [+ bias of each column], times two scales. a (M, K) and b (N, K) are values of 8 bits. They
// and c lie row by row, without gaps.
struct Product {
  int32_t a, b;          // ENG_FP8_*
  int32_t type, result;  // of bias; of c and acc
  int64_t m, n, k;       // k: a multiple of 16
  bool bias;
};
// Device pointers. scales: a and b are divided by these; float(0) is that of a, float(4) that of b.
struct Operands {
  const void *a, *b, *acc, *bias;
  const float* scales;
  void* c;
};
constexpr int b_scale = 4;  // the element of `scales`, aligned to 16 bytes

// The library's choice for a product. The same for the same product, GPU and version of the library.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // Enqueues. `scratch`: as many bytes as were given to prepare, aligned to 256. Throws Error.
  virtual void run(const Operands& o, void* scratch, void* queue) const = 0;
};
// Chooses for the GPU on which o.c lies; o.a and o.b are not read. Gives null if the library refuses. Throws Error for
// what is no refusal, and for addresses that are less aligned than those of `run` must be. Set where the library is
// there: not in kernels compiled for the host.
inline std::shared_ptr<const Algorithm> (*prepare)(const Product& p, uint64_t bytes, const Operands& o,
                                                   const void* scratch) = nullptr;

void add_product(std::vector<const eng_kernel*>& list);
void add_state(std::vector<const eng_kernel*>& list);

inline std::vector<const eng_kernel*> cuda_kernels() {
  std::vector<const eng_kernel*> list;
  add_product(list), add_state(list);
  return list;
}

}  // namespace fp8
