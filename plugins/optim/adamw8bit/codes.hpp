// SPDX-License-Identifier: Apache-2.0
// The bytes of the moments: dynamic tree quantization (Dettmers 2016, "8-Bit Approximations for Parallelism in Deep
// Learning", and Dettmers et al. 2022). After a sign, the number of zero bits is a power of ten; the first 1 ends them;
// the bits after it are the number of an interval, of those that divide 0.1 .. 1 evenly. The value is the middle of the
// interval. In v, which has no sign, its bit goes to the intervals. Two bytes with no 1 are left: they are 0 and 1.
//
//   m   s 0000001             +- 0.55e-6       v   0000001 f        (0.325, 0.775)e-6
//       s 000001 f            +- (0.325, 0.775)e-5
//       s 1 ffffff            +- 0.107 .. 0.993    1 fffffff        0.1035 .. 0.9965
//       0x00: 0, 0x80: 1                           0x00: 0, 0x01: 1
//
// The values ascend with the bits. A level is the number of a magnitude in ascending order: 0 is 0, the last one is 1.
//
// Also read by files for newer instruction sets: nothing here is a function that the linker could share.
#pragma once

#include <stdint.h>

namespace adamw8bit {

constexpr int64_t m_levels = 129, v_levels = 256;

// Finds a level in one step. Bits 16 .. 31 of a f32 in 0 .. 1 number a bucket, in which at most one level begins. An
// entry is `level << 17 | from`: what the bucket begins with, and the value of bits 0 .. 15 from which it is the next
// one; 1 << 16: never.
constexpr int32_t bucket_shift = 16, from_bits = 17, most_buckets = 4096;

struct Codes {
  float value[256];  // by byte
  float least[256];  // by level: the least magnitude that becomes it
  int32_t levels;    // how many there are
  int32_t first;     // bits 16 .. 31 of the first bucket, in which all is level 0; smaller numbers are level 0, too
  int32_t buckets;   // how many there are
  uint32_t bucket[most_buckets];
};

extern const Codes m_codes, v_codes;

}  // namespace adamw8bit
