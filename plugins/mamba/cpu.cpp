// SPDX-License-Identifier: Apache-2.0
// The kernels for the device `cpu`, and which loops they use.
#include "cpu_conv.hpp"
#include "cpu_norm_part.hpp"
#include "cpu_scan.hpp"
#include "cpu_ssd.hpp"

namespace mamba {

const Loops* find_loops(const char* name) {
#ifdef MAMBA_X86
  if (std::strcmp(name, "avx512") == 0) return __builtin_cpu_supports("avx512f") ? &loops_avx512 : nullptr;
  if (std::strcmp(name, "avx2") == 0)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &loops_avx2 : nullptr;
#endif
  return std::strcmp(name, "portable") == 0 ? &loops_portable : nullptr;
}

const Loops* best_loops() {
  for (const char* name : {"avx512", "avx2"})
    if (const Loops* found = find_loops(name)) return found;
  return &loops_portable;
}

namespace {

template <const Loops* (*loops)()>
const eng_kernels* kernels_of() {
  static const eng_kernel* const list[] = {&common::kernel<Conv<loops, false>>,
                                           &common::kernel<Conv<loops, true>>,
                                           &common::kernel<ConvGrad<loops>>,
                                           &common::kernel<Scan<loops, false>>,
                                           &common::kernel<Scan<loops, true>>,
                                           &common::kernel<ScanGrad<loops>>,
                                           &common::kernel<Ssd<loops, false>>,
                                           &common::kernel<Ssd<loops, true>>,
                                           &common::kernel<SsdGrad<loops>>,
                                           &common::kernel<GatedNorm<loops>>,
                                           &common::kernel<GatedNormGrad<loops>>,
                                           &common::kernel<GatedSquares<loops>>,
                                           &common::kernel<GatedSquaresGrad<loops>>,
                                           &common::kernel<GatedNormPart<loops>>,
                                           &common::kernel<GatedNormPartGrad<loops>>,
                                           &split_kernel,
                                           &join_kernel,
                                           &init_a_log_kernel,
                                           &init_dt_bias_kernel,
                                           &init_log_uniform_kernel};
  static const eng_kernels table = {
      .struct_size = sizeof(eng_kernels), .count = sizeof list / sizeof *list, .kernels = list};
  return &table;
}

const Loops* portable() {
  return &loops_portable;
}
#ifdef MAMBA_X86
const Loops* avx2() {
  return &loops_avx2;
}
const Loops* avx512() {
  return &loops_avx512;
}
#endif
const Loops* chosen() {
  static const Loops* const best = best_loops();
  return best;
}

}  // namespace

const eng_kernels* cpu_kernels() {
  return kernels_of<chosen>();
}

const eng_kernels* isa_kernels(const char* name) {
  const Loops* found = find_loops(name);
#ifdef MAMBA_X86
  if (found == &loops_avx512) return kernels_of<avx512>();
  if (found == &loops_avx2) return kernels_of<avx2>();
#endif
  return found ? kernels_of<portable>() : nullptr;
}

}  // namespace mamba
