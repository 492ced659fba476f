// SPDX-License-Identifier: Apache-2.0
// cuDNN's answers for attention, known without cuDNN and without a GPU, so that a plan knows them: which shapes it
// takes, and how much scratch it wants. cuDNN's own answers for described GPUs were collected and put into formulas;
// tests/cuda/cudnn asks it again and compares.
#pragma once

#include <cstdint>
#include <string>

namespace cuda::sdpa {

// q, o (B, T, heads*D); k, v (B, T, kv_heads*D); lse (B, heads, T). Causal.
struct Shape {
  int64_t batch, length, heads, kv_heads, size;
  int32_t type;  // ENG_BF16 or ENG_F16
  bool backward;
};

// The versions of cuDNN whose answers are known, the first of which is what a plan counts on unless [device] cudnn says
// otherwise. Written as cudnnGetVersion does.
constexpr uint64_t known_versions[] = {91900, 92700};
// From here on the gradient has a deterministic engine on sm_90 whose scratch grows with T, not with T * T.
constexpr uint64_t linear_since = 92500;

std::string version_text(uint64_t version);  // 91900: "9.19.0"
// The version number of "9.19.0"; 0 if that is none of the known ones.
uint64_t known_version(const std::string& text);

struct Answer {
  std::string refused;  // why; "" if the shape is taken
  uint64_t bytes = 0;   // of workspace
};
Answer answer(const Shape& shape, uint32_t arch, uint64_t version);

// True if the gradient is to be computed by that engine.
constexpr bool linear(const Shape& s, uint32_t arch, uint64_t version) {
  return s.backward && arch == 90 && version >= linear_since;
}

}  // namespace cuda::sdpa
