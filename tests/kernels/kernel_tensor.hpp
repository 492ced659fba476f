// SPDX-License-Identifier: Apache-2.0
// Tensors of the tests of kernels: with memory of their own, a guard behind it, and random values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <vector>

#include "engine/kernel.h"

namespace kernels_test {

using Random = std::mt19937_64;
using Dims = std::vector<int64_t>;

inline eng_desc desc(int32_t dtype, const Dims& dims) {
  eng_desc d{};
  d.dtype = dtype;
  d.ndim = uint32_t(dims.size());
  std::copy(dims.begin(), dims.end(), d.dims);
  return d;
}

inline eng_attr real(const char* key, double value) {
  return {key, 0, value};
}
inline eng_attr whole(const char* key, int64_t value) {
  return {key, value, 0};
}

inline int64_t elements(const eng_desc& d) {
  int64_t n = 1;
  for (uint32_t k = 0; k < d.ndim; ++k) n *= d.dims[k];
  return n;
}

inline size_t dtype_size(int32_t dtype) {
  return dtype == ENG_F64 || dtype == ENG_I64 ? 8 : dtype == ENG_BF16 || dtype == ENG_F16 ? 2 : dtype == ENG_U8 ? 1 : 4;
}

// A 16-bit floating type: a sign, an exponent, and so many bits of a fraction.
struct HalfType {
  int fraction, lowest;  // bits; the exponent of the smallest normal number
  explicit HalfType(int32_t dtype) : fraction(dtype == ENG_BF16 ? 7 : 10), lowest(dtype == ENG_BF16 ? -126 : -14) {}
  int infinite() const { return ((1 << (15 - fraction)) - 1) << fraction; }
  // The bits of the nearest value; of two that are as near, the even one.
  uint16_t pattern(double x) const {
    const int sign = std::signbit(x) ? 0x8000 : 0;
    if (std::isnan(x)) return uint16_t(sign | infinite() | 1);
    const double size = std::fabs(x);
    const int exponent = size > 0 ? std::max(std::ilogb(std::min(size, 1e300)), lowest) : lowest;
    const double units = std::nearbyint(std::ldexp(size, fraction - exponent));
    const double all = units + std::ldexp(exponent - lowest, fraction);
    return uint16_t(sign | (all < infinite() ? int(all) : infinite()));
  }
  double value(uint16_t pattern) const {
    const int size = pattern & 0x7fff, exponent = size >> fraction, units = size & ((1 << fraction) - 1);
    double v = exponent == 0 ? std::ldexp(units, lowest - fraction)
                             : std::ldexp(units + (1 << fraction), exponent - 1 + lowest - fraction);
    if (size >= infinite()) v = size > infinite() ? NAN : INFINITY;
    return pattern & 0x8000 ? -v : v;
  }
};

template <class T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <class U>
  Aligned(const Aligned<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{256})); }
  void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{256}); }
  template <class U>
  bool operator==(const Aligned<U>&) const {
    return true;
  }
};

// Memory followed by guard bytes that nobody may write. AddressSanitizer guards it itself, from reads too.
class Memory {
 public:
  explicit Memory(size_t bytes = 0, unsigned char fill = 0) : bytes_(bytes), data_(bytes + guard, fill) {
    std::fill(data_.begin() + ptrdiff_t(bytes), data_.end(), mark);
  }
  unsigned char* data() { return data_.data(); }
  const unsigned char* data() const { return data_.data(); }
  size_t with_guard() const { return data_.size(); }
  size_t size() const { return bytes_; }
  bool intact() const {
    return std::all_of(data_.begin() + ptrdiff_t(bytes_), data_.end(), [](unsigned char c) { return c == mark; });
  }
  bool operator==(const Memory& o) const {
    return bytes_ == o.bytes_ && (bytes_ == 0 || std::memcmp(data(), o.data(), bytes_) == 0);
  }

 private:
#ifdef TESTS_SANITIZED
  static constexpr size_t guard = 0;
#else
  static constexpr size_t guard = 256;
#endif
  static constexpr unsigned char mark = 0xC7;
  size_t bytes_;
  std::vector<unsigned char, Aligned<unsigned char>> data_;
};

// A dense tensor; the default one is an absent optional input.
struct Tensor {
  eng_desc d{};
  Memory memory;

  Tensor() = default;
  // `fill` is put into every byte: 0xFF makes every floating element NaN.
  explicit Tensor(const eng_desc& what, unsigned char fill = 0)
      : d(what), memory(size_t(elements(what)) * dtype_size(what.dtype), fill) {}
  Tensor(int32_t dtype, const Dims& dims) : Tensor(desc(dtype, dims)) {}
  Tensor(int32_t dtype, const Dims& dims, const std::vector<double>& values) : Tensor(dtype, dims) {
    for (size_t i = 0; i < values.size(); ++i) put(int64_t(i), values[i]);
  }
  int64_t size() const { return elements(d); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(memory.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(memory.data());
  }
  double at(int64_t i) const {
    switch (d.dtype) {
      case ENG_F32:
        return double(as<float>()[i]);
      case ENG_F64:
        return as<double>()[i];
      case ENG_I32:
        return double(as<int32_t>()[i]);
      case ENG_I64:
        return double(as<int64_t>()[i]);
      case ENG_BF16:
      case ENG_F16:
        return HalfType(d.dtype).value(as<uint16_t>()[i]);
      default:
        return double(as<uint8_t>()[i]);
    }
  }
  void put(int64_t i, double value) {
    switch (d.dtype) {
      case ENG_F32:
        as<float>()[i] = float(value);
        break;
      case ENG_F64:
        as<double>()[i] = value;
        break;
      case ENG_I32:
        as<int32_t>()[i] = int32_t(value);
        break;
      case ENG_I64:
        as<int64_t>()[i] = int64_t(value);
        break;
      case ENG_BF16:
      case ENG_F16:
        as<uint16_t>()[i] = HalfType(d.dtype).pattern(value);
        break;
      default:
        as<uint8_t>()[i] = uint8_t(value);
    }
  }
  bool same_bits(const Tensor& o) const { return memory == o.memory; }
  // Compares tensors; any NaN equals any NaN.
  bool same_numbers(const Tensor& o) const {
    if (same_bits(o) || size() != o.size() || d.dtype != o.d.dtype) return same_bits(o);
    const size_t each = dtype_size(d.dtype);
    for (int64_t i = 0; i < size(); ++i) {
      const size_t from = size_t(i) * each;
      if (std::memcmp(memory.data() + from, o.memory.data() + from, each) != 0 &&
          !(std::isnan(at(i)) && std::isnan(o.at(i))))
        return false;
    }
    return true;
  }
};

inline Tensor random_normal(Random& random, int32_t dtype, const Dims& dims, double std = 1.0) {
  Tensor t(dtype, dims);
  std::normal_distribution<double> normal(0.0, std);
  for (int64_t i = 0; i < t.size(); ++i) t.put(i, normal(random));
  return t;
}

// i32 in [low, high].
inline Tensor random_ints(Random& random, const Dims& dims, int low, int high) {
  Tensor t(ENG_I32, dims);
  std::uniform_int_distribution<int> uniform(low, high);
  for (int64_t i = 0; i < t.size(); ++i) t.put(i, uniform(random));
  return t;
}

inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// max|a - b| / max|b|; infinite when either holds a NaN.
inline double error_of(const Tensor& a, const Tensor& b) {
  double worst = 0, top = 0;
  for (int64_t i = 0; i < b.size(); ++i) {
    const double difference = std::fabs(a.at(i) - b.at(i));
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference), top = std::max(top, std::fabs(b.at(i)));
  }
  return top > 0 ? worst / top : worst;
}

}  // namespace kernels_test
