// SPDX-License-Identifier: Apache-2.0
// adamw and sgd. Unlike the other kernels these compute in the type of the tensors, with one rounding per operation and
// in the order of ops.h, so that every other implementation can give the same bits. Values that depend only on
// attributes (1 - beta) are computed in f64 and rounded once. What is kept in bf16 is computed in f32.
#include <optional>

#include "../../common/rounding.hpp"
#include "../../common/weight.hpp"
#include "reference.hpp"

namespace reference {
namespace {

void expect_scalars(const Call& c, size_t k) {
  expect(is_real(c, k) && elements(c.in[k]) == ENG_S_COUNT, "scalars must be f32 (32)");
}

// Output k, if there is one, from the new p.
void write_weight(const Call& c, const Args& a, size_t k) {
  if (common::has_weight(c, k))
    common::cast_weight(c.out[k].dtype, a.out<float>(0), a.out<void>(k), 0, elements(c.in[0]));
}

std::optional<common::Rounding> rounding_of(const Call& c) {
  if (!common::is_rounded(c)) return {};
  return common::Rounding(c);
}

// Calls body(S{}), S being the type of p and the states.
template <class Body>
void by_kept(const Call& c, Body&& body) {
  if (common::is_rounded(c))
    body(common::Bf16{});
  else
    by_real(c.in[0].dtype, body);
}

// Stores value k of an element; what is kept in bf16 is rounded stochastically. Counters, if any, are input `at`.
struct Keeper {
  const common::Rounding* rounding;
  uint32_t update;
  Keeper(const Call& c, const Args& a, const common::Rounding* r, size_t at)
      : rounding(r), update(common::is_rounded(c) ? uint32_t(a.in<int64_t>(at)[ENG_C_UPDATES]) : 0) {}
  template <class S, class T>
  void keep(S* out, int64_t i, size_t k, T value) const {
    if constexpr (std::is_same_v<S, common::Bf16>)
      common::from_f32_by(value, rounding->number(update, i, k), out[i]);
    else
      out[i] = value;
  }
};

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
    expect_scalars(c, 4);
    (void)AdamW(c);
    if (common::is_rounded(c)) return common::check_rounded(c, 2, 5);
    expect(c.out.size() >= 3, "gives p, m, v and [weight]");
    expect_types(c, 5, {0, 1, 2, 3}, c.out.size(), {0, 1, 2});
    common::check_weight(c, 3);
    expect(is_real(c.in[0]), "p, grad, m and v must be f32");
    for (size_t k : {1, 2, 3}) expect(elements(c.in[k]) == elements(c.in[0]), "p, grad, m and v must be (n)");
    for (size_t k : {0, 1, 2}) expect(elements(c.out[k]) == elements(c.in[0]), "p, m and v must be (n)");
  }
  void run(const Args& a) const {
    const auto rounding = rounding_of(c);
    const Keeper keeper(c, a, rounding ? &*rounding : nullptr, 5);
    by_kept(c, [&]<class S>(S) {
      using T = Arithmetic<S>;
      const Reals scalars(c, a, 4), grad(c, a, 1);
      const bool ok = scalars[ENG_S_OK] != 0;
      const T clip = T(scalars[ENG_S_CLIP]), lr = T(scalars[ENG_S_LR]);
      const T c1 = T(scalars[ENG_S_LR + 1]), c2 = T(scalars[ENG_S_LR + 2]);
      const T rest1 = T(1.0 - beta1), b2 = T(beta2), rest2 = T(1.0 - beta2), e = T(eps), wd = T(weight_decay);
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        T p = a.in<S>(0)[i], m = a.in<S>(2)[i], v = a.in<S>(3)[i];
        if (ok) {
          const T g = T(grad[i]) * clip;
          m = std::fma(rest1, g - m, m);
          v = std::fma(b2, v, rest2 * (g * g));
          if (wd != 0) p = p - lr * (wd * p);
          p = p - (lr * m / c1) / (std::sqrt(v) / c2 + e);
        }
        keeper.keep(a.out<S>(0), i, 0, p);
        keeper.keep(a.out<S>(1), i, 1, m);
        keeper.keep(a.out<S>(2), i, 2, v);
      }
    });
    write_weight(c, a, 3);
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
  static size_t scalars_at(const Call& c) { return common::is_rounded(c) ? 3 : c.in.size() - 1; }
  static bool buffer(const Call& c) { return scalars_at(c) == 3 && c.has(2); }
  static size_t weight_at(const Call& c) { return buffer(c) ? 2 : 1; }
  static void check(const Call& c) {
    const bool rounded = common::is_rounded(c);
    expect(rounded ? c.in.size() == 5 : c.in.size() == 3 || c.in.size() == 4,
           "takes p, grad, [b], scalars, and the counters if p is bf16");
    expect_inputs(c, {0, 1, scalars_at(c)});
    expect_scalars(c, scalars_at(c));
    expect(buffer(c) || Sgd(c).momentum == 0, "momentum needs the buffer b");
    if (rounded) return common::check_rounded(c, buffer(c) ? 1 : 0, 4);
    expect(is_real(c.in[0]), "p must be f32");
    for (size_t k = 1; k < scalars_at(c); ++k)
      expect(!c.has(k) || (c.in[k].dtype == c.in[0].dtype && elements(c.in[k]) == elements(c.in[0])),
             "grad and b must have the type and shape of p");
    expect(c.has_out(0) && (!buffer(c) || c.has_out(1)), "gives p, and b if it was given");
    for (size_t k = 0; k < weight_at(c); ++k)
      expect(c.out[k].dtype == c.in[0].dtype && elements(c.out[k]) == elements(c.in[0]),
             "p and b must keep their type and shape");
    common::check_weight(c, weight_at(c));
  }
  void run(const Args& a) const {
    const auto rounding = rounding_of(c);
    const Keeper keeper(c, a, rounding ? &*rounding : nullptr, 4);
    by_kept(c, [&]<class S>(S) {
      using T = Arithmetic<S>;
      const Reals scalars(c, a, scalars_at(c)), grad(c, a, 1);
      const bool ok = scalars[ENG_S_OK] != 0, first = scalars[ENG_S_LR + 1] != 0;
      const T clip = T(scalars[ENG_S_CLIP]), lr = T(scalars[ENG_S_LR]), mu = T(momentum), wd = T(weight_decay);
      for (int64_t i = 0; i < elements(c.in[0]); ++i) {
        T p = a.in<S>(0)[i], b = buffer(c) ? T(a.in<S>(2)[i]) : T(0);
        if (ok) {
          const T g = std::fma(wd, p, T(grad[i]) * clip);
          b = first || !buffer(c) ? g : std::fma(mu, b, g);
          p = p - lr * (nesterov ? g + mu * b : b);
        }
        keeper.keep(a.out<S>(0), i, 0, p);
        if (buffer(c)) keeper.keep(a.out<S>(1), i, 1, b);
      }
    });
    write_weight(c, a, weight_at(c));
  }
};

}  // namespace

void add_optimizer(List& list) {
  list.insert(list.end(), {&common::kernel<AdamW>, &common::kernel<Sgd>});
}

}  // namespace reference
