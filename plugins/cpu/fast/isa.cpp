// SPDX-License-Identifier: Apache-2.0
#include "isa.hpp"

#include <cstring>

namespace cpu {
namespace {

#ifdef CPU_AVX512
// AVX-512 with products of bf16 pairs: other bits for bf16, hence a name of its own.
const Isa isa_avx512_bf16 = [] {
  Isa isa = isa_avx512;
  isa.name = "avx512_bf16";
  isa.pairs = &pairs_avx512;
  isa.supported = [] {
    return isa_avx512.supported() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bf16");
  };
  return isa;
}();
#endif

const Isa* const all[] = {
#ifdef CPU_AVX512
    &isa_avx512_bf16,
    &isa_avx512,
#endif
#ifdef CPU_AVX2
    &isa_avx2,
#endif
    &isa_portable,
};

// Intel's processors multiply pairs at half the rate of f32 (Sapphire Rapids: 86 against 165 GFLOP/s of a core).
bool worth(const Isa& isa) {
#ifdef CPU_AVX512
  return !isa.pairs || __builtin_cpu_is("amd");
#else
  return !isa.pairs;
#endif
}

}  // namespace

const Isa* best_isa() {
  for (const Isa* isa : all)
    if (isa->supported() && worth(*isa)) return isa;
  return &isa_portable;
}

const Isa* find_isa(const char* name) {
  for (const Isa* isa : all)
    if (std::strcmp(isa->name, name) == 0) return isa->supported() ? isa : nullptr;
  return nullptr;
}

}  // namespace cpu
