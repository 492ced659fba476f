/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/packed.h - packed types: the formats in which frozen weights are kept in 8 or 4 bits.
 *
 * A packed type is the dtype of a state's home (engine/policy.h), never of a tensor: its values lie in a u8 tensor.
 * 4,096 elements, the grid on which units are cut, are one chunk of bytes: the codes of all elements, then the f32
 * scales of its 64 blocks of 64 elements. So codes and scales are cut and moved together. A scale is the largest
 * absolute value of its block, and an element is scale * level[code], rounded once. What was decoded has the same codes
 * and scales when it is encoded again. A block whose scale would be below 1e-38 is kept as zeros; a block with a NaN
 * has the scale NaN.
 *
 * ENG_PACKED_NF4_DOUBLE quantises the scales, too: behind the codes are 64 bytes, one for each block, and one f32, the
 * largest scale of the chunk. The scale of a block is that times byte / 255, rounded. The codes of elements are those
 * of the scales before. With a NaN or an infinity in a chunk none of its elements is finite.
 *
 * The functions define the formats, for the host and for kernels of host memory.
 */
#ifndef ENGINE_PACKED_H_
#define ENGINE_PACKED_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A byte is an integer from -127 to 127, two's complement; its level is that integer / 127. */
#define ENG_PACKED_INT8 64
/* A byte is a float of 4 exponent and 3 fraction bits (e4m3fn: bias 7, no infinity); its level is its value / 448. */
#define ENG_PACKED_E4M3 65
/* 4 bits are the number of a level of NormalFloat4 (Dettmers et al. 2023, appendix E); the first element of two is in
 * the high half of a byte. Codes and scales are those of bitsandbytes with blocks of 64. */
#define ENG_PACKED_NF4 66
/* The codes of ENG_PACKED_NF4, and scales of 8 bits. */
#define ENG_PACKED_NF4_DOUBLE 67

/* y = x in a packed type, a u8 tensor of eng_packed_bytes for each 4,096 elements.
 * in: x (n) f32, n a multiple of 4096; out: y (bytes) u8. attr: packed i (ENG_PACKED_*). EXACT (engine/ops.h). */
#define ENG_OP_PACK "eng.pack/1"
/* y = the elements of x, which eng.pack/1 packed, rounded to nearest even.
 * in: x (bytes) u8; out: y (n) f32, bf16 or f16. attrs: packed i (ENG_PACKED_*), dtype i, that of y. EXACT. */
#define ENG_OP_UNPACK "eng.unpack/1"

#define ENG_PACKED_CHUNK 4096 /* elements */
#define ENG_PACKED_BLOCK 64   /* elements that share a scale */

/* True if a code has 4 bits.  since 1.0 */
static inline int32_t eng_packed_is_nf4(int32_t packed) {
  return packed == ENG_PACKED_NF4 || packed == ENG_PACKED_NF4_DOUBLE;
}

/* Bytes of a chunk; 0 for what is no packed type.  since 1.0 */
static inline uint64_t eng_packed_bytes(int32_t packed) {
  const uint64_t scales = 4 * ENG_PACKED_CHUNK / ENG_PACKED_BLOCK;
  if (packed == ENG_PACKED_NF4_DOUBLE) return ENG_PACKED_CHUNK / 2 + ENG_PACKED_CHUNK / ENG_PACKED_BLOCK + 4;
  if (packed == ENG_PACKED_NF4) return ENG_PACKED_CHUNK / 2 + scales;
  return packed == ENG_PACKED_INT8 || packed == ENG_PACKED_E4M3 ? ENG_PACKED_CHUNK + scales : 0;
}

/* Fills the level of each code: 16 of nf4, ascending, or 256 by the value of the byte.  since 1.0 */
static inline void eng_packed_levels(int32_t packed, float *levels) {
  static const float nf4[16] = {-1.0f,
                                -0.6961928009986877f,
                                -0.5250730514526367f,
                                -0.39491748809814453f,
                                -0.28444138169288635f,
                                -0.18477343022823334f,
                                -0.09105003625154495f,
                                0.0f,
                                0.07958029955625534f,
                                0.16093020141124725f,
                                0.24611230194568634f,
                                0.33791524171829224f,
                                0.44070982933044434f,
                                0.5626170039176941f,
                                0.7229568362236023f,
                                1.0f};
  int32_t code;
  if (eng_packed_is_nf4(packed)) {
    for (code = 0; code < 16; ++code) levels[code] = nf4[code];
    return;
  }
  for (code = 0; code < 256; ++code) {
    if (packed == ENG_PACKED_INT8) {
      levels[code] = (float)(code < 128 ? code : code - 256) / 127.0f;
    } else { /* the value, times 512, is an integer */
      const int32_t exponent = code >> 3 & 15, fraction = code & 7;
      const float value = (float)(exponent ? (8 + fraction) << (exponent - 1) : fraction);
      levels[code] = (code < 128 ? value : -value) / (448.0f * 512.0f);
    }
  }
}

/* The integer that is nearest to x, of two the even one; |x| < 2^23. Integer arithmetic alone, so that no compiler
 * contracts it with how x was made.  since 1.0 */
static inline int32_t eng_packed_round(float x) {
  uint32_t bits, size, whole, rest, half;
  int32_t shift;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  shift = 150 - (int32_t)(bits >> 23 & 255);
  if (shift > 24) return 0;
  size = (bits & 0x7fffffu) | 0x800000u;
  whole = size >> shift, rest = size & ((1u << shift) - 1), half = 1u << (shift - 1);
  whole += rest > half || (rest == half && (whole & 1u));
  return bits >> 31 ? -(int32_t)whole : (int32_t)whole;
}

/* The code of e4m3 that is nearest to x, of two the even one; |x| <= 448.  since 1.0 */
static inline uint8_t eng_packed_e4m3(float x) {
  uint32_t bits;
  int32_t small;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7fffffffu) < 0x3c800000u) { /* below 2^-6 it is a multiple of 2^-9 */
    small = eng_packed_round(x * 512.0f);
    return (uint8_t)((bits >> 31 << 7) | (uint32_t)(small < 0 ? -small : small));
  }
  return (uint8_t)((bits >> 31 << 7) | ((((bits & 0x7fffffffu) + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - (120u << 3)));
}

/* The scale of a block of a chunk.  since 1.0 */
static inline float eng_packed_scale(int32_t packed, const uint8_t *chunk, uint32_t block) {
  const uint8_t *const end = chunk + eng_packed_bytes(packed);
  const uint32_t blocks = ENG_PACKED_CHUNK / ENG_PACKED_BLOCK;
  float scale;
  if (packed == ENG_PACKED_NF4_DOUBLE) {
    __builtin_memcpy(&scale, end - 4, sizeof(scale));
    return scale * ((float)*(end - 4 - blocks + block) / 255.0f);
  }
  __builtin_memcpy(&scale, end - 4 * (blocks - block), sizeof(scale));
  return scale;
}

/* Writes the scales of a chunk, behind its codes. A block whose scale is rounded to 0 gets the codes of zeros.
 * since 1.0 */
static inline void eng_pack_scales(int32_t packed, const float *scales, uint8_t *chunk) {
  const uint32_t blocks = ENG_PACKED_CHUNK / ENG_PACKED_BLOCK;
  uint8_t *const end = chunk + eng_packed_bytes(packed);
  float top = 0;
  uint32_t k;
  if (packed != ENG_PACKED_NF4_DOUBLE) {
    __builtin_memcpy(end - 4 * blocks, scales, 4 * blocks);
    return;
  }
  for (k = 0; k < blocks; ++k)
    if (scales[k] > top || scales[k] != scales[k]) top = scales[k];
  __builtin_memcpy(end - 4, &top, sizeof(top));
  for (k = 0; k < blocks; ++k) {
    uint8_t *const code = end - 4 - blocks + k;
    const float share = top > 0 ? scales[k] / top : 0.0f;
    *code = share <= 1 ? (uint8_t)eng_packed_round(share * 255.0f) : 255; /* 255: infinite */
    if (top != top) *code = 255;
    if (eng_packed_scale(packed, chunk, k) < 1e-38f) *code = 0;
    if (*code == 0) __builtin_memset(chunk + k * (ENG_PACKED_BLOCK / 2), 0x77, ENG_PACKED_BLOCK / 2);
  }
}

/* Decodes elements [first, first + n) of a chunk, multiples of a block, to f32. `levels`: from eng_packed_levels.
 * since 1.0 */
static inline void eng_unpack(int32_t packed, const float *levels, const uint8_t *chunk, uint32_t first, uint32_t n,
                              float *out) {
  uint32_t begin, k;
  for (begin = first; begin < first + n; begin += ENG_PACKED_BLOCK, out += ENG_PACKED_BLOCK) {
    const float scale = eng_packed_scale(packed, chunk, begin / ENG_PACKED_BLOCK);
    if (eng_packed_is_nf4(packed)) {
      const uint8_t *const codes = chunk + begin / 2;
      for (k = 0; k < ENG_PACKED_BLOCK / 2; ++k) {
        out[2 * k] = scale * levels[codes[k] >> 4];
        out[2 * k + 1] = scale * levels[codes[k] & 15];
      }
    } else {
      for (k = 0; k < ENG_PACKED_BLOCK; ++k) out[k] = scale * levels[chunk[begin + k]];
    }
  }
}

/* Encodes the ENG_PACKED_CHUNK elements of `in` as a chunk.  since 1.0 */
static inline void eng_pack(int32_t packed, const float *in, uint8_t *chunk) {
  const int32_t is_nf4 = eng_packed_is_nf4(packed);
  float levels[256], middle[15], scales[ENG_PACKED_CHUNK / ENG_PACKED_BLOCK];
  uint32_t begin, j, k;
  if (is_nf4) {
    eng_packed_levels(packed, levels);
    for (j = 0; j < 15; ++j) middle[j] = (levels[j] + levels[j + 1]) / 2;
  }
  for (begin = 0; begin < ENG_PACKED_CHUNK; begin += ENG_PACKED_BLOCK, in += ENG_PACKED_BLOCK) {
    float scale = 0, inverse;
    uint8_t codes[ENG_PACKED_BLOCK];
    for (k = 0; k < ENG_PACKED_BLOCK; ++k) {
      const float size = in[k] < 0 ? -in[k] : in[k];
      if (size > scale || size != size) scale = size;
    }
    if (scale < 1e-38f) scale = 0;
    inverse = scale > 0 ? 1.0f / scale : 0.0f;
    for (k = 0; k < ENG_PACKED_BLOCK; ++k) {
      float x = in[k] * inverse;
      if (x != x) x = 0;
      if (x > 1) x = 1;
      if (x < -1) x = -1;
      if (is_nf4) {
        uint32_t code = 0; /* of two levels that are as near, the lower one */
        for (j = 0; j < 15; ++j) code += x > middle[j];
        codes[k] = (uint8_t)code;
      } else if (packed == ENG_PACKED_INT8) {
        codes[k] = (uint8_t)eng_packed_round(x * 127.0f);
      } else {
        codes[k] = eng_packed_e4m3(x * 448.0f);
      }
    }
    scales[begin / ENG_PACKED_BLOCK] = scale;
    if (is_nf4)
      for (k = 0; k < ENG_PACKED_BLOCK / 2; ++k) chunk[begin / 2 + k] = (uint8_t)(codes[2 * k] << 4 | codes[2 * k + 1]);
    else
      for (k = 0; k < ENG_PACKED_BLOCK; ++k) chunk[begin + k] = codes[k];
  }
  eng_pack_scales(packed, scales, chunk);
}

#ifdef __cplusplus
}
#endif
#endif
