// SPDX-License-Identifier: Apache-2.0
// eng.cast/1: between f32, bf16 and f16, and between f32 and f64.
#include <iterator>

#include "../../common/half.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

template <class From, class To>
void cast_loop(const void* x, void* y, int64_t first, int64_t last) {
  const From* in = static_cast<const From*>(x);
  To* out = static_cast<To*>(y);
  for (int64_t i = first; i < last; ++i) {
    if constexpr (sizeof(From) == 8 || sizeof(To) == 8)
      out[i] = static_cast<To>(in[i]);
    else
      from_f32(to_f32(in[i]), out[i]);
  }
}

using CastLoop = void (*)(const void*, void*, int64_t, int64_t);

template <class From>
CastLoop cast_from(int32_t to) {
  switch (to) {
    case ENG_F32:
      return cast_loop<From, float>;
    case ENG_BF16:
      return cast_loop<From, Bf16>;
    case ENG_F16:
      return cast_loop<From, F16>;
    default:
      return nullptr;
  }
}

CastLoop cast_of(const Call& c) {
  const int32_t from = c.in[0].dtype, to = c.out[0].dtype;
  if (from == ENG_F32 && to == ENG_F64) return cast_loop<float, double>;
  if (from == ENG_F64)
    return to == ENG_F32 ? cast_loop<double, float> : to == ENG_F64 ? cast_loop<double, double> : nullptr;
  return from == ENG_F32    ? cast_from<float>(to)
         : from == ENG_BF16 ? cast_from<Bf16>(to)
         : from == ENG_F16  ? cast_from<F16>(to)
                            : nullptr;
}

struct Cast {
  static constexpr const char* op = ENG_OP_CAST;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  CastLoop loop;
  unsigned threads;
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    if (!cast_of(c)) throw Error{ENG_UNSUPPORTED, "casts f32, bf16 and f16 into each other, and f32 and f64"};
    need(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
  }
  explicit Cast(const Call& c) : loop(cast_of(c)), threads(c.parallel), n(elements(c.in[0])) {}
  void run(const Args& args) const {
    const void* x = args.in<void>(0);
    void* y = args.out<void>(0);
    in_lines(threads, n, [&](int64_t first, int64_t last) { loop(x, y, first, last); });
  }
};

}  // namespace

extern const eng_kernel* const cast_kernels[] = {&kernel<Cast>};
extern const uint32_t cast_kernel_count = std::size(cast_kernels);

}  // namespace cpu
