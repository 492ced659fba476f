// SPDX-License-Identifier: Apache-2.0
// Products of matrices by a library of the device. The plugin sets `table` when it starts. Where nobody does, and for
// what the library refuses, kernels of their own compute them.
#pragma once

#include <memory>

#include "../../common/call.hpp"

namespace cuda {
namespace library {

// eng_device_info.settings: [device] loss_chunk, in tokens; 0: what it is by default.
constexpr size_t loss_chunk_setting = 3;
constexpr int64_t usual_loss_chunk = 4096;

// eng_device_info.settings: [device] attention, modulo 4; this value asks for the gradient by wgmma.
constexpr size_t attention_setting = 1;
constexpr uint64_t own_wgmma = 3;

constexpr uint32_t most_aligned = 256;  // bytes: what eng_kernel.bind promises

// The operation on a sum before it is stored in c. The mask is that of eng.linear_relu/1, which says what is promised
// of NaN and of the sign of 0.
enum class Epilogue : uint8_t {
  none,
  relu,       // 0 instead of what is not above 0; writes the mask, for N that are multiples of 128 only
  relu_grad,  // 0 where the mask has a 0
};

// c (M, N) = op(a) op(b) [+ acc] [+ bias of each column], all of them row by row. op(a) is (M, K), op(b) is (K, N).
struct Product {
  int32_t type = 0;    // of a, b and bias
  int32_t result = 0;  // of c and acc
  int64_t m = 0, n = 0, k = 0;
  bool ta = false, tb = false, add = false, bias = false;
  // Elements from one row of a, as it is stored, and of c and acc to the next; 0: as many as it has.
  int64_t a_stride = 0, c_stride = 0;
  Epilogue epilogue = Epilogue::none;
  int32_t sums = 0;  // of relu_grad, which can give the sums of the columns of c too: their type; 0: it does not
  uint32_t a_aligned = most_aligned, b_aligned = most_aligned, c_aligned = most_aligned;  // bytes; acc is as c
};
struct Operands {
  const void *a, *b, *acc, *bias;
  void *c, *mask = nullptr, *sums = nullptr;
};

// The library's choice for a product. The same for the same product, device and version of the library.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // True if the addresses are as aligned as was promised.
  virtual bool takes(const Operands& o) const = 0;
  // Enqueues. `scratch`: as many bytes as were given to prepare, aligned to 256. Throws Error.
  virtual void run(const Operands& o, void* scratch, void* queue) const = 0;
};

struct Table {
  // Bytes that the plan gives to the product, known without a device; 0 if the library never takes it.
  uint64_t (*scratch)(const common::Call& call, const Product& p);
  // Null: the library refuses. Throws Error for what is no refusal.
  std::shared_ptr<const Algorithm> (*prepare)(void* device, const Product& p, uint64_t scratch);
};
inline const Table* table = nullptr;

inline uint64_t scratch(const common::Call& call, const Product& p) {
  return table ? table->scratch(call, p) : 0;
}
inline std::shared_ptr<const Algorithm> prepare(void* device, const Product& p, uint64_t scratch) {
  return table ? table->prepare(device, p, scratch) : nullptr;
}
// The alignment of an address that is so many bytes behind one with the most.
constexpr uint32_t aligned_at(int64_t bytes) {
  uint32_t out = most_aligned;
  while (bytes % out) out /= 2;
  return out;
}

}  // namespace library
}  // namespace cuda
