/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/ops_fp8.h - products of values of 8 bits, for those who emit them and those who compute them. Notation and
 * rules are those of engine/ops.h. The ops belong to the plugin eng.fp8, which says how they are differentiated; devices
 * have the kernels, and one that does not know these ops refuses them.
 *
 * Formats, as in Micikevicius et al. 2022 (arXiv 2209.05433) and ONNX (float8e4m3fn, float8e5m2):
 *   e4m3   4 bits of exponent, 3 of fraction; at most 448; the smallest number is 2^-9; NaN, no infinities
 *   e5m2   5 bits of exponent, 2 of fraction; at most 57344; the smallest number is 2^-16; NaN and infinities
 *
 * Q(x) of a tensor x in a format, with current scaling: each x[i] times 2^n is rounded to the nearest value of the
 * format, of two the one with an even fraction, and divided by 2^n again. One n serves the whole tensor:
 * eng_fp8_exponent of the largest finite |x[i]|. As scales are powers of two, only the rounding to the format changes a
 * value, and it does not matter whether a kernel divides by the scales before or after it sums up products. What is at
 * most half of the smallest number becomes 0. An x[i] that is not finite is NaN in e4m3, and stays as it is
 * in e5m2; n does not depend on it.
 *
 * Delayed scaling. A linear map may have a state, f32 (3, 2 + H), with a row for x, for w and for dy:
 *   column 0     the scale, 2^n; 0 if there is none yet
 *   column 1     the largest finite |value| in the step so far
 *   column 2 ..  those of the last H steps, the latest first; 0 before there was one
 * Where the scale of a tensor's row is not 0, Q(x) takes it in place of its own n, and a finite value that is then too
 * large for the format becomes the format's largest value. Where it is 0, scaling is current.
 *
 * In f64, in which nothing is trained, Q(x) is x: so central differences show what the gradients below are.
 */
#ifndef ENGINE_OPS_FP8_H_
#define ENGINE_OPS_FP8_H_

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_FP8_E4M3 1
#define ENG_FP8_E5M2 2

/* y = Q(x) Q(w)^T + bias, both in e4m3. The gradient takes Q for the identity (straight through):
 *   dx = Q(dy) Q(w), dw = Q(dy)^T Q(x), with dy in `gradients` and x and w in e4m3; dbias = the sums of dy.
 * A running sequence gets eng.linear/1 of x, w and bias: its positions do not depend on each other. With a state, the
 * backward writes the largest |value| of dy, of x if dw is computed, and of w if dx is.
 * in: x (..., K), w (N, K), [bias (N)], [state]; out: y (..., N). attrs: [gradients i: ENG_FP8_*, by default
 * ENG_FP8_E5M2], [margin i: 0]. */
#define ENG_OP_FP8_LINEAR "eng.fp8.linear/1"
/* c = [acc +] op(Q(a)) op(Q(b)), op and acc as in eng.matmul/1. Where f has 16 bits, c and acc may be f32.
 * in: a, b, [acc], [state]; out: c. attrs: ta i, tb i, a i and b i (the formats, ENG_FP8_*), [margin i: 0]; with a state,
 * a_row i and b_row i: the rows of a and b. Only gradients emit it. */
#define ENG_OP_FP8_MATMUL "eng.fp8.matmul/1"

/* Column 1 of the row of each tensor becomes the largest of what it is and of the tensor's finite |values|.
 * in: state, [x], [w], [dy], each of any shape and floating type; out: state, in place. Only gradients emit it. */
#define ENG_OP_FP8_LARGEST "eng.fp8.largest/1"
/* Column 1 of every row, in order, of M states behind each other, f32 (M * 3 * (2 + H)).
 * in: states; out: f32 (M * 3). attrs: history i = H. */
#define ENG_OP_FP8_COLLECT "eng.fp8.collect/1"
/* The end of a step, for every row of M states: columns 2 .. move on by one, and the last is dropped; column 2 becomes the
 * largest value of the step: column 1, or where `all` is there, the largest of what R ranks have of it. Column 1 becomes 0.
 * With `recent` = 0 the largest of columns 2 .. decides about the scale, else column 2 alone. The scale becomes 2^n, n =
 * eng_fp8_exponent of that value and the row's format, which is e4m3 for x and w; or 0 if the value is 0.
 * in: states, [all f32 (R * M * 3)]; out: states, in place. attrs: history i = H, recent i, gradients i, margin i. */
#define ENG_OP_FP8_ROLL "eng.fp8.roll/1"

/* n of a tensor: the largest one with which `largest` times 2^n is in the format, less `margin`, within -120 .. 100. 0
 * if `largest` is 0. `largest` is finite and not negative.  since 1.0 */
static inline int32_t eng_fp8_exponent(int32_t format, float largest, int32_t margin) {
  uint32_t bits;
  int32_t n;
  __builtin_memcpy(&bits, &largest, sizeof(bits));
  if (bits == 0) return 0;
  /* Both formats end at 1.75 times a power of two. */
  n = (format == ENG_FP8_E4M3 ? 8 : 15) - ((int32_t)(bits >> 23) - 127) - ((bits & 0x7fffffu) > 0x600000u) - margin;
  return n > 100 ? 100 : n < -120 ? -120 : n;
}

/* 2^n, n within -126 .. 127.  since 1.0 */
static inline float eng_fp8_power(int32_t n) {
  const uint32_t bits = (uint32_t)(n + 127) << 23;
  float power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return power;
}

/* The value of a format that is nearest to x, of two the even one; a finite x that is too large becomes the largest
 * value. Needs rounding to nearest, as is the default.  since 1.0 */
static inline float eng_fp8_round(int32_t format, float x) {
  const uint32_t fraction = format == ENG_FP8_E4M3 ? 3u : 2u, least = format == ENG_FP8_E4M3 ? 121u : 113u;
  const float most = format == ENG_FP8_E4M3 ? 448.0f : 57344.0f;
  uint32_t bits, size, exponent;
  float shift, y;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  size = bits & 0x7fffffffu;
  if (size >= 0x7f800000u) { /* not finite */
    if (format == ENG_FP8_E4M3 || size > 0x7f800000u) bits |= 0x7fc00000u;
    __builtin_memcpy(&y, &bits, sizeof(y));
    return y;
  }
  exponent = size >> 23 > least ? size >> 23 : least;
  if (exponent > 230u) exponent = 230u; /* too large in any case */
  /* The sum has no room for more bits than the format, so adding rounds. */
  exponent = ((exponent + 23u - fraction) << 23) | 0x400000u;
  __builtin_memcpy(&shift, &exponent, sizeof(shift));
  y = (x + shift) - shift;
  y = y > most ? most : y < -most ? -most : y;
  __builtin_memcpy(&size, &y, sizeof(size));
  size |= bits & 0x80000000u; /* -0 */
  __builtin_memcpy(&y, &size, sizeof(y));
  return y;
}

#ifdef __cplusplus
}
#endif
#endif
