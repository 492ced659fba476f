// SPDX-License-Identifier: Apache-2.0
// Matrix products over all threads: C is cut into tiles, each computed by one thread, either by a oneDNN primitive
// made for one thread or by the own kernel. No sum is ever split between threads, and scratch stays small on
// machines with many cores (oneDNN's own parallel products want gigabytes there for long sums). The cut depends on
// the shape and the number of threads alone; another number of threads may round some weight gradients differently.
#pragma once

#include <memory>

#include "device.hpp"

namespace cpu {

// C (m, n) = op(A) op(B) [+ bias] [+ C]; all matrices dense and row-major, ta and tb: stored transposed.
struct GemmShape {
  int64_t m, n, k;
  bool ta = false, tb = false, bias = false, accumulate = false;
};

// What a product needs besides its matrices: depends on the number of threads alone.
inline uint64_t gemm_scratch(unsigned threads) {
  return uint64_t{threads} * gemm_tile_scratch;
}

// A prepared product; must outlive its calls.
class Gemm {
 public:
  Gemm(const Device&, const GemmShape&, unsigned threads);
  ~Gemm();
  Gemm(Gemm&&) noexcept;

 private:
  friend class GemmCall;
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

// A product at fixed addresses. `run` allocates nothing of its own (oneDNN makes a few small objects by operator new).
class GemmCall {
 public:
  GemmCall(const Gemm&, const float* a, const float* b, const float* bias, float* c, void* scratch);
  ~GemmCall();
  GemmCall(GemmCall&&) noexcept;
  void run() const;

 private:
  struct Tiles;
  std::unique_ptr<Tiles> tiles_;
};

}  // namespace cpu
