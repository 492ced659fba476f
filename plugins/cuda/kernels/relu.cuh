// SPDX-License-Identifier: Apache-2.0
// relu with its mask, and its gradient, behind products for which no library has such an epilogue. In place.
#pragma once

#include "../../common/cuda/glue.hpp"

namespace cuda {
namespace relu {

// Rows of n elements, and of the bytes of their mask. A thread has a byte: eight neighbours, at the end of a row fewer.
template <class T>
struct Masked {
  T* y;
  uint8_t* mask;
  int64_t n, bytes;
  static constexpr int width = 1;

  __device__ int at_byte(int64_t byte) const {
    const int64_t left = n - byte * 8;
    return left < 0 ? 0 : left < 8 ? static_cast<int>(left) : 8;
  }
  __device__ void read(int64_t row, int64_t byte, float (&v)[8]) const {
    const T* from = y + row * n + byte * 8;
    const int some = at_byte(byte);
    if (n % 8 == 0 && some) return load(from, v);
    for (int k = 0; k < 8; ++k) v[k] = k < some ? to_f32(from[k]) : 0.0f;
  }
  __device__ void write(int64_t row, int64_t byte, const float (&v)[8]) const {
    T* to = y + row * n + byte * 8;
    const int some = at_byte(byte);
    if (n % 8 == 0 && some) return store(to, v);
    for (int k = 0; k < some; ++k) from_f32(v[k], to[k]);
  }
};

template <class T>
struct ForwardOf : Masked<T> {
  template <int W>
  __device__ void at(int64_t row, int64_t byte) const {
    float v[8];
    unsigned bits = 0;
    this->read(row, byte, v);
    for (int k = 0; k < 8; ++k) {
      const bool positive = v[k] > 0;
      bits |= (positive ? 1u : 0u) << k;
      if (!positive) v[k] = 0;
    }
    this->write(row, byte, v);
    this->mask[row * this->bytes + byte] = static_cast<uint8_t>(bits);
  }
};
template <class T>
struct GradOf : Masked<T> {
  template <int W>
  __device__ void at(int64_t row, int64_t byte) const {
    float v[8];
    const unsigned bits = this->mask[row * this->bytes + byte];
    this->read(row, byte, v);
    for (int k = 0; k < 8; ++k)
      if (!(bits >> k & 1)) v[k] = 0;
    this->write(row, byte, v);
  }
};

template <class T>
void forward(T* y, uint8_t* mask, int64_t rows, int64_t n, cudaStream_t stream) {
  const int64_t bytes = eng_relu_mask_bytes(n);
  launch_rows(rows, bytes, stream, ForwardOf<T>{{y, mask, n, bytes}});
}
template <class T>
void grad(T* dz, uint8_t* mask, int64_t rows, int64_t n, cudaStream_t stream) {
  launch_rows(rows, (n + 7) / 8, stream, GradOf<T>{{dz, mask, n, eng_relu_mask_bytes(n)}});
}

}  // namespace relu
}  // namespace cuda
