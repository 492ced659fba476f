// SPDX-License-Identifier: Apache-2.0
// adamw and sgd. Unlike the other kernels these compute in the type of the tensors, with one rounding per operation and
// in the order of ops.h, so that every other implementation can give the same bits. Values that depend only on
// attributes (1 - beta) are computed in f64 and rounded once.
#include "reference.hpp"

namespace reference {
namespace {

void expect_scalars(const Call& c, size_t k) {
  expect(is_real(c, k) && elements(c.in[k]) == ENG_S_COUNT, "scalars must be f32 (32)");
}

struct AdamW {
  static constexpr const char* op = ENG_OP_ADAMW;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  double beta1, beta2, eps, weight_decay;

  explicit AdamW(const Call& call)
      : c(call),
        beta1(c.real("beta1")),
        beta2(c.real("beta2")),
        eps(c.real("eps")),
        weight_decay(c.real("weight_decay")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2, 3, 4});
    expect_types(c, 5, {0, 1, 2, 3}, 3, {0, 1, 2});
    expect_scalars(c, 4);
    for (size_t k : {1, 2, 3}) expect(elements(c.in[k]) == elements(c.in[0]), "p, grad, m and v must be (n)");
    for (size_t k : {0, 1, 2}) expect(elements(c.out[k]) == elements(c.in[0]), "p, m and v must be (n)");
    (void)AdamW(c);
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const Reals scalars(c, a, 4);
      const bool ok = scalars[ENG_S_OK] != 0;
      const T clip = T(scalars[ENG_S_CLIP]), lr = T(scalars[ENG_S_LR]);
      const T c1 = T(scalars[ENG_S_LR + 1]), c2 = T(scalars[ENG_S_LR + 2]);
      const T rest1 = T(1.0 - beta1), b2 = T(beta2), rest2 = T(1.0 - beta2), e = T(eps), wd = T(weight_decay);
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        T p = a.in<T>(0)[i], m = a.in<T>(2)[i], v = a.in<T>(3)[i];
        if (ok) {
          const T g = a.in<T>(1)[i] * clip;
          m = std::fma(rest1, g - m, m);
          v = std::fma(b2, v, rest2 * (g * g));
          if (wd != 0) p = p - lr * (wd * p);
          p = p - (lr * m / c1) / (std::sqrt(v) / c2 + e);
        }
        a.out<T>(0)[i] = p;
        a.out<T>(1)[i] = m;
        a.out<T>(2)[i] = v;
      }
    });
  }
};

// The buffer b is optional: without momentum the call is in (p, grad, scalars), out (p). A host may also pass b as
// absent (dtype 0).
struct Sgd {
  static constexpr const char* op = ENG_OP_SGD;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  double momentum, weight_decay;
  bool nesterov;

  explicit Sgd(const Call& call)
      : c(call),
        momentum(c.real("momentum")),
        weight_decay(c.real("weight_decay")),
        nesterov(c.integer("nesterov") != 0) {}
  static size_t scalars_at(const Call& c) { return c.in.size() - 1; }
  static bool buffer(const Call& c) { return c.in.size() == 4 && c.has(2); }
  static void check(const Call& c) {
    expect(c.in.size() == 3 || c.in.size() == 4, "takes p, grad, [b], scalars");
    expect_inputs(c, {0, 1, scalars_at(c)});
    expect(is_real(c.in[0]), "p must be f32");
    for (size_t k = 1; k < scalars_at(c); ++k)
      expect(!c.has(k) || (c.in[k].dtype == c.in[0].dtype && elements(c.in[k]) == elements(c.in[0])),
             "grad and b must have the type and shape of p");
    expect_scalars(c, scalars_at(c));
    expect(c.has_out(0) && c.has_out(1) == buffer(c), "gives p, and b if it was given");
    for (const eng_desc& d : c.out)
      expect(d.dtype == 0 || (d.dtype == c.in[0].dtype && elements(d) == elements(c.in[0])),
             "p and b must keep their type and shape");
    expect(buffer(c) || Sgd(c).momentum == 0, "momentum needs the buffer b");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const Reals scalars(c, a, scalars_at(c));
      const bool ok = scalars[ENG_S_OK] != 0, first = scalars[ENG_S_LR + 1] != 0;
      const T clip = T(scalars[ENG_S_CLIP]), lr = T(scalars[ENG_S_LR]), mu = T(momentum), wd = T(weight_decay);
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        T p = a.in<T>(0)[i], b = buffer(c) ? a.in<T>(2)[i] : T(0);
        if (ok) {
          const T g = std::fma(wd, p, a.in<T>(1)[i] * clip);
          b = first || !buffer(c) ? g : std::fma(mu, b, g);
          p = p - lr * (nesterov ? g + mu * b : b);
        }
        a.out<T>(0)[i] = p;
        if (buffer(c)) a.out<T>(1)[i] = b;
      }
    });
  }
};

}  // namespace

void add_optimizer(List& list) {
  list.insert(list.end(), {&cpu::kernel<AdamW>, &cpu::kernel<Sgd>});
}

}  // namespace reference
