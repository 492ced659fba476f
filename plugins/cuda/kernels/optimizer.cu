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

// What is the same for all elements: of the scalars of a step.
struct Step {
  float clip, rate[3];
  bool ok;
  __device__ void read(const float* scalars) {
    clip = scalars[ENG_S_CLIP], ok = scalars[ENG_S_OK] != 0.0f;
    for (int k = 0; k < 3; ++k) rate[k] = scalars[ENG_S_LR + k];
  }
};
struct Element {
  float p, s[2];  // p and its states
};
__device__ __forceinline__ void update(const AdamWNumbers& u, const Step& step, float grad, Element& e) {
  const float lr = step.rate[0], c1 = step.rate[1], c2 = step.rate[2];
  const float g = grad * step.clip;
  const float m = fmaf(u.rest1, g - e.s[0], e.s[0]), v = fmaf(u.beta2, e.s[1], u.rest2 * (g * g));
  if (u.decay != 0.0f) e.p = e.p - lr * (u.decay * e.p);
  e.p = e.p - (lr * m / c1) / (sqrtf(v) / c2 + u.eps);
  e.s[0] = m, e.s[1] = v;
}
__device__ __forceinline__ void update(const SgdNumbers& u, const Step& step, float grad, Element& e) {
  const float lr = step.rate[0];
  const bool first = step.rate[1] != 0.0f;
  const float g = fmaf(u.decay, e.p, grad * step.clip);
  const float b = u.buffer && !first ? fmaf(u.momentum, e.s[0], g) : g;
  e.s[0] = b;
  e.p = e.p - lr * (u.nesterov ? g + u.momentum * b : b);
}

template <class S, class Numbers, class G>
struct Operands {
  const G* grad;
  const S *p_in, *in[2];  // in, out: a state that there is not is null
  S *p, *out[2];
  const float* scalars;
  Numbers numbers;
};

// A skipped step stores what was there.
template <class W, class Numbers>
struct UpdateOf {
  Operands<float, Numbers, float> x;
  W* weight;
  Step step;
  __device__ void begin() { step.read(x.scalars); }
  template <int width>
  __device__ void at(int64_t i) const {
    float g[width], p[width], s[2][width] = {};
    load(x.p_in + i, p), load(x.grad + i, g);
    for (int k = 0; k < 2; ++k)
      if (x.in[k]) load(x.in[k] + i, s[k]);
    for (int k = 0; k < width; ++k) {
      Element e{p[k], {s[0][k], s[1][k]}};
      update(x.numbers, step, g[k], e);
      if (step.ok) p[k] = e.p, s[0][k] = e.s[0], s[1][k] = e.s[1];
    }
    store(x.p + i, p);
    for (int k = 0; k < 2; ++k)
      if (x.out[k]) store(x.out[k] + i, s[k]);
    if (weight) store(weight + i, p);
  }
};

// Everything is stored in bf16, rounded at random.
template <class G, class Numbers>
struct RoundedUpdateOf {
  Operands<bf16, Numbers, G> x;
  bf16* weight;
  ByChance chance;
  Step step;
  uint32_t updates;

  __device__ void begin() {
    step.read(x.scalars);
    updates = static_cast<uint32_t>(chance.counters[ENG_C_UPDATES]);
  }
  // One block of numbers serves the elements n and n + 16, n / 16 even: its low and its high halves.
  __device__ Words numbers(uint64_t n) const {
    return philox(n / 32 * 16 + n % 16, updates | uint64_t{chance.stream | 0x80000000u} << 32, chance.seed);
  }
  __device__ static bf16 rounded_by(float value, uint32_t number) {
    const uint32_t bits = bits_of<uint32_t>(value);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    return {static_cast<uint16_t>(nan ? bits >> 16 | 0x40 : (bits + number) >> 16)};
  }
  // v: p, then the states.
  __device__ void one(float grad, const Words& words, bool high, bf16 (&v)[3], bf16& out) const {
    Element e{to_f32(v[0]), {to_f32(v[1]), to_f32(v[2])}};
    update(x.numbers, step, grad, e);
    if (step.ok) {
      const float all[3] = {e.p, e.s[0], e.s[1]};
      for (int k = 0; k < 3; ++k) v[k] = rounded_by(all[k], high ? words.at[k] >> 16 : words.at[k] & 0xffff);
    }
    from_f32(step.ok ? e.p : to_f32(v[0]), out);
  }
  __device__ void alone(int64_t i) const {
    const auto n = static_cast<uint64_t>(chance.first + i);
    bf16 v[3] = {x.p_in[i], x.in[0] ? x.in[0][i] : bf16{}, x.in[1] ? x.in[1][i] : bf16{}}, out;
    one(to_f32(x.grad[i]), numbers(n), n / 16 % 2 != 0, v, out);
    x.p[i] = v[0];
    for (int k = 0; k < 2; ++k)
      if (x.out[k]) x.out[k][i] = v[k + 1];
    if (weight) weight[i] = out;
  }

  // Eight elements from i on, and the eight that lie 16 behind them: one block of numbers for each two.
  static constexpr int half = 8;
  using Half = Pack<bf16, half>;
  __device__ void pairs(int64_t i) const {
    Half v[3][2] = {}, out[2];
    float g[2][half];
    for (int h = 0; h < 2; ++h) {
      const int64_t from = i + 16 * h;
      v[0][h] = *reinterpret_cast<const Half*>(x.p_in + from);
      for (int k = 0; k < 2; ++k)
        if (x.in[k]) v[k + 1][h] = *reinterpret_cast<const Half*>(x.in[k] + from);
      load(x.grad + from, g[h]);
    }
    ENG_UNROLL
    for (int e = 0; e < half; ++e) {
      const Words words = numbers(static_cast<uint64_t>(chance.first + i + e));
      for (int h = 0; h < 2; ++h) {
        bf16 values[3] = {v[0][h].at[e], v[1][h].at[e], v[2][h].at[e]};
        one(g[h][e], words, h != 0, values, out[h].at[e]);
        for (int k = 0; k < 3; ++k) v[k][h].at[e] = values[k];
      }
    }
    for (int h = 0; h < 2; ++h) {
      const int64_t to = i + 16 * h;
      *reinterpret_cast<Half*>(x.p + to) = v[0][h];
      for (int k = 0; k < 2; ++k)
        if (x.out[k]) *reinterpret_cast<Half*>(x.out[k] + to) = v[k + 1][h];
      if (weight) *reinterpret_cast<Half*>(weight + to) = out[h];
    }
  }
};
// Whole blocks of 32 elements in pairs, the rest alone. Element 0 is the first of its block: check_rounded sees to it.
template <class U>
__global__ void in_pairs(int64_t n, U u) {
  u.begin();
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                threads = static_cast<int64_t>(gridDim.x) * blockDim.x, whole = n / 32 * 2;
  for (int64_t t = thread; t < whole; t += threads) u.pairs(t / 2 * 32 + t % 2 * U::half);
  for (int64_t i = whole * 16 + thread; i < n; i += threads) u.alone(i);
}

// ---- ops -------------------------------------------------------------------------------------------------------

// What both have: where the states, the scalars, the counters and the weight are in the call.
struct Places {
  size_t states = 0, scalars = 0, weight = 0;
};
template <class Numbers>
void run_update(const Call& c, const Args& args, cudaStream_t stream, const Places& at, const Numbers& numbers) {
  const int64_t n = elements(c.in[0]);
  const auto operands = [&]<class S, class G>(S, G) {
    Operands<S, Numbers, G> x{};
    x.grad = args.in<G>(1), x.p_in = args.in<S>(0), x.p = args.out<S>(0);
    for (size_t s = 0; s < at.states; ++s) x.in[s] = args.in<S>(2 + s), x.out[s] = args.out<S>(1 + s);
    x.scalars = args.in<float>(at.scalars), x.numbers = numbers;
    return x;
  };
  if (!cpu::is_rounded(c)) {
    const auto with = [&]<class W>(W* weight) {
      launch_each(n, stream, UpdateOf<W, Numbers>{operands(float{}, float{}), weight, {}});
    };
    if (!c.has_out(at.weight)) return with(static_cast<bf16*>(nullptr));
    return c.out[at.weight].dtype == ENG_F16 ? with(args.out<f16>(at.weight)) : with(args.out<bf16>(at.weight));
  }
  const cpu::Rounding r(c);
  const ByChance chance{r.seed, r.stream, r.first, args.in<int64_t>(at.scalars + 1)};
  const auto with = [&]<class G>(G) {
    bf16* const weight = c.has_out(at.weight) ? args.out<bf16>(at.weight) : nullptr;
    const RoundedUpdateOf<G, Numbers> u{operands(bf16{}, G{}), weight, chance, {}, 0};
    launch<in_pairs<RoundedUpdateOf<G, Numbers>>>(blocks_for(n, 256 * 16), 256, 0, stream, n, u);
  };
  c.in[1].dtype == ENG_BF16 ? with(bf16{}) : with(float{});
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
