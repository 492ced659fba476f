// SPDX-License-Identifier: Apache-2.0
// The update in one pass: adamw and sgd, both EXACT. Every line is one IEEE operation, in the order of engine/ops.h.
#include "../../common/cuda/glue.hpp"
#include "../../common/cuda/random.cuh"
#include "../../common/rounding.hpp"
#include "../../common/weight.hpp"
#include "list.hpp"

namespace cuda {
namespace optimizer {

struct AdamWNumbers {
  float rest1, beta2, rest2, eps, decay;
};
struct SgdNumbers {
  float momentum, decay;
  bool nesterov, buffer;
};
// How values are stored in bf16: rounded at random.
struct ByChance {
  uint64_t seed = 0;
  uint32_t stream = 0;
  int64_t first = 0;
  const int64_t* counters = nullptr;
};

struct Element {
  float p, s[2];  // p and its states
};
__device__ __forceinline__ void update(const AdamWNumbers& u, const float* scalars, float grad, Element& e) {
  const float lr = scalars[ENG_S_LR], c1 = scalars[ENG_S_LR + 1], c2 = scalars[ENG_S_LR + 2];
  const float g = grad * scalars[ENG_S_CLIP];
  const float m = fmaf(u.rest1, g - e.s[0], e.s[0]), v = fmaf(u.beta2, e.s[1], u.rest2 * (g * g));
  if (u.decay != 0.0f) e.p = e.p - lr * (u.decay * e.p);
  e.p = e.p - (lr * m / c1) / (sqrtf(v) / c2 + u.eps);
  e.s[0] = m, e.s[1] = v;
}
__device__ __forceinline__ void update(const SgdNumbers& u, const float* scalars, float grad, Element& e) {
  const float lr = scalars[ENG_S_LR];
  const bool first = scalars[ENG_S_LR + 1] != 0.0f;
  const float g = fmaf(u.decay, e.p, grad * scalars[ENG_S_CLIP]);
  const float b = u.buffer && !first ? fmaf(u.momentum, e.s[0], g) : g;
  e.s[0] = b;
  e.p = e.p - lr * (u.nesterov ? g + u.momentum * b : b);
}

template <class G, class S, class W, class Numbers>
struct UpdateOf {
  const G* grad;
  const S *p_in, *in[2];
  S *p, *out[2];
  W* weight;
  const float* scalars;
  Numbers numbers;
  ByChance chance;

  __device__ void keep(S* to, float value, uint32_t) const requires(!std::is_same_v<S, bf16>) { *to = value; }
  __device__ void keep(S* to, float value, uint32_t number) const requires(std::is_same_v<S, bf16>) {
    const uint32_t bits = bits_of<uint32_t>(value);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    to->bits = static_cast<uint16_t>(nan ? bits >> 16 | 0x40 : (bits + number) >> 16);
  }
  template <int width>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < width; ++k) one(i + k);
  }
  __device__ void one(int64_t i) const {
    if (scalars[ENG_S_OK] == 0.0f) {
      p[i] = p_in[i];
      for (int s = 0; s < 2; ++s)
        if (in[s]) out[s][i] = in[s][i];
      if (weight) from_f32(to_f32(p[i]), weight[i]);
      return;
    }
    Element e{to_f32(p_in[i]), {in[0] ? to_f32(in[0][i]) : 0.0f, in[1] ? to_f32(in[1][i]) : 0.0f}};
    update(numbers, scalars, to_f32(grad[i]), e);
    uint32_t r[3] = {0, 0, 0};
    if constexpr (std::is_same_v<S, bf16>) {
      const uint64_t n = static_cast<uint64_t>(chance.first + i);
      const Words words =
          philox(n / 32 * 16 + n % 16,
                 static_cast<uint32_t>(chance.counters[ENG_C_UPDATES]) | uint64_t{chance.stream | 0x80000000u} << 32,
                 chance.seed);
      for (int k = 0; k < 3; ++k) r[k] = n / 16 % 2 ? words.at[k] >> 16 : words.at[k] & 0xffff;
    }
    keep(p + i, e.p, r[0]);
    for (int s = 0; s < 2; ++s)
      if (out[s]) keep(out[s] + i, e.s[s], r[s + 1]);
    if (weight) from_f32(e.p, weight[i]);
  }
};

// ---- ops -------------------------------------------------------------------------------------------------------

// What both have: where the states, the scalars, the counters and the weight are in the call.
struct Places {
  size_t states = 0, scalars = 0, weight = 0;
};
template <class Numbers>
void run_update(const Call& c, const Args& args, cudaStream_t stream, const Places& at, const Numbers& numbers) {
  const int64_t n = elements(c.in[0]);
  const auto with = [&]<class G, class S, class W>(G, S, W) {
    UpdateOf<G, S, W, Numbers> u{};
    u.grad = args.in<G>(1), u.p_in = args.in<S>(0), u.p = args.out<S>(0);
    for (size_t s = 0; s < at.states; ++s) u.in[s] = args.in<S>(2 + s), u.out[s] = args.out<S>(1 + s);
    u.weight = c.has_out(at.weight) ? args.out<W>(at.weight) : nullptr;
    u.scalars = args.in<float>(at.scalars), u.numbers = numbers;
    if (cpu::is_rounded(c)) {
      const cpu::Rounding r(c);
      u.chance = {r.seed, r.stream, r.first, args.in<int64_t>(at.scalars + 1)};
    }
    launch_each(n, stream, u);
  };
  if (cpu::is_rounded(c))
    c.in[1].dtype == ENG_BF16 ? with(bf16{}, bf16{}, bf16{}) : with(float{}, bf16{}, bf16{});
  else if (c.has_out(at.weight) && c.out[at.weight].dtype == ENG_F16)
    with(float{}, float{}, f16{});
  else
    with(float{}, float{}, bf16{});
}
void need_plain(const Call& c, size_t states, size_t weight) {
  cpu::check_weight(c, weight);
  for (size_t k = 0; k < 2 + states; ++k)
    need_type(c.in[k], ENG_F32, "p, its gradient or a state"), need_size(c.in[k], elements(c.in[0]), "a state");
  for (size_t k = 0; k < 1 + states; ++k)
    need_type(c.out[k], ENG_F32, "p or a state"), need_size(c.out[k], elements(c.in[0]), "a state");
}
void need_scalars(const eng_desc& d) {
  need_type(d, ENG_F32, "scalars"), need_size(d, ENG_S_COUNT, "scalars");
}

struct AdamW {
  static constexpr const char* op = ENG_OP_ADAMW;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call call;
  AdamWNumbers numbers;
  static void check(const Call& c) {
    need_counts(c, 5, cpu::is_rounded(c) ? 6 : 5, 3, 4);
    need_scalars(c.in[4]);
    (void)AdamW(c);
    cpu::is_rounded(c) ? cpu::check_rounded(c, {2, 3}, 5) : need_plain(c, 2, 3);
  }
  explicit AdamW(const Call& c)
      : call(c),
        numbers{static_cast<float>(1.0 - c.real("beta1")), static_cast<float>(c.real("beta2")),
                static_cast<float>(1.0 - c.real("beta2")), static_cast<float>(c.real("eps")),
                static_cast<float>(c.real("weight_decay"))} {}
  void run(const Args& args, cudaStream_t stream) const { run_update(call, args, stream, {2, 4, 3}, numbers); }
};

struct Sgd {
  static constexpr const char* op = ENG_OP_SGD;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call call;
  Places at;
  SgdNumbers numbers;
  // The buffer is input 2, if there is one; it may also be there as an absent input.
  static Places places(const Call& c) {
    const size_t scalars = cpu::is_rounded(c) ? 3 : c.in.size() - 1;
    const size_t states = scalars == 3 && c.has(2) ? 1 : 0;
    return {states, scalars, 1 + states};
  }
  static void check(const Call& c) {
    need_counts(c, 3, cpu::is_rounded(c) ? 5 : 4, 1, 3);
    const Sgd sgd(c);
    need_scalars(c.in[sgd.at.scalars]);
    need(sgd.at.states == 1 || c.real("momentum") == 0.0, "momentum needs the buffer b");
    if (cpu::is_rounded(c))
      sgd.at.states ? cpu::check_rounded(c, {2}, 4) : cpu::check_rounded(c, {}, 4);
    else
      need_plain(c, sgd.at.states, sgd.at.weight);
  }
  explicit Sgd(const Call& c)
      : call(c),
        at(places(c)),
        numbers{static_cast<float>(c.real("momentum")), static_cast<float>(c.real("weight_decay")),
                c.integer("nesterov") != 0, at.states == 1} {}
  void run(const Args& args, cudaStream_t stream) const { run_update(call, args, stream, at, numbers); }
};

}  // namespace optimizer

void add_optimizer(List& list) {
  list.insert(list.end(), {&kernel<optimizer::AdamW>, &kernel<optimizer::Sgd>});
}

}  // namespace cuda
