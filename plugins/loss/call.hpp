// SPDX-License-Identifier: Apache-2.0
// The inputs of a call of these ops, and its attributes.
#pragma once

#include "../common/kernel.hpp"
#include "ops.hpp"
#include "pairs.hpp"

namespace preference {

constexpr int32_t ignored = -100;
constexpr uint32_t sums = 6;       // outputs of the op of pairs
constexpr uint32_t gradients = 5;  // of its outputs: all but the last
constexpr uint32_t kto_sums = 3;   // outputs of the op of kto
// The last input of each op: the weights of pairs.
constexpr uint32_t pairs_weights = 3, pairs_grad_weights = 3 + gradients, kto_weights = 4, kto_grad_weights = 5;

inline void expect(bool right, const char* rule) {
  if (!right) throw common::Error{ENG_INVALID, rule};
}

inline bool same_shape(const eng_desc& a, const eng_desc& b) {
  return a.ndim == 2 && b.ndim == 2 && a.dims[0] == b.dims[0] && a.dims[1] == b.dims[1];
}

inline void check_sequences(const common::Call& c) {
  const eng_desc &logprobs = c.in[0], &labels = c.in[1];
  expect(logprobs.dtype == ENG_F32 || logprobs.dtype == ENG_F64, "log-probabilities must be f32");
  expect(labels.dtype == ENG_I32 && same_shape(logprobs, labels), "labels must be (B, T) i32");
  const bool right = !c.has(2) || (c.in[2].dtype == ENG_F32 && same_shape(logprobs, c.in[2]));
  expect(right, "the log-probabilities of the reference must be (B, T) f32");
  expect(logprobs.dims[0] % 2 == 0, "sequences must come in pairs");
}

inline void check_weights(const common::Call& c, size_t k) {
  expect(!c.has(k) || (c.in[k].dtype == ENG_F32 && same_shape(c.in[0], c.in[k])), "weights must be (B, T) f32");
}

inline void check_desirable(const common::Call& c) {
  expect(c.has(2) && c.has(3) && c.in[3].dtype == ENG_F32 && same_shape(c.in[0], c.in[3]),
         "the reference and `desirable` must be (B, T) f32");
}

inline void check_pairs(const common::Call& c, bool grad) {
  check_sequences(c), check_weights(c, grad ? pairs_grad_weights : pairs_weights);
}

inline void check_kto(const common::Call& c, bool grad) {
  check_sequences(c), check_desirable(c), check_weights(c, grad ? kto_grad_weights : kto_weights);
}

// The attributes of the ops of pairs, and of those of kto.
inline Rule rule_of(const common::Call& c) {
  return {c.integer("kind"), c.real("beta"), c.real("margin"), c.real("smoothing"), c.integer("mean") != 0};
}
struct KtoRule {
  double beta, good, bad;
  explicit KtoRule(const common::Call& c) : beta(c.real("beta")), good(c.real("good")), bad(c.real("bad")) {}
  Rule rule() const { return {kto, beta, 0, 0, false}; }
};

}  // namespace preference
