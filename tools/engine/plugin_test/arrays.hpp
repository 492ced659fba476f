// SPDX-License-Identifier: Apache-2.0
// Tensors in host memory with guard bytes around them, filled with random values.
#pragma once

#include <cstring>
#include <random>

#include "core/trace/graph.hpp"

namespace eng::plugin_test {

using Random = std::mt19937_64;

inline int64_t pick(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}
inline bool chance(Random& random, double p) {
  return static_cast<double>(random() % 1000) < p * 1000;
}

// Bytes, aligned to 4,096, between guard bytes that nobody may write. `fill` is in every byte at first.
class Bytes {
 public:
  explicit Bytes(uint64_t size = 0, uint8_t fill = 0);
  uint8_t* data() { return room_.get() + guard; }
  const uint8_t* data() const { return room_.get() + guard; }
  uint64_t size() const { return size_; }
  Bytes(const Bytes& other);
  Bytes& operator=(const Bytes& other);
  Bytes(Bytes&&) = default;
  Bytes& operator=(Bytes&&) = default;
  // The place where a guard was written: "8 bytes before it", "the byte after its end"; "" if none was.
  std::string touched() const;
  bool operator==(const Bytes& other) const {
    return size_ == other.size_ && std::memcmp(data(), other.data(), size_) == 0;
  }
  static constexpr uint64_t guard = 4096;

 private:
  struct Free {
    void operator()(uint8_t* room) const;
  };
  uint64_t size_ = 0;
  uint8_t mark_ = 0;
  std::unique_ptr<uint8_t, Free> room_;
};

// A dense tensor; dtype 0: an absent optional input.
struct Array {
  eng_desc desc{};
  Bytes bytes;
  Array() = default;
  explicit Array(const eng_desc& what, uint8_t fill = 0) : desc(what), bytes(eng::bytes(what), fill) {}
  int64_t size() const { return desc.dtype ? count(desc) : 0; }
  double at(int64_t k) const;
  void put(int64_t k, double value);
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

Array normal(Random& random, const eng_desc& desc, double std = 1.0);
Array integers(Random& random, const eng_desc& desc, int64_t low, int64_t high);
// The ranges of documents in samples of t > 3 tokens: at least two in each, the first of two tokens or more, as one
// token alone has no gradient in attention.
struct Documents {
  Array segments;   // (B, T) i32; only neighbours have different numbers
  Array positions;  // (B, T) i32, of each token in its document
};
Documents documents(Random& random, int64_t b, int64_t t);
// Floats get normal numbers, whole numbers 0 to 3.
Array anything(Random& random, const eng_desc& desc);
eng_desc with_dtype(eng_desc desc, int32_t dtype);
std::string dims_of(const std::vector<eng_desc>& all);  // "f32 (2, 3), absent, i32 (4)"

// max|a - b| / max|b|, and the element with that difference. Infinite where one is not finite and the other differs.
struct Difference {
  double worst = 0;
  int64_t where = 0;
};
Difference difference(const Array& a, const Array& b);
// The first byte that differs, as element and values; "" if none does.
std::string first_difference(const Array& a, const Array& b);

}  // namespace eng::plugin_test
