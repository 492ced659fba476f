// SPDX-License-Identifier: Apache-2.0
// Products of heads: the sizes and the scratch of logits that exist for one chunk of tokens at a time.
#pragma once

#include <algorithm>
#include <cstring>

#include "gemm.hpp"
#include "shapes.hpp"

namespace cpu {

inline constexpr int32_t ignored = -100;
inline constexpr int64_t logit_budget = int64_t{160} << 20;  // bytes of logits at once

// Tokens per chunk: from the shapes alone, because it fixes the order in which dw is summed. Products of more tokens
// are faster, but their logits leave the cache.
inline int64_t chunk_of(int64_t tokens, int64_t vocabulary) {
  int64_t chunk = 1024;
  while (chunk > 256 && chunk * vocabulary * int64_t{sizeof(float)} > logit_budget) chunk /= 2;
  return std::min(chunk, tokens);
}

inline uint64_t aligned(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

struct HeadSizes {
  int64_t tokens, width, vocabulary, padding, chunk;  // padding: rows of w and dw behind the vocabulary, never read
  unsigned threads;
  bool has_dw;
  double weight, z_loss;  // in the gradient; whether there is a second sum
  float cap;              // of the logits; 0: none
  Stored stored, sums;    // x, w and dx; dw

  // `dw`: the number of that output.
  explicit HeadSizes(const Call& c, size_t dw = 2)
      : tokens(rows(c.in[0])),
        width(columns(c.in[0])),
        vocabulary(c.integer_or("vocabulary", rows(c.in[1]))),
        padding(rows(c.in[1]) - vocabulary),
        chunk(chunk_of(tokens, vocabulary)),
        threads(c.parallel),
        has_dw(c.out.size() > dw && c.integer_or("no_dw", 0) == 0),
        weight(c.real_or("weight", 1.0)),
        z_loss(c.real_or("z_loss", 0.0)),
        cap(static_cast<float>(c.real_or("softcap", 0.0))),
        stored(stored_of(c.in[0])),
        sums(has_dw ? stored_of(c.out[dw]) : stored_f32) {}
  // Logits and their gradients are f32.
  GemmShape logits(int64_t n) const { return {n, vocabulary, width, false, true, stored, stored}; }
  GemmShape dx(int64_t n) const { return {n, width, vocabulary, false, false, stored_f32, stored, stored}; }
  GemmShape dw(int64_t n) const { return {vocabulary, width, n, true, false, stored_f32, stored, sums, sums}; }
  // The rows of dw behind the vocabulary: those of acc, or zeros.
  void pad(const void* acc, void* dw) const {
    const auto at = static_cast<size_t>(vocabulary * width * stored_bytes(sums)),
               bytes = static_cast<size_t>(padding * width * stored_bytes(sums));
    if (!dw || acc == dw || bytes == 0) return;
    if (acc)
      std::memcpy(static_cast<char*>(dw) + at, static_cast<const char*>(acc) + at, bytes);
    else
      std::memset(static_cast<char*>(dw) + at, 0, bytes);
  }
  const void* x_at(const void* x, int64_t token) const {
    return static_cast<const char*>(x) + token * width * stored_bytes(stored);
  }
  // Workspace: scratch of the products, losses of the tokens and, with z_loss, their squares of lse, logits of a chunk,
  // and with a cap a row of them for each thread.
  uint64_t losses_at() const {
    uint64_t most = 0;
    for (const int64_t n : {chunk, chunk > 0 ? tokens % chunk : 0})
      for (const GemmShape& shape : {logits(n), dx(n), dw(n)}) most = std::max(most, Gemm::scratch(shape, threads));
    return aligned(most);
  }
  uint64_t squares_at() const { return losses_at() + aligned(static_cast<uint64_t>(tokens) * sizeof(double)); }
  uint64_t logits_at() const {
    return squares_at() + (z_loss > 0 ? aligned(static_cast<uint64_t>(tokens) * sizeof(double)) : 0);
  }
  uint64_t capped_at() const { return logits_at() + static_cast<uint64_t>(chunk * vocabulary) * sizeof(float); }
  uint64_t bytes() const {
    return capped_at() + (cap > 0 ? threads * static_cast<uint64_t>(vocabulary) * sizeof(float) : 0);
  }
};

}  // namespace cpu
