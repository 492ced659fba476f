// SPDX-License-Identifier: Apache-2.0
#include "attention_workspace.hpp"

#include <algorithm>

#include "engine/base.h"

namespace cuda::sdpa {
namespace {

// One architecture: where cuDNN stops, and what its engines want besides the tensors of the graph.
struct Engines {
  uint32_t arch;
  int64_t forward_size, backward_size;  // largest head
  uint64_t forward, backward;           // bytes, of every shape
  int64_t keys;    // the deterministic gradient keeps T x T scores, the keys padded to this; 0: it does not
  uint64_t whole;  // fewer key heads than query heads: copies of dk and dv for all of these, summed afterwards
};
constexpr Engines engines[] = {
    // In the forward cuDNN takes larger heads, too; how much larger was not tried.
    {80, 256, 128, 0, 128, 64, 2},
    {90, 256, 256, 256, 256, 128, 2},
    {100, 256, 128, 0, 0, 0, 4},
};

constexpr uint64_t padded(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

// The gradient for heads of 256 on sm_100, which came later: it sums those copies in f32.
bool large_gradient(const Shape& s, uint32_t arch, uint64_t version) {
  return s.backward && s.size == 256 && arch == 100 && version >= 92300;
}

uint64_t backward(const Shape& s, const Engines& e, uint64_t version) {
  const auto heads = static_cast<uint64_t>(s.batch * s.heads), length = static_cast<uint64_t>(s.length),
             elements = heads * length * static_cast<uint64_t>(s.size),
             whole = large_gradient(s, e.arch, version) ? 6 : e.whole;
  uint64_t bytes = heads * length * 4 + e.backward;  // a sum for each row
  if (s.heads != s.kv_heads) bytes += whole * padded(elements * 2, 128) + (e.arch == 100 ? 128 : 0);
  if (linear(s, e.arch, version))  // dq in f32, and for each 64 queries a counter, for their order
    return bytes + elements * 4 + padded(heads * padded(length, 64) / 64 * 8, 128);
  if (e.keys) bytes += 2 * heads * padded(length, 64) * padded(length, static_cast<uint64_t>(e.keys));
  return bytes;
}

}  // namespace

std::string version_text(uint64_t v) {
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

uint64_t known_version(const std::string& text) {
  for (const uint64_t v : known_versions)
    if (version_text(v) == text) return v;
  return 0;
}

Answer answer(const Shape& s, uint32_t arch, uint64_t version) {
  const auto* e =
      std::find_if(std::begin(engines), std::end(engines), [&](const Engines& x) { return x.arch == arch; });
  const std::string here = "sm_" + std::to_string(arch);
  if (e == std::end(engines)) return {"its answers are known for sm_80, sm_90 and sm_100, not for " + here};
  if (s.type != ENG_BF16 && s.type != ENG_F16) return {"it takes bf16 and f16"};
  if (s.batch < 1 || s.length < 1 || s.heads < 1 || s.kv_heads < 1 || s.size < 1)
    return {"there is nothing to compute"};
  if (s.batch > 65535 || s.heads > 65535 || s.batch * s.heads > 1 << 20 || s.length > 1 << 20)
    return {
        "its answers are known for up to 65,535 sequences or heads, 1,048,576 heads of all sequences, and "
        "1,048,576 positions"};
  if (s.size % 8 != 0) return {"it needs a head size that is a multiple of 8, not " + std::to_string(s.size)};
  const int64_t most = s.backward ? e->backward_size : e->forward_size;
  if (s.size > most && !large_gradient(s, arch, version))
    return {"on " + here + " it computes " + (s.backward ? "the gradient" : "attention") + " for heads of at most " +
            std::to_string(most) + ", not " + std::to_string(s.size)};
  if (s.backward && s.length == 1) return {"it has no gradient for a single position"};
  if (s.backward) return {"", backward(s, *e, version)};
  return {"", s.length == 1 ? 0 : e->forward};
}

}  // namespace cuda::sdpa
