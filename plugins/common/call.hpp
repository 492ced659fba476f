// SPDX-License-Identifier: Apache-2.0
// The inputs of a kernel: shapes and attributes (Call), addresses (Args), and how it refuses (Error).
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernel.h"
#include "engine/ops.h"
#include "error.hpp"

namespace common {

inline uint32_t dtype_size(int32_t dtype) {
  return dtype == ENG_F64 || dtype == ENG_I64 ? 8 : dtype == ENG_BF16 || dtype == ENG_F16 ? 2 : dtype == ENG_U8 ? 1 : 4;
}

inline std::string describe(const eng_desc& d) {
  static const char* const names[] = {"absent", "f32", "f64", "bf16", "f16", "i32", "i64", "u8"};
  if (d.dtype < 1 || d.dtype > ENG_U8) return d.dtype ? "dtype " + std::to_string(d.dtype) : names[0];
  std::string text = names[d.dtype] + std::string(" (");
  for (uint32_t k = 0; k < d.ndim; ++k) text += (k ? ", " : "") + std::to_string(d.dims[k]);
  return text + ")";
}

inline int64_t elements(const eng_desc& d) {
  int64_t n = 1;
  for (uint32_t k = 0; k < d.ndim; ++k) n *= d.dims[k];
  return n;
}
inline int64_t columns(const eng_desc& d) {
  return d.ndim ? d.dims[d.ndim - 1] : 1;
}  // the last dimension
inline int64_t rows(const eng_desc& d) {  // all the others, folded
  int64_t n = 1;
  for (uint32_t k = 0; k + 1 < d.ndim; ++k) n *= d.dims[k];
  return n;
}

// A copy of the host's call that a kernel may keep.
struct Call {
  uint32_t parallel = 1;
  std::vector<eng_desc> in, out;
  std::vector<std::pair<std::string, eng_attr>> attrs;
  eng_device_info device{};  // what the call is for; zeros: for no device

  Call(const eng_call& c) : parallel(c.parallel ? c.parallel : 1) {
    in.assign(c.in, c.in + c.n_in), out.assign(c.out, c.out + c.n_out);
    for (uint32_t k = 0; k < c.n_attrs; ++k) attrs.emplace_back(c.attrs[k].key, c.attrs[k]);
    if (c.device) std::memcpy(&device, c.device, std::min<size_t>(c.device->struct_size, sizeof device));
  }
  bool has(size_t k) const { return k < in.size() && in[k].dtype != 0; }
  bool has_out(size_t k) const { return k < out.size() && out[k].dtype != 0; }
  const eng_attr& attr(const char* key) const {
    for (const auto& [name, value] : attrs)
      if (name == key) return value;
    throw Error{ENG_INVALID, std::string("attribute ") + key + " is missing"};
  }
  int64_t integer(const char* key) const { return attr(key).i; }
  double real(const char* key) const { return attr(key).f; }
  // The value of an attribute that may be absent.
  int64_t integer_or(const char* key, int64_t fallback) const {
    for (const auto& [name, value] : attrs)
      if (name == key) return value.i;
    return fallback;
  }
  double real_or(const char* key, double fallback) const {
    for (const auto& [name, value] : attrs)
      if (name == key) return value.f;
    return fallback;
  }
  // The shapes. The host, which tells its users what a kernel says, puts the op in front.
  std::string text() const {
    std::string t = "[in";
    for (const auto& d : in) t += " " + describe(d);
    t += "; out";
    for (const auto& d : out) t += " " + describe(d);
    return t + "]";
  }
};

// The addresses of one bound use. in/out give nullptr for an absent one.
struct Args {
  std::vector<void*> data;  // inputs, then outputs
  size_t n_in = 0;
  void* workspace = nullptr;

  template <class T>
  const T* in(size_t k) const {
    return k < n_in ? static_cast<const T*>(data[k]) : nullptr;
  }
  template <class T>
  T* out(size_t k) const {
    return n_in + k < data.size() ? static_cast<T*>(data[n_in + k]) : nullptr;
  }
  template <class T>
  T* scratch() const {
    return static_cast<T*>(workspace);
  }
};

}  // namespace common
