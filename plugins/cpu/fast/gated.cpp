// SPDX-License-Identifier: Apache-2.0
// y = act(gate) * up and its gradient.
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

size_t activation(const Call& c) {
  const int64_t act = c.integer("act");
  if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
    throw Error{ENG_UNSUPPORTED, "act = " + std::to_string(act) +
                                     " is unknown; it must be 1 (silu), 2 (gelu), 3 (gelu_tanh) or 4 (relu)"};
  return static_cast<size_t>(act - ENG_ACT_SILU);
}

struct Gated {
  static constexpr const char* op = ENG_OP_GATED;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n;
  size_t act;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_float(c.in[0], "gate");
    need_same(c.in[0], c.in[1], "gate and up");
    need_same(c.in[0], c.out[0], "gate and y");
    activation(c);
  }
  Gated(const Call& c, void* device)
      : simd(simd_for(device)), threads(c.parallel), type(c.in[0].dtype), n(elements(c.in[0])), act(activation(c)) {}
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      const T *gate = args.in<T>(0), *up = args.in<T>(1);
      T* y = args.out<T>(0);
      in_lines(threads, n, [&](int64_t first, int64_t last) {
        simd.of<T>().gated[act](gate + first, up + first, y + first, last - first);
      });
    });
  }
};

struct GatedGrad {
  static constexpr const char* op = ENG_OP_GATED_GRAD;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n;
  size_t act;

  static void check(const Call& c) {
    need_counts(c, 3, 3, 2, 2);
    need_float(c.in[0], "dy");
    need_same(c.in[0], c.in[1], "dy and gate");
    need_same(c.in[0], c.in[2], "dy and up");
    need_same(c.in[0], c.out[0], "dy and dgate");
    need_same(c.in[0], c.out[1], "dy and dup");
    activation(c);
  }
  GatedGrad(const Call& c, void* device)
      : simd(simd_for(device)), threads(c.parallel), type(c.in[0].dtype), n(elements(c.in[0])), act(activation(c)) {}
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      const T *dy = args.in<T>(0), *gate = args.in<T>(1), *up = args.in<T>(2);
      T *dgate = args.out<T>(0), *dup = args.out<T>(1);
      in_lines(threads, n, [&](int64_t first, int64_t last) {
        simd.of<T>().gated_grad[act](dy + first, gate + first, up + first, dgate + first, dup + first, last - first);
      });
    });
  }
};

}  // namespace

extern const eng_kernel* const gated_kernels[] = {&kernel<Gated>, &kernel<GatedGrad>};
extern const uint32_t gated_kernel_count = std::size(gated_kernels);

}  // namespace cpu
