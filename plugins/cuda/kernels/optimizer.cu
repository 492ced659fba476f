// SPDX-License-Identifier: Apache-2.0
// The update in one pass: adamw and sgd, both EXACT. Every line is one IEEE operation, in the order of engine/ops.h.
#include <optional>

#include "../../common/cuda/glue.hpp"
#include "../../common/cuda/random.cuh"
#include "../../common/rounding.hpp"
#include "../../common/weight.hpp"
#include "list.hpp"

namespace cuda {
namespace optimizer {

// Number of states, input of the scalars and output of the weight in a call. The states are inputs 2 .. and outputs
// 1 .., the counters follow the scalars.
struct Places {
  size_t states, scalars, weight;
};
float real_of(const Call& c, const char* key) {
  return static_cast<float>(c.real(key));
}

// least_in, most_in: inputs of a call without counters.
struct AdamWNumbers {
  static constexpr const char* op = ENG_OP_ADAMW;
  static constexpr size_t least_in = 5, most_in = 5;
  float rest1, beta2, rest2, eps, decay;
  static Places places(const Call&) { return {2, 4, 3}; }
  explicit AdamWNumbers(const Call& c)
      : rest1(static_cast<float>(1.0 - c.real("beta1"))),
        beta2(real_of(c, "beta2")),
        rest2(static_cast<float>(1.0 - c.real("beta2"))),
        eps(real_of(c, "eps")),
        decay(real_of(c, "weight_decay")) {}
};
struct SgdNumbers {
  static constexpr const char* op = ENG_OP_SGD;
  static constexpr size_t least_in = 3, most_in = 4;
  float momentum, decay;
  bool nesterov, buffer;
  // The buffer is input 2, if there is one; it may also be there as an absent input.
  static Places places(const Call& c) {
    const size_t scalars = common::is_rounded(c) ? 3 : c.in.size() - 1;
    const size_t states = scalars == 3 && c.has(2) ? 1 : 0;
    return {states, scalars, 1 + states};
  }
  explicit SgdNumbers(const Call& c)
      : momentum(real_of(c, "momentum")),
        decay(real_of(c, "weight_decay")),
        nesterov(c.integer("nesterov") != 0),
        buffer(places(c).states == 1) {
    need(buffer || c.real("momentum") == 0.0, "momentum needs the buffer b");
  }
};

// Scalars of a step, the same for all elements.
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
  Operands(const Args& a, const Places& at, const Numbers& n)
      : grad(a.in<G>(1)), p_in(a.in<S>(0)), in{}, p(a.out<S>(0)), out{}, scalars(a.in<float>(at.scalars)), numbers(n) {
    for (size_t s = 0; s < at.states; ++s) in[s] = a.in<S>(2 + s), out[s] = a.out<S>(1 + s);
  }
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

// p and its states are stored in bf16, rounded at random.
template <class G, class Numbers>
struct RoundedUpdateOf {
  Operands<bf16, Numbers, G> x;
  common::Rounding chance;
  const int64_t* counters;
  Step step;
  uint32_t updates;

  __device__ void begin() {
    step.read(x.scalars);
    updates = static_cast<uint32_t>(counters[ENG_C_UPDATES]);
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
  __device__ void one(float grad, const Words& words, bool high, bf16 (&v)[3]) const {
    Element e{to_f32(v[0]), {to_f32(v[1]), to_f32(v[2])}};
    update(x.numbers, step, grad, e);
    if (!step.ok) return;
    const float all[3] = {e.p, e.s[0], e.s[1]};
    for (int k = 0; k < 3; ++k) v[k] = rounded_by(all[k], high ? words.at[k] >> 16 : words.at[k] & 0xffff);
  }

  // W elements from i on, and, for two halves, the W that lie 16 behind them: one block of numbers for each two.
  template <int W, int halves>
  __device__ void at(int64_t i) const {
    Pack<bf16, W> v[3][halves] = {};
    float g[halves][W];
    for (int h = 0; h < halves; ++h) {
      const int64_t from = i + 16 * h;
      v[0][h] = load_pack<W>(x.p_in + from);
      for (int k = 0; k < 2; ++k)
        if (x.in[k]) v[k + 1][h] = load_pack<W>(x.in[k] + from);
      load(x.grad + from, g[h]);
    }
    ENG_UNROLL
    for (int e = 0; e < W; ++e) {
      const auto n = static_cast<uint64_t>(chance.first + i + e);
      const Words words = numbers(n);
      for (int h = 0; h < halves; ++h) {
        bf16 values[3] = {v[0][h].at[e], v[1][h].at[e], v[2][h].at[e]};
        one(g[h][e], words, halves == 2 ? h != 0 : n / 16 % 2 != 0, values);
        for (int k = 0; k < 3; ++k) v[k][h].at[e] = values[k];
      }
    }
    for (int h = 0; h < halves; ++h) {
      const int64_t to = i + 16 * h;
      store_pack(x.p + to, v[0][h]);
      for (int k = 0; k < 2; ++k)
        if (x.out[k]) store_pack(x.out[k] + to, v[k + 1][h]);
    }
  }
};
// Whole blocks of 32 elements in pairs, the rest alone. Element 0 is the first of its block: check_rounded sees to it.
template <class U>
__global__ void in_pairs(int64_t n, U u) {
  u.begin();
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                threads = static_cast<int64_t>(gridDim.x) * blockDim.x, whole = n / 32 * 2;
  for (int64_t t = thread; t < whole; t += threads) u.template at<8, 2>(t / 2 * 32 + t % 2 * 8);
  for (int64_t i = whole * 16 + thread; i < n; i += threads) u.template at<1, 1>(i);
}

// ---- ops -------------------------------------------------------------------------------------------------------

template <class Numbers>
struct Update : Exact {
  static constexpr const char* op = Numbers::op;
  Places at;
  Numbers numbers;
  std::optional<common::Rounding> rounding;
  static void check(const Call& c) {
    const bool rounded = common::is_rounded(c);
    need_counts(c, Numbers::least_in, Numbers::most_in + (rounded ? 1 : 0), Numbers::least_in - 2,
                Numbers::most_in - 1);
    const Places at = Update(c).at;
    need_scalars(c.in[at.scalars]);
    if (rounded) return common::check_rounded(c, at.states, Numbers::most_in);
    common::check_weight(c, at.weight);
    for (size_t k = 0; k < 2 + at.states; ++k)
      need_type(c.in[k], ENG_F32, "p, its gradient or a state"), need_size(c.in[k], elements(c.in[0]), "a state");
    for (size_t k = 0; k < 1 + at.states; ++k)
      need_type(c.out[k], ENG_F32, "p or a state"), need_size(c.out[k], elements(c.in[0]), "a state");
  }
  explicit Update(const Call& c) : at(Numbers::places(c)), numbers(c) {
    if (common::is_rounded(c)) rounding.emplace(c);
  }
  void run(const Call& c, const Args& args, cudaStream_t stream) const {
    const int64_t n = elements(c.in[0]);
    if (rounding) {
      const auto with = [&]<class G>(G) {
        const RoundedUpdateOf<G, Numbers> u{
            Operands<bf16, Numbers, G>(args, at, numbers), *rounding, args.in<int64_t>(at.scalars + 1), {}, 0};
        launch<in_pairs<RoundedUpdateOf<G, Numbers>>>(blocks_for(n, 256 * 16), 256, 0, stream, n, u);
      };
      return c.in[1].dtype == ENG_BF16 ? with(bf16{}) : with(float{});
    }
    const auto with = [&]<class W>(W* weight) {
      launch_each(n, stream, UpdateOf<W, Numbers>{Operands<float, Numbers, float>(args, at, numbers), weight, {}});
    };
    if (!c.has_out(at.weight)) return with(static_cast<bf16*>(nullptr));
    c.out[at.weight].dtype == ENG_F16 ? with(args.out<f16>(at.weight)) : with(args.out<bf16>(at.weight));
  }
};

}  // namespace optimizer

void add_optimizer(List& list) {
  list.insert(list.end(),
              {&kernel<optimizer::Update<optimizer::AdamWNumbers>>, &kernel<optimizer::Update<optimizer::SgdNumbers>>});
}

}  // namespace cuda
