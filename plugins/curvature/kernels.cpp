// SPDX-License-Identifier: Apache-2.0
// The kernels for the device `cpu`: elements are independent of each other, and counts are integers, so the bits do not
// depend on the threads.
#include <cstring>

#include "../common/parallel.hpp"
#include "call.hpp"
#include "loops.hpp"

namespace curvature {
namespace {

using Choice = const Loops* (*)();

// part(first, last) on the threads, in blocks of 4,096 elements. A parallel region costs some microseconds.
template <class Part>
void each_part(unsigned threads, int64_t n, Part&& part) {
  if (n <= 32768) return part(int64_t{0}, n);
  cpu::parallel_for(threads, [&](unsigned thread, unsigned all) {
    const cpu::Share share = cpu::share_of(n, thread, all, 4096);
    if (share.first < share.last) part(share.first, share.last);
  });
}

// The call's numbers, those of the step included. s: scalars, counters: NULL if nothing is drawn.
Drawn drawn_of(const Draw& d, const float* s, const int64_t* counters, bool sampled) {
  return {.seed = d.seed,
          .stream = d.stream,
          .counter = static_cast<uint32_t>(counters[ENG_C_UPDATES]),
          .first = d.first,
          .limit = d.limit(sampled ? static_cast<double>(s[ENG_S_LR + 1]) : 1.0)};
}

template <Choice loops>
struct Perturb {
  static constexpr const char* op = CURVATURE_OP_PERTURB;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Draw draw;
  int64_t n;
  unsigned threads;
  static void check(const Call& c) { check_perturb(c, false); }
  explicit Perturb(const Call& c) : draw(c), n(elements(c.in[0])), threads(c.parallel) {}
  void run(const Args& a) const {
    const float* const s = a.in<float>(1);
    const Drawn d = drawn_of(draw, s, a.in<int64_t>(2), true);
    each_part(threads, n, [&](int64_t first, int64_t last) {
      loops()->perturb(d, a.in<float>(0), a.out<float>(0), s[ENG_S_LR], first, last);
    });
  }
};

template <Choice loops>
struct AddNoise {
  static constexpr const char* op = CURVATURE_OP_NOISE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Draw draw;
  int64_t n;
  unsigned threads;
  static void check(const Call& c) { check_noise(c, false); }
  explicit AddNoise(const Call& c) : draw(c), n(elements(c.in[0])), threads(c.parallel) {}
  void run(const Args& a) const {
    const float* const s = a.in<float>(3);
    const Drawn d = drawn_of(draw, s, a.in<int64_t>(4), false);
    const Noise t = {.base = a.in<float>(0),
                     .scale = a.in<float>(2),
                     .classes = a.in<uint8_t>(1),
                     .p = a.out<float>(0),
                     .sigma = s[ENG_S_LR],
                     .wanted = static_cast<uint8_t>(s[ENG_S_LR + 1])};
    each_part(threads, n, [&](int64_t first, int64_t last) { loops()->noise(d, t, first, last); });
  }
};

template <Choice loops>
struct Hutchinson {
  static constexpr const char* op = CURVATURE_OP_HUTCHINSON;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Draw draw;
  int64_t n;
  unsigned threads;
  static void check(const Call& c) { check_hutchinson(c, false); }
  explicit Hutchinson(const Call& c) : draw(c), n(elements(c.in[0])), threads(c.parallel) {}
  void run(const Args& a) const {
    const float* const s = a.in<float>(4);
    const Drawn d = drawn_of(draw, s, a.in<int64_t>(5), true);
    const Moments m = {a.out<float>(0), a.out<float>(1), s[ENG_S_LR], s[ENG_S_LR + 2]};
    each_part(threads, n, [&](int64_t first, int64_t last) {
      loops()->hutchinson(d, a.in<float>(0), a.in<float>(1), m, first, last);
    });
  }
};

template <Choice loops>
struct Fisher {
  static constexpr const char* op = CURVATURE_OP_FISHER;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t n;
  unsigned threads;
  static void check(const Call& c) { check_fisher(c, false); }
  explicit Fisher(const Call& c) : n(elements(c.in[0])), threads(c.parallel) {}
  void run(const Args& a) const {
    const float* const s = a.in<float>(3);
    const Moments m = {a.out<float>(0), a.out<float>(1), s[ENG_S_LR], s[ENG_S_LR + 2]};
    each_part(threads, n, [&](int64_t first, int64_t last) { loops()->fisher(a.in<float>(0), m, first, last); });
  }
};

// No loop: the same for all instruction sets.
struct CopyBits {
  static constexpr const char* op = CURVATURE_OP_COPY;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t n, size;
  unsigned threads;
  static void check(const Call& c) { check_copy(c); }
  explicit CopyBits(const Call& c)
      : n(elements(c.in[0])), size(common::dtype_size(c.in[0].dtype)), threads(c.parallel) {}
  void run(const Args& a) const {
    each_part(threads, n, [&](int64_t first, int64_t last) {
      std::memcpy(a.out<char>(0) + first * size, a.in<char>(0) + first * size,
                  static_cast<size_t>((last - first) * size));
    });
  }
};

template <Choice loops>
struct Count {
  static constexpr const char* op = CURVATURE_OP_COUNT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t rows, units;
  int32_t type;
  float threshold;
  unsigned threads;
  static void check(const Call& c) { check_count(c, false); }
  explicit Count(const Call& c)
      : rows(common::rows(c.in[0])),
        units(common::columns(c.in[0])),
        type(c.in[0].dtype),
        threshold(static_cast<float>(c.real("threshold"))),
        threads(c.parallel) {}
  void run(const Args& a) const {
    const int64_t blocks = (units + count_block - 1) / count_block;
    cpu::parallel_tasks(rows * units < 32768 ? 1 : threads, blocks, [&](unsigned, int64_t b) {
      const int64_t first = b * count_block, last = std::min(units, first + count_block);
      loops()->count(a.in<void>(0), type, rows, units, threshold, a.out<int64_t>(0), first, last);
    });
  }
};

const Loops* portable() {
  return &loops_portable;
}
#ifdef CURVATURE_X86
const Loops* avx2() {
  return &loops_avx2;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

template <Choice loops>
const eng_kernels* kernels_of() {
  return &common::kernel_table<Perturb<loops>, AddNoise<loops>, Hutchinson<loops>, Fisher<loops>, CopyBits,
                               Count<loops>>;
}

}  // namespace

const eng_kernels* isa_kernels(const char* name) {
#ifdef CURVATURE_X86
  if (std::strcmp(name, "avx2") == 0) return has_avx2() ? kernels_of<avx2>() : nullptr;
#endif
  return std::strcmp(name, "portable") == 0 ? kernels_of<portable>() : nullptr;
}

const eng_kernels* cpu_kernels() {
  const eng_kernels* const fast = isa_kernels("avx2");
  return fast ? fast : isa_kernels("portable");
}

}  // namespace curvature
