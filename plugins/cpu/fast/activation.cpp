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
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n;
  size_t act;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_float(c.in[0], "x");
    need_same(c.in[0], c.out[0], "x and y");
    index_of_activation(c);
  }
  Activation(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        n(elements(c.in[0])),
        act(index_of_activation(c)) {}
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>(0);
      in_lines(threads, n,
               [&](int64_t first, int64_t last) { simd.of<T>().activation[act](x + first, y + first, last - first); });
    });
  }
};

struct ActivationGrad {
  static constexpr const char* op = ENG_OP_ACTIVATION_GRAD;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n;
  size_t act;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_float(c.in[0], "dy");
    need_same(c.in[0], c.in[1], "dy and x");
    need_same(c.in[0], c.out[0], "dy and dx");
    index_of_activation(c);
  }
  ActivationGrad(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        n(elements(c.in[0])),
        act(index_of_activation(c)) {}
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      const T *dy = args.in<T>(0), *x = args.in<T>(1);
      T* dx = args.out<T>(0);
      in_lines(threads, n, [&](int64_t first, int64_t last) {
        simd.of<T>().activation_grad[act](dy + first, x + first, dx + first, last - first);
      });
    });
  }
};

struct Scale {
  static constexpr const char* op = ENG_OP_SCALE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n;
  float factor;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_float(c.in[0], "x");
    need_same(c.in[0], c.out[0], "x and y");
    c.real("factor");
  }
  Scale(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        n(elements(c.in[0])),
        factor(static_cast<float>(c.real("factor"))) {}
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>(0);
      in_lines(threads, n,
               [&](int64_t first, int64_t last) { simd.of<T>().scale(factor, x + first, y + first, last - first); });
    });
  }
};

}  // namespace

extern const eng_kernel* const activation_kernels[] = {&kernel<Activation>, &kernel<ActivationGrad>, &kernel<Scale>};
extern const uint32_t activation_kernel_count = std::size(activation_kernels);

}  // namespace cpu
