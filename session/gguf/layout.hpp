// SPDX-License-Identifier: Apache-2.0
// The bytes of a GGUF file, version 3: header, keys with their values, descriptions of tensors, and then their data,
// each at a multiple of the alignment. Numbers are little-endian. Format: docs/gguf.md of ggml-org/ggml.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/value.hpp"

namespace eng {

// Element types by their numbers in the file.
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

inline constexpr uint64_t gguf_alignment = 32;  // bytes
inline constexpr uint64_t gguf_block = 32;      // elements of a q8_0 block: an f16 scale and 32 signed bytes
inline constexpr size_t gguf_most_name = 63;    // bytes of a tensor's name that llama.cpp reads
inline constexpr size_t gguf_most_dimensions = 4;

// Bytes of elements; of q8_0 a multiple of gguf_block.
uint64_t gguf_bytes(GgufType type, uint64_t count);
// Writes `count` values in the type, rounded to nearest, ties to even. q8_0: the scale is the largest magnitude of the
// block / 127, and elements are rounded to nearest, ties away from zero, as ggml does it.
void gguf_encode(GgufType type, const float* values, uint64_t count, void* out);

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // row-major: the last dimension is contiguous
  GgufType type = GgufType::f32;
  uint64_t bytes = 0;
};

class GgufHeader {
 public:
  // A key may be given once.
  void number(const std::string& key, uint32_t value);
  void real(const std::string& key, float value);
  void flag(const std::string& key, bool value);
  void text(const std::string& key, const std::string& value);
  void texts(const std::string& key, const std::vector<std::string>& values);
  void reals(const std::string& key, const std::vector<float>& values);
  void integers(const std::string& key, const std::vector<int32_t>& values);
  void bytes(const std::string& key, const std::string& values);
  // A whole number is a u32, another one an f32. Throws Error(Exit::usage) for one that does not fit.
  void value(const std::string& key, const Value& value);
  // All bytes before the data. Tensors follow in this order, each padded to the alignment. Throws Error(Exit::usage)
  // for a tensor that the format cannot hold.
  std::string finish(const std::vector<GgufTensor>& tensors) const;

 private:
  void key(const std::string& key, uint32_t type);
  std::string keys_;
  uint64_t count_ = 0;
};

}  // namespace eng
