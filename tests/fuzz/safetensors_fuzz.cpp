// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: accepted with every range inside the data, or refused with an Error.
#include <cstdlib>
#include <string>

#include "core/base/error.hpp"
#include "core/tensor/dtype.hpp"
#include "session/checkpoint/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    unsigned char first[8] = {};
    for (size_t i = 0; i < 8 && i < size; ++i) first[i] = data[i];
    const uint64_t length = eng::safetensors_header_length(first, size, "fuzz");
    const auto header = eng::parse_safetensors_header(reinterpret_cast<const char*>(data) + 8, length, size, "fuzz");
    uint64_t sum = 0;
    for (const auto& t : header.tensors) {
      if (t.begin > t.end || t.end > header.data_bytes || t.end - t.begin != t.count() * eng::dtype_size(t.dtype))
        abort();
      sum += t.end - t.begin;
    }
    if (sum != header.data_bytes || header.data_start + header.data_bytes != size) abort();
  } catch (const eng::Error& e) {
    if (e.exit() != eng::Exit::checkpoint) abort();
  }
  return 0;
}
