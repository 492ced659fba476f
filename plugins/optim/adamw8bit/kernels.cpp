// SPDX-License-Identifier: Apache-2.0
// The update for the device `cpu`. Blocks are independent of each other, so the bits do not depend on the threads.
#include <cstring>

#include "../../common/parallel.hpp"
#include "call.hpp"
#include "loops.hpp"

namespace adamw8bit {
namespace {

using Choice = const Loops* (*)();

template <Choice loops>
struct FastUpdate {
  static constexpr const char* op = ADAMW8BIT_OP_UPDATE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Settings set;
  unsigned threads;

  static void check(const Call& c) { check_call(c); }
  explicit FastUpdate(const Call& c) : set(c), threads(c.parallel) {}
  void run(const Args& a) const {
    const float* s = a.in<float>(6);
    const Update u = {.p = a.out<float>(0),
                      .m_scales = a.out<float>(2),
                      .v_scales = a.out<float>(4),
                      .grad = a.in<float>(1),
                      .m = a.out<uint8_t>(1),
                      .v = a.out<uint8_t>(3),
                      .weight = a.out<void>(5),
                      .bf16 = set.weight == ENG_BF16,
                      .clip = s[ENG_S_CLIP],
                      .lr = s[ENG_S_LR],
                      .c1 = s[ENG_S_LR + 1],
                      .c2 = s[ENG_S_LR + 2],
                      .rest1 = set.rest1,
                      .beta2 = set.beta2,
                      .rest2 = set.rest2,
                      .eps = set.eps,
                      .wd = set.wd};
    const bool counts = s[ENG_S_OK] != 0.0f;
    if (!counts && !set.weight) return;  // all is in place
    const auto part = [&](int64_t first, int64_t last) {
      if (counts) return loops()->update(u, first, last);
      common::cast_weight(set.weight, u.p, u.weight, first * block, last * block);
    };
    // A parallel region costs some microseconds.
    if (set.blocks * block < 16384) return part(0, set.blocks);
    cpu::parallel_for(threads, [&](unsigned thread, unsigned all) {
      const cpu::Share share = cpu::share_of(set.blocks, thread, all);
      if (share.first < share.last) part(share.first, share.last);
    });
  }
};

const Loops* portable() {
  return &loops_portable;
}
#ifdef ADAMW8BIT_X86
const Loops* avx2() {
  return &loops_avx2;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

}  // namespace

const eng_kernels* isa_kernels(const char* name) {
#ifdef ADAMW8BIT_X86
  if (std::strcmp(name, "avx2") == 0) return has_avx2() ? &common::kernel_table<FastUpdate<avx2>> : nullptr;
#endif
  return std::strcmp(name, "portable") == 0 ? &common::kernel_table<FastUpdate<portable>> : nullptr;
}

const eng_kernels* cpu_kernels() {
  const eng_kernels* const fast = isa_kernels("avx2");
  return fast ? fast : isa_kernels("portable");
}

}  // namespace adamw8bit
