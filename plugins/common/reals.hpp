// SPDX-License-Identifier: Apache-2.0
// The elements of a tensor of any floating type, read as f64 and rounded once when written: for plain kernels.
#pragma once

#include "call.hpp"
#include "half.hpp"

namespace common {

inline bool is_half(const eng_desc& d) {
  return d.dtype == ENG_BF16 || d.dtype == ENG_F16;
}

// Argument k: the inputs, then the outputs. An absent one is false.
struct Reals {
  void* at;
  int32_t dtype;
  Reals(const Call& c, const Args& a, size_t k)
      : at(k < a.data.size() ? a.data[k] : nullptr),
        dtype(k < c.in.size()                  ? c.in[k].dtype
              : k - c.in.size() < c.out.size() ? c.out[k - c.in.size()].dtype
                                               : 0) {}
  Reals(void* data, int32_t type) : at(data), dtype(type) {}
  explicit operator bool() const { return at != nullptr; }
  double operator[](int64_t i) const {
    if (dtype == ENG_F32) return double(static_cast<const float*>(at)[i]);
    if (dtype == ENG_F64) return static_cast<const double*>(at)[i];
    return dtype == ENG_BF16 ? double(static_cast<const Bf16*>(at)[i]) : double(static_cast<const F16*>(at)[i]);
  }
  void set(int64_t i, double value) const {
    if (dtype == ENG_F32)
      static_cast<float*>(at)[i] = float(value);
    else if (dtype == ENG_F64)
      static_cast<double*>(at)[i] = value;
    else if (dtype == ENG_BF16)
      static_cast<Bf16*>(at)[i] = Bf16(value);
    else
      static_cast<F16*>(at)[i] = F16(value);
  }
};

}  // namespace common
