// SPDX-License-Identifier: Apache-2.0
// The kernels for the device `reference`: one element after the other, as ops.hpp says, in f32 or f64.
#include <cmath>
#include <cstring>

#include "../common/reals.hpp"
#include "call.hpp"
#include "draw.hpp"

namespace curvature {
namespace {

using common::Reals;

// The random draws of a call.
struct PlainDraw {
  Draw draw;
  Drawing drawing;
  uint32_t counter;
  uint64_t limit;
  PlainDraw(const Call& c, const Reals& scalars, const int64_t* counters, bool by_share)
      : draw(c),
        drawing{draw.seed, draw.stream},
        counter(static_cast<uint32_t>(counters[ENG_C_UPDATES])),
        limit(draw.limit(by_share ? scalars[ENG_S_LR + 1] : 1.0)) {}
};

// Calls f(T{}) with the type of the elements.
template <class F>
void with_type(const Call& c, F&& f) {
  if (c.in[0].dtype == ENG_F64)
    f(double{});
  else
    f(float{});
}

// One more value of a running mean and sum of squares.
template <class T>
void add_value(T x, T weight, T& mean, T& m2) {
  const T off = x - mean;
  mean = mean + off * weight;
  m2 = m2 + off * (x - mean);
}

struct PlainPerturb {
  static constexpr const char* op = CURVATURE_OP_PERTURB;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  static void check(const Call& call) { check_perturb(call, true); }
  explicit PlainPerturb(const Call& call) : c(call) {}
  void run(const Args& a) const {
    const Reals s(c, a, 1);
    const PlainDraw d(c, s, a.in<int64_t>(2), true);
    with_type(c, [&]<class T>(T) {
      const T step = static_cast<T>(s[ENG_S_LR]);
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        const auto e = static_cast<uint64_t>(d.draw.first + i);
        const T base = a.in<T>(0)[i];
        a.out<T>(0)[i] = !d.drawing.sampled(e, d.limit)     ? base
                         : d.drawing.negative(e, d.counter) ? base + -step
                                                            : base + step;
      }
    });
  }
};

struct PlainNoise {
  static constexpr const char* op = CURVATURE_OP_NOISE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  static void check(const Call& call) { check_noise(call, true); }
  explicit PlainNoise(const Call& call) : c(call) {}
  void run(const Args& a) const {
    const Reals s(c, a, 3);
    const PlainDraw d(c, s, a.in<int64_t>(4), false);
    const auto wanted = static_cast<uint8_t>(s[ENG_S_LR + 1]);
    with_type(c, [&]<class T>(T) {
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        const T factor = static_cast<T>(s[ENG_S_LR]) * a.in<T>(2)[i / noise_block], base = a.in<T>(0)[i];
        const bool moves = a.in<uint8_t>(1)[i] == wanted && factor != 0;
        const T z = moves ? static_cast<T>(d.drawing.normal(static_cast<uint64_t>(d.draw.first + i), d.counter)) : T{0};
        a.out<T>(0)[i] = moves ? base + factor * z : base;
      }
    });
  }
};

struct PlainHutchinson {
  static constexpr const char* op = CURVATURE_OP_HUTCHINSON;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  static void check(const Call& call) { check_hutchinson(call, true); }
  explicit PlainHutchinson(const Call& call) : c(call) {}
  void run(const Args& a) const {
    const Reals s(c, a, 4);
    const PlainDraw d(c, s, a.in<int64_t>(5), true);
    with_type(c, [&]<class T>(T) {
      const T factor = static_cast<T>(s[ENG_S_LR]), weight = static_cast<T>(s[ENG_S_LR + 2]);
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        const auto e = static_cast<uint64_t>(d.draw.first + i);
        if (!d.drawing.sampled(e, d.limit)) continue;
        const T x = (a.in<T>(0)[i] - a.in<T>(1)[i]) * factor;
        add_value(d.drawing.negative(e, d.counter) ? -x : x, weight, a.out<T>(0)[i], a.out<T>(1)[i]);
      }
    });
  }
};

struct PlainFisher {
  static constexpr const char* op = CURVATURE_OP_FISHER;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  static void check(const Call& call) { check_fisher(call, true); }
  explicit PlainFisher(const Call& call) : c(call) {}
  void run(const Args& a) const {
    const Reals s(c, a, 3);
    with_type(c, [&]<class T>(T) {
      const T factor = static_cast<T>(s[ENG_S_LR]), weight = static_cast<T>(s[ENG_S_LR + 2]);
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        const T g = a.in<T>(0)[i];
        add_value((g * g) * factor, weight, a.out<T>(0)[i], a.out<T>(1)[i]);
      }
    });
  }
};

struct PlainCopy {
  static constexpr const char* op = CURVATURE_OP_COPY;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  uint64_t bytes;
  static void check(const Call& call) { check_copy(call); }
  explicit PlainCopy(const Call& c)
      : bytes(static_cast<uint64_t>(elements(c.in[0])) * common::dtype_size(c.in[0].dtype)) {}
  void run(const Args& a) const {
    if (bytes) std::memcpy(a.out<char>(0), a.in<char>(0), bytes);
  }
};

struct PlainCount {
  static constexpr const char* op = CURVATURE_OP_COUNT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  static void check(const Call& call) { check_count(call, true); }
  explicit PlainCount(const Call& call) : c(call) {}
  void run(const Args& a) const {
    const Reals x(c, a, 0);
    const int64_t units = common::columns(c.in[0]);
    const double threshold = static_cast<double>(static_cast<float>(c.real("threshold")));
    int64_t* const into = a.out<int64_t>(0);
    for (int64_t i = 0; i < elements(c.in[0]); ++i) {
      into[i % units] += x[i] == 0;
      into[units + i % units] += std::fabs(x[i]) <= threshold;
    }
  }
};

}  // namespace

const eng_kernels reference_kernels =
    common::kernel_table<PlainPerturb, PlainNoise, PlainHutchinson, PlainFisher, PlainCopy, PlainCount>;

}  // namespace curvature
