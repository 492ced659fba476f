// SPDX-License-Identifier: Apache-2.0
// The ops of ../ops.hpp. A block sums each answer, in f64 and in an order of its own; one thread goes through the
// pairs, in theirs.
#include "../../common/cuda/glue.hpp"
#define PREFERENCE_INLINE __host__ __device__ __forceinline__
#include "../call.hpp"
#include "list.hpp"

namespace preference {
namespace on_cuda {

using cuda::Args;
using cuda::Call;

constexpr int block = 256;

struct Folded {
  double s[block], r[block], weight[block];
  int labels[block];
};

// The sums of each sequence (pairs.hpp); and 0 into `of`, if it is given, for pairs that are left out.
__global__ void __launch_bounds__(block)
    answers(const float* logprobs, const int32_t* labels, const float* reference, const float* weights, int64_t length,
            bool mean, Answer* out, float* of) {
  Folded& fold = cuda::shared<Folded>();
  const int thread = static_cast<int>(threadIdx.x);
  double s = 0, r = 0, weight = 0;
  int n = 0;
  for (int64_t k = blockIdx.x * length + thread; k < (blockIdx.x + int64_t{1}) * length; k += block) {
    if (labels[k] == ignored) continue;
    ++n, s += static_cast<double>(logprobs[k]);
    if (reference) r += static_cast<double>(reference[k]);
    if (weights) weight += static_cast<double>(weights[k]);
  }
  fold.s[thread] = s, fold.r[thread] = r, fold.weight[thread] = weight, fold.labels[thread] = n;
  for (int half = block / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    fold.s[thread] += fold.s[thread + half], fold.r[thread] += fold.r[thread + half];
    fold.weight[thread] += fold.weight[thread + half], fold.labels[thread] += fold.labels[thread + half];
  }
  if (thread > 0) return;
  Answer one;
  one.s = fold.s[0], one.r = fold.r[0], one.labels = fold.labels[0];
  if (weights) one.weight = fold.weight[0];
  const double count = static_cast<double>(one.labels);
  if (one.labels) one.mean = one.s / count;
  if (one.labels && mean) one.s = one.mean, one.r /= count;
  out[blockIdx.x] = one;
  if (of) of[blockIdx.x] = 0;
}

// use(row of the preferred answer, both answers): pairs of which one has no label are left out.
template <class Use>
__device__ __forceinline__ void each(const Answer* answers, int64_t rows, Use&& use) {
  for (int64_t row = 0; row + 1 < rows; row += 2) {
    const Answer &w = answers[row], &l = answers[row + 1];
    if (w.labels && l.labels) use(row, w, l);
  }
}

// The sums of the op.
struct PairsOf {
  Rule rule;
  float* out[sums];
  __device__ void run(const Answer* answers, int64_t rows) const {
    double sum[sums] = {};
    each(answers, rows, [&](int64_t, const Answer& w, const Answer& l) {
      const Judged judged = judge(rule, w, l);
      sum[0] += w.weight * judged.loss, sum[1] += w.weight * -w.mean;
      sum[2] += judged.chosen, sum[3] += judged.other;
      sum[4] += judged.chosen - judged.other, sum[5] += judged.chosen > judged.other ? 1.0 : 0.0;
    });
    ENG_UNROLL
    for (uint32_t k = 0; k < sums; ++k) out[k][0] = static_cast<float>(sum[k]);
  }
};

// The gradient by each log-probability of an answer.
struct PairsGradOf {
  Rule rule;
  const float* by[gradients];
  float* of;
  __device__ void run(const Answer* answers, int64_t rows) const {
    const auto read = [&](int k) { return by[k] ? static_cast<double>(by[k][0]) : 0.0; };
    const double by_loss = read(0), by_nll = read(1), by_chosen = rule.beta * (read(2) + read(4)),
                 by_other = rule.beta * (read(3) - read(4));
    each(answers, rows, [&](int64_t row, const Answer& w, const Answer& l) {
      const Judged judged = judge(rule, w, l);
      const double n_w = static_cast<double>(w.labels), n_l = static_cast<double>(l.labels);
      const double loss = w.weight * by_loss, nll = w.weight * by_nll;
      of[row] = static_cast<float>((loss * judged.d_chosen + by_chosen) / (rule.mean ? n_w : 1.0) - nll / n_w);
      of[row + 1] = static_cast<float>((loss * judged.d_other + by_other) / (rule.mean ? n_l : 1.0));
    });
  }
};

// With `of` the gradient, else the sums.
struct KtoOf {
  KtoRule rule;
  const float *desirable, *by;
  int64_t length;
  float *out[kto_sums], *of;
  __device__ void run(const Answer* answers, int64_t rows) const {
    double more = 0, count = 0, loss = 0, right = 0;
    each(answers, rows, [&](int64_t, const Answer&, const Answer& other) { more += other.s - other.r, count += 1; });
    const double k = count > 0 && more > 0 ? more / count : 0.0;
    each(answers, rows, [&](int64_t row, const Answer& answer, const Answer&) {
      const bool good = desirable[row * length] != 0;
      const double weight = answer.weight * (good ? rule.good : rule.bad);
      const Alone one = judge_alone(rule.beta, weight, good, answer.s - answer.r, k);
      loss += one.loss, right += one.right ? 1.0 : 0.0;
      if (of) of[row] = static_cast<float>(static_cast<double>(by[0]) * one.d);
    });
    if (of) return;
    out[0][0] = static_cast<float>(loss), out[1][0] = static_cast<float>(k * count);
    out[2][0] = static_cast<float>(right);
  }
};

template <class F>
__global__ void in_order(F f, const Answer* answers, int64_t rows) {
  if (threadIdx.x == 0) f.run(answers, rows);
}

// Each label's log-probability has the gradient of its answer.
struct SpreadOf {
  const int32_t* labels;
  const float* of;
  float* out;
  int64_t length;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const auto label = cuda::load_pack<W>(labels + row * length + column);
    float d[W];
    for (int k = 0; k < W; ++k) d[k] = label.at[k] == ignored ? 0.0f : of[row];
    cuda::store(out + row * length + column, d);
  }
};

// ---- ops -------------------------------------------------------------------------------------------------------

// Sums the answers, lets f go through them, and spreads the gradients by the log-probabilities of answers that it
// wrote.
template <bool grad>
struct Sequences {
  int64_t rows, length;
  explicit Sequences(const Call& c) : rows(c.in[0].dims[0]), length(c.in[0].dims[1]) {}
  static uint64_t workspace(const Call& c) {  // answers, and behind them gradients
    return static_cast<uint64_t>(c.in[0].dims[0]) * (sizeof(Answer) + (grad ? sizeof(float) : 0));
  }
  static void need_f32(const Call& c) {
    if (c.in[0].dtype != ENG_F32) throw cuda::Error{ENG_UNSUPPORTED, "log-probabilities must be f32"};
    expect(c.in[0].dims[0] < int64_t{1} << 31, "there are too many sequences for one grid");
  }
  float* of(const Args& a) const { return grad ? reinterpret_cast<float*>(a.scratch<Answer>() + rows) : nullptr; }
  template <class F>
  void go(const Args& a, size_t weights, cudaStream_t stream, bool mean, const F& f) const {  // weights: that input
    auto* const answer = a.scratch<Answer>();
    cuda::launch<answers>(static_cast<unsigned>(rows), block, sizeof(Folded), stream, a.in<float>(0), a.in<int32_t>(1),
                          a.in<float>(2), a.in<float>(weights), length, mean, answer, of(a));
    cuda::launch<in_order<F>>(1, 32, 0, stream, f, answer, rows);
    if (grad) cuda::launch_rows(rows, length, stream, SpreadOf{a.in<int32_t>(1), of(a), a.out<float>(0), length});
  }
};

template <bool grad>
struct Pairs : Sequences<grad> {
  static constexpr const char* op = grad ? PREFERENCE_OP_PAIRS_GRAD : PREFERENCE_OP_PAIRS;
  Rule rule;
  explicit Pairs(const Call& c) : Sequences<grad>(c), rule(rule_of(c)) {}
  static void check(const Call& c) { check_pairs(c, grad), Sequences<grad>::need_f32(c); }
  void run(const Args& a, cudaStream_t stream) const {
    if constexpr (grad) {
      PairsGradOf f{rule, {}, this->of(a)};
      for (uint32_t k = 0; k < gradients; ++k) f.by[k] = a.in<float>(3 + k);
      this->go(a, pairs_grad_weights, stream, rule.mean, f);
    } else {
      PairsOf f{rule, {}};
      for (uint32_t k = 0; k < sums; ++k) f.out[k] = a.out<float>(k);
      this->go(a, pairs_weights, stream, rule.mean, f);
    }
  }
};

template <bool grad>
struct Kto : Sequences<grad> {
  static constexpr const char* op = grad ? PREFERENCE_OP_KTO_GRAD : PREFERENCE_OP_KTO;
  KtoRule rule;
  explicit Kto(const Call& c) : Sequences<grad>(c), rule(c) {}
  static void check(const Call& c) { check_kto(c, grad), Sequences<grad>::need_f32(c); }
  void run(const Args& a, cudaStream_t stream) const {
    KtoOf f{rule, a.in<float>(3), grad ? a.in<float>(4) : nullptr, this->length, {}, this->of(a)};
    for (uint32_t k = 0; !grad && k < kto_sums; ++k) f.out[k] = a.out<float>(k);
    this->go(a, grad ? kto_grad_weights : kto_weights, stream, false, f);
  }
};

}  // namespace on_cuda

std::vector<const eng_kernel*> cuda_kernels() {
  using namespace on_cuda;
  return {&cuda::kernel<Pairs<false>>, &cuda::kernel<Pairs<true>>, &cuda::kernel<Kto<false>>, &cuda::kernel<Kto<true>>};
}

}  // namespace preference
