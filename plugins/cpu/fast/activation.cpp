// SPDX-License-Identifier: Apache-2.0
// y = act(x) and its gradient, y = factor * x.
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

size_t index_of_activation(const Call& c) {
  const int64_t act = c.integer("act");
  if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
    throw Error{ENG_UNSUPPORTED, "act = " + std::to_string(act) +
                                     " is unknown; it must be 1 (silu), 2 (gelu), 3 (gelu_tanh) or 4 (relu)"};
  return static_cast<size_t>(act - ENG_ACT_SILU);
}

struct Activation {
  static constexpr const char* op = ENG_OP_ACTIVATION;
  activation_loop loop;
  unsigned threads;
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_f32(c.in[0], "x");
    need_same(c.in[0], c.out[0], "x and y");
    index_of_activation(c);
  }
  Activation(const Call& c, void* device)
      : loop(simd_for(device).activation[index_of_activation(c)]), threads(c.parallel), n(elements(c.in[0])) {}
  void run(const Args& args) const {
    const float* x = args.in<float>(0);
    float* y = args.out<float>(0);
    in_lines(threads, n, [&](int64_t first, int64_t last) { loop(x + first, y + first, last - first); });
  }
};

struct ActivationGrad {
  static constexpr const char* op = ENG_OP_ACTIVATION_GRAD;
  activation_grad_loop loop;
  unsigned threads;
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_f32(c.in[0], "dy");
    need_same(c.in[0], c.in[1], "dy and x");
    need_same(c.in[0], c.out[0], "dy and dx");
    index_of_activation(c);
  }
  ActivationGrad(const Call& c, void* device)
      : loop(simd_for(device).activation_grad[index_of_activation(c)]), threads(c.parallel), n(elements(c.in[0])) {}
  void run(const Args& args) const {
    const float *dy = args.in<float>(0), *x = args.in<float>(1);
    float* dx = args.out<float>(0);
    in_lines(threads, n, [&](int64_t first, int64_t last) { loop(dy + first, x + first, dx + first, last - first); });
  }
};

struct Scale {
  static constexpr const char* op = ENG_OP_SCALE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int64_t n;
  float factor;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_f32(c.in[0], "x");
    need_same(c.in[0], c.out[0], "x and y");
    c.real("factor");
  }
  Scale(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        n(elements(c.in[0])),
        factor(static_cast<float>(c.real("factor"))) {}
  void run(const Args& args) const {
    const float* x = args.in<float>(0);
    float* y = args.out<float>(0);
    in_lines(threads, n, [&](int64_t first, int64_t last) { simd.scale(factor, x + first, y + first, last - first); });
  }
};

}  // namespace

extern const eng_kernel* const activation_kernels[] = {&kernel<Activation>, &kernel<ActivationGrad>, &kernel<Scale>};
extern const uint32_t activation_kernel_count = std::size(activation_kernels);

}  // namespace cpu
