// SPDX-License-Identifier: Apache-2.0
// eng.pack/1 and eng.unpack/1 on every device whose memory is host memory. `Threads::ranges(threads, n, weight, f)`
// calls f(first, last) on ranges of 0 .. n, in any order; `weight` says how many elements belong to one item.
#pragma once

#include "engine/packed.h"
#include "kernel.hpp"
#include "reals.hpp"

namespace common {

// A call on chunks of ENG_PACKED_CHUNK elements.
struct Packed {
  int32_t packed;
  int64_t bytes, chunks;  // bytes of a chunk
  unsigned threads;

  Packed(const Call& c, const eng_desc& values)
      : packed(static_cast<int32_t>(c.integer("packed"))),
        bytes(static_cast<int64_t>(eng_packed_bytes(packed))),
        chunks(elements(values) / ENG_PACKED_CHUNK),
        threads(c.parallel) {}
  static void check(const Call& c, const eng_desc& values, const eng_desc& codes) {
    const Packed p(c, values);
    if (!p.bytes) throw Error{ENG_UNSUPPORTED, "the attribute packed must be a packed type"};
    if (codes.dtype != ENG_U8 || elements(values) != p.chunks * ENG_PACKED_CHUNK ||
        elements(codes) != p.chunks * p.bytes)
      throw Error{ENG_INVALID,
                  "packed values must be u8, " + std::to_string(p.bytes) + " bytes for each 4096 elements"};
  }
};

template <class Threads>
struct PackKernel {
  static constexpr const char* op = ENG_OP_PACK;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Packed p;

  static void check(const Call& c) {
    if (c.in.size() != 1 || c.out.size() != 1 || c.in[0].dtype != ENG_F32)
      throw Error{ENG_INVALID, "takes one f32 input and gives one output"};
    Packed::check(c, c.in[0], c.out[0]);
  }
  explicit PackKernel(const Call& c) : p(c, c.in[0]) {}
  void run(const Args& args) const {
    Threads::ranges(p.threads, p.chunks, ENG_PACKED_CHUNK, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k)
        eng_pack(p.packed, args.in<float>(0) + k * ENG_PACKED_CHUNK, args.out<uint8_t>(0) + k * p.bytes);
    });
  }
};

template <class Threads>
struct UnpackKernel {
  static constexpr const char* op = ENG_OP_UNPACK;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Packed p;
  int32_t dtype;
  float levels[256] = {};

  static void check(const Call& c) {
    if (c.in.size() != 1 || c.out.size() != 1) throw Error{ENG_INVALID, "takes one input and gives one output"};
    if (c.out[0].dtype != ENG_F32 && c.out[0].dtype != ENG_BF16 && c.out[0].dtype != ENG_F16)
      throw Error{ENG_UNSUPPORTED, "gives f32, bf16 or f16"};
    Packed::check(c, c.out[0], c.in[0]);
  }
  explicit UnpackKernel(const Call& c) : p(c, c.out[0]), dtype(c.out[0].dtype) { eng_packed_levels(p.packed, levels); }
  void run(const Args& args) const {
    Threads::ranges(p.threads, p.chunks, ENG_PACKED_CHUNK, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k) {
        const uint8_t* const chunk = args.in<uint8_t>(0) + k * p.bytes;
        if (dtype == ENG_F32)
          eng_unpack(p.packed, levels, chunk, 0, ENG_PACKED_CHUNK, args.out<float>(0) + k * ENG_PACKED_CHUNK);
        else if (dtype == ENG_BF16)
          narrow(chunk, args.out<Bf16>(0) + k * ENG_PACKED_CHUNK);
        else
          narrow(chunk, args.out<F16>(0) + k * ENG_PACKED_CHUNK);
      }
    });
  }

 private:
  template <class T>
  void narrow(const uint8_t* chunk, T* out) const {
    float block[ENG_PACKED_BLOCK];
    for (uint32_t first = 0; first < ENG_PACKED_CHUNK; first += ENG_PACKED_BLOCK) {
      eng_unpack(p.packed, levels, chunk, first, ENG_PACKED_BLOCK, block);
      for (uint32_t k = 0; k < ENG_PACKED_BLOCK; ++k) from_f32(block[k], out[first + k]);
    }
  }
};

}  // namespace common
