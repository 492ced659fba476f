// SPDX-License-Identifier: Apache-2.0
// relu with its mask, and its gradient, behind products for which no library has such an epilogue. In place.
#pragma once

#include "../../common/cuda/glue.hpp"

namespace cuda {
namespace relu {

// Rows of n elements, and of the bytes of their mask, which the gradient reads. A thread has a byte: eight neighbours,
// at the end of a row fewer.
template <class T, bool grad>
struct MaskedOf {
  T* y;
  uint8_t* mask;
  int64_t n, bytes;
  static constexpr int width = 1;
  template <int W>
  __device__ void at(int64_t row, int64_t byte) const {
    T* const place = y + row * n + byte * 8;
    uint8_t& mask_byte = mask[row * bytes + byte];
    const int64_t left = n - byte * 8;
    const int some = left < 0 ? 0 : left < 8 ? static_cast<int>(left) : 8;
    const bool whole = n % 8 == 0 && some;
    float v[8];
    unsigned bits = grad ? mask_byte : 0;
    if (whole)
      load(place, v);
    else
      for (int k = 0; k < 8; ++k) v[k] = k < some ? to_f32(place[k]) : 0.0f;
    for (int k = 0; k < 8; ++k) {
      const bool kept = grad ? bits >> k & 1 : v[k] > 0;
      if (!grad) bits |= (kept ? 1u : 0u) << k;
      if (!kept) v[k] = 0;
    }
    if (whole)
      store(place, v);
    else
      for (int k = 0; k < some; ++k) from_f32(v[k], place[k]);
    if (!grad) mask_byte = static_cast<uint8_t>(bits);
  }
};

// y (rows, n), in place. A gradient has no need of the bytes that only fill the mask up.
template <bool grad, class T>
void run(T* y, uint8_t* mask, int64_t rows, int64_t n, cudaStream_t stream) {
  const int64_t bytes = eng_relu_mask_bytes(n);
  launch_rows(rows, grad ? (n + 7) / 8 : bytes, stream, MaskedOf<T, grad>{y, mask, n, bytes});
}

}  // namespace relu
}  // namespace cuda
