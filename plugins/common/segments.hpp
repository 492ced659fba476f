// SPDX-License-Identifier: Apache-2.0
// The ranges of the documents of a sample, from its segments (engine/ops.h). Without segments a sample is one document.
// Inlined always: files for newer instruction sets read this header too, and their copies must not be shared.
#pragma once

#include <cstdint>

namespace cpu {

// True if token t is the first of a document, but not of the sample.
__attribute__((always_inline)) inline bool begins_document(const int32_t* segments, int64_t t) {
  return segments && t > 0 && segments[t] != segments[t - 1];
}

// The first token of the document of token t, or `least` if that is a later one.
__attribute__((always_inline)) inline int64_t document_start(const int32_t* segments, int64_t least, int64_t t) {
  if (!segments) return least;
  while (t > least && segments[t] == segments[t - 1]) --t;
  return t;
}

// Calls f(first, tokens) for each document of a sample of `length` tokens, in order.
template <class F>
__attribute__((always_inline)) inline void each_document(const int32_t* segments, int64_t length, F&& f) {
  for (int64_t first = 0, t = 1; first < length; ++t) {
    if (!segments) t = length;
    if (t < length && !begins_document(segments, t)) continue;
    f(first, t - first);
    first = t;
  }
}

}  // namespace cpu
