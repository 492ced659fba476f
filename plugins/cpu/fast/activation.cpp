// SPDX-License-Identifier: Apache-2.0
// y = act(x) and y = act(gate) * up, their gradients, and y = factor * x.
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

// An op whose result has the shape and type of its first input.
struct Elementwise {
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n;

  Elementwise(const Call& c, void* device)
      : simd(simd_for(device)), threads(c.parallel), type(c.in[0].dtype), n(elements(c.in[0])) {}
};

size_t activation_of(const Call& c) {
  const int64_t act = c.integer("act");
  if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
    throw Error{ENG_UNSUPPORTED, "act = " + std::to_string(act) +
                                     " is unknown; it must be 1 (silu), 2 (gelu), 3 (gelu_tanh) or 4 (relu)"};
  return static_cast<size_t>(act - ENG_ACT_SILU);
}

struct WithActivation : Elementwise {
  size_t act;

  WithActivation(const Call& c, void* device) : Elementwise(c, device), act(activation_of(c)) {}
};

struct Activation : WithActivation {
  static constexpr const char* op = ENG_OP_ACTIVATION;
  using WithActivation::WithActivation;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_float(c.in[0], "x");
    need_same(c.in[0], c.out[0], "x and y");
    activation_of(c);
  }
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>(0);
      in_lines(threads, n,
               [&](int64_t first, int64_t last) { simd.of<T>().activation[act](x + first, y + first, last - first); });
    });
  }
};

struct ActivationGrad : WithActivation {
  static constexpr const char* op = ENG_OP_ACTIVATION_GRAD;
  using WithActivation::WithActivation;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_float(c.in[0], "dy");
    need_same(c.in[0], c.in[1], "dy and x");
    need_same(c.in[0], c.out[0], "dy and dx");
    activation_of(c);
  }
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

struct Gated : WithActivation {
  static constexpr const char* op = ENG_OP_GATED;
  using WithActivation::WithActivation;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_float(c.in[0], "gate");
    need_same(c.in[0], c.in[1], "gate and up");
    need_same(c.in[0], c.out[0], "gate and y");
    activation_of(c);
  }
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

struct GatedGrad : WithActivation {
  static constexpr const char* op = ENG_OP_GATED_GRAD;
  using WithActivation::WithActivation;

  static void check(const Call& c) {
    need_counts(c, 3, 3, 2, 2);
    need_float(c.in[0], "dy");
    need_same(c.in[0], c.in[1], "dy and gate");
    need_same(c.in[0], c.in[2], "dy and up");
    need_same(c.in[0], c.out[0], "dy and dgate");
    need_same(c.in[0], c.out[1], "dy and dup");
    activation_of(c);
  }
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

struct Scale : Elementwise {
  static constexpr const char* op = ENG_OP_SCALE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  float factor;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_float(c.in[0], "x");
    need_same(c.in[0], c.out[0], "x and y");
    c.real("factor");
  }
  Scale(const Call& c, void* device) : Elementwise(c, device), factor(static_cast<float>(c.real("factor"))) {}
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

extern const eng_kernel* const activation_kernels[] = {&kernel<Activation>, &kernel<ActivationGrad>, &kernel<Gated>,
                                                       &kernel<GatedGrad>, &kernel<Scale>};
extern const uint32_t activation_kernel_count = std::size(activation_kernels);

}  // namespace cpu
