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
  gated_loop loop;
  unsigned threads;
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_f32(c.in[0], "gate");
    need_same(c.in[0], c.in[1], "gate and up");
    need_same(c.in[0], c.out[0], "gate and y");
    activation(c);
  }
  Gated(const Call& c, void* device)
      : loop(simd_for(device).gated[activation(c)]), threads(c.parallel), n(elements(c.in[0])) {}
  void run(const Args& args) const {
    const float *gate = args.in<float>(0), *up = args.in<float>(1);
    float* y = args.out<float>(0);
    in_lines(threads, n, [&](int64_t first, int64_t last) { loop(gate + first, up + first, y + first, last - first); });
  }
};

struct GatedGrad {
  static constexpr const char* op = ENG_OP_GATED_GRAD;
  gated_grad_loop loop;
  unsigned threads;
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 3, 3, 2, 2);
    need_f32(c.in[0], "dy");
    need_same(c.in[0], c.in[1], "dy and gate");
    need_same(c.in[0], c.in[2], "dy and up");
    need_same(c.in[0], c.out[0], "dy and dgate");
    need_same(c.in[0], c.out[1], "dy and dup");
    activation(c);
  }
  GatedGrad(const Call& c, void* device)
      : loop(simd_for(device).gated_grad[activation(c)]), threads(c.parallel), n(elements(c.in[0])) {}
  void run(const Args& args) const {
    const float *dy = args.in<float>(0), *gate = args.in<float>(1), *up = args.in<float>(2);
    float *dgate = args.out<float>(0), *dup = args.out<float>(1);
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      loop(dy + first, gate + first, up + first, dgate + first, dup + first, last - first);
    });
  }
};

}  // namespace

extern const eng_kernel* const gated_kernels[] = {&kernel<Gated>, &kernel<GatedGrad>};
extern const uint32_t gated_kernel_count = std::size(gated_kernels);

}  // namespace cpu
