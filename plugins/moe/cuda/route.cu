// SPDX-License-Identifier: Apache-2.0
// The router, its gradient, and the terms of the loss. A warp takes a token and reads its logits again for each step;
// a block sorts the pairs of one expert. Sums have an order of their own, the same in every run.
#include "route.cuh"

namespace moe {
namespace on_cuda {

using namespace cuda;

constexpr int sort_block = 512, load_block = 1024;

// The logits of a token, and what its warp finds of them.
template <class T>
struct Token {
  const T* logits;
  int32_t experts;
  float most = 0, sum = 0;  // the largest logit; the sum of exp(logit - most)
  __device__ __forceinline__ float logit(int32_t e) const { return to_f32(logits[e]); }
  __device__ __forceinline__ float exp_of(int32_t e) const { return expf(logit(e) - most); }
  __device__ __forceinline__ float log_sum() const { return most + logf(sum); }
  __device__ __forceinline__ Token(const T* at, int64_t n) : logits(at), experts(static_cast<int32_t>(n)) {
    most = next({INFINITY, -1}).logit;
    float mine = 0;
    for (int32_t e = lane_of_warp(); e < experts; e += 32) mine += exp_of(e);
    sum = sum_of_warp(mine);
  }
  // The best expert after `last`.
  __device__ __forceinline__ Choice<float> next(const Choice<float>& last) const {
    Choice<float> best{NAN, INT32_MAX};
    for (int32_t e = lane_of_warp(); e < experts; e += 32) {
      const Choice<float> one{logit(e), e};
      if (last.before(one) && one.before(best)) best = one;
    }
    return best_of_warp(best);
  }
};

// `found`: (all, 2), the largest logit and the sum of each token.
template <class T>
__global__ void __launch_bounds__(token_block)
    choose_experts(RouteSizes r, const T* logits, float* weights, int32_t* chosen, float* found) {
  const int64_t t = token_of_warp();
  if (t >= r.all) return;
  const Token<T> token(logits + t * r.experts, r.experts);
  Choice<float> last{INFINITY, -1};
  float divisor = 0;
  for (int64_t j = 0; j < r.k; ++j) {
    last = token.next(last);
    divisor += token.exp_of(last.expert);
    if (lane_of_warp() == 0) chosen[t * r.k + j] = last.expert;
  }
  if (!r.normalise) divisor = token.sum;
  if (lane_of_warp() > 0) return;
  for (int64_t j = 0; j < r.k; ++j) weights[t * r.k + j] = token.exp_of(chosen[t * r.k + j]) / divisor;
  found[2 * t] = token.most, found[2 * t + 1] = token.sum;
}

// Order, place and offsets of the pairs of expert blockIdx.x. Each thread takes neighbouring pairs.
__global__ void __launch_bounds__(sort_block)
    sort_expert(const int32_t* chosen, int64_t pairs, int32_t* order, int32_t* place, int32_t* offsets) {
  using Counts = uint64_t[sort_block];  // pairs of lower experts, and below them in 32 bits those of this one
  Counts& counts = shared<Counts>();
  const int thread = static_cast<int>(threadIdx.x), expert = static_cast<int>(blockIdx.x);
  const int64_t each = (pairs + sort_block - 1) / sort_block, first = thread * each,
                last = first + each < pairs ? first + each : pairs;
  uint64_t mine = 0;
  for (int64_t p = first; p < last; ++p) mine += chosen[p] < expert ? uint64_t{1} << 32 : chosen[p] == expert ? 1 : 0;
  counts[thread] = mine;
  __syncthreads();
  for (int by = 1; by < sort_block; by *= 2) {
    const uint64_t before = thread >= by ? counts[thread - by] : 0;
    __syncthreads();
    counts[thread] += before;
    __syncthreads();
  }
  const auto begin = static_cast<int32_t>(counts[sort_block - 1] >> 32);
  if (thread == 0) offsets[expert] = begin;
  if (thread == 0 && blockIdx.x + 1 == gridDim.x) offsets[gridDim.x] = static_cast<int32_t>(pairs);
  int32_t row = begin + static_cast<int32_t>(static_cast<uint32_t>(counts[thread] - mine));
  for (int64_t p = first; p < last; ++p) {
    if (chosen[p] != expert) continue;
    order[row] = static_cast<int32_t>(p), place[p] = row++;
  }
}

// load of sequence blockIdx.y: a thread sums every 32nd token for one of 32 experts, or, as if it were one expert more,
// the squares; then the sums of the threads in order.
template <class T>
__global__ void __launch_bounds__(load_block)
    sum_load(RouteSizes r, const T* logits, const int32_t* chosen, const float* found, float* load) {
  struct Sums {
    float p[load_block / 32][32];
    int32_t count[load_block / 32][32];
  };
  Sums& sums = shared<Sums>();
  const int lane = lane_of_warp(), group = static_cast<int>(threadIdx.x / warp);
  const auto e = static_cast<int32_t>(blockIdx.x * 32) + lane;
  const int64_t first = blockIdx.y * r.tokens;
  float p = 0;
  int32_t count = 0;
  for (int64_t t = first + group; t < first + r.tokens; t += load_block / 32) {
    const float most = found[2 * t], sum = found[2 * t + 1], log_sum = most + logf(sum);
    if (e < r.experts) p += expf(to_f32(logits[t * r.experts + e]) - most) / sum;
    if (e == r.experts) p += log_sum * log_sum;
    for (int64_t j = 0; j < r.k; ++j) count += chosen[t * r.k + j] == e ? 1 : 0;
  }
  sums.p[group][lane] = p, sums.count[group][lane] = count;
  __syncthreads();
  if (group > 0 || e > r.experts) return;
  for (int g = 1; g < load_block / 32; ++g) p += sums.p[g][lane], count += sums.count[g][lane];
  float* const out = load + blockIdx.y * (2 * r.experts + 1);
  out[r.experts + e] = p;
  if (e < r.experts) out[e] = static_cast<float>(count);
}

template <class T>
__global__ void __launch_bounds__(token_block) route_grad(RouteSizes r, const T* logits, const int32_t* chosen,
                                                          const float* dweights, const float* dload, T* dlogits) {
  const int64_t t = token_of_warp();
  if (t >= r.all) return;
  const Token<T> token(logits + t * r.experts, r.experts);
  const int32_t* const mine = chosen + t * r.k;
  if (dload) dload += t / r.tokens * (2 * r.experts + 1) + r.experts;
  if (dweights) dweights += t * r.k;
  const float p_of = 1.0f / token.sum;    // times exp_of(e): p[e]
  float weight_of = p_of, of_chosen = 0;  // times exp_of(e): the weight of a chosen e
  if (r.normalise && dweights) {
    float sum = 0;
    for (int64_t j = 0; j < r.k; ++j) sum += token.exp_of(mine[j]);
    weight_of = 1.0f / sum;
    for (int64_t j = 0; j < r.k; ++j) of_chosen += dweights[j] * (token.exp_of(mine[j]) * weight_of);
  }
  const float scale = token.sum * weight_of;  // weights by p
  const auto dp = [&](int32_t e) {
    float d = dload ? dload[e] : 0.0f;
    ENG_ROLL
    for (int64_t j = 0; dweights && j < r.k; ++j)
      if (mine[j] == e) d += (dweights[j] - of_chosen) * scale;
    return d;
  };
  float mean = 0;
  ENG_ROLL
  for (int32_t e = lane_of_warp(); e < token.experts; e += 32) mean += dp(e) * (token.exp_of(e) * p_of);
  mean = sum_of_warp(mean);
  const float z = dload ? 2.0f * token.log_sum() * dload[r.experts] : 0.0f;
  __syncwarp();  // dlogits may be in place of logits, of which each lane has read those of the chosen experts
  ENG_ROLL
  for (int32_t e = lane_of_warp(); e < token.experts; e += 32)
    from_f32(token.exp_of(e) * p_of * (dp(e) - mean + z), dlogits[t * r.experts + e]);
}

// One thread, as there is little to do: with dload its gradient, which may be in place of load; else balance and z.
__global__ void balance_terms(const float* load, const float* dbalance, const float* dz, float* balance, float* z,
                              float* dload, int64_t sequences, int64_t experts, float rows) {
  const float n = static_cast<float>(experts) / rows / rows, slope = dbalance ? *dbalance * n : 0.0f;
  float sum = 0, squares = 0;
  for (int64_t at = 0; at < sequences * (2 * experts + 1); at += 2 * experts + 1) {
    for (int64_t e = at; e < at + experts; ++e) {
      const float count = load[e], p = load[e + experts];
      sum += count * p;
      if (dload) dload[e] = slope * p, dload[e + experts] = slope * count;
    }
    squares += load[at + 2 * experts] / rows;
    if (dload) dload[at + 2 * experts] = dz ? *dz / rows : 0.0f;
  }
  if (!dload) *balance = sum * n, *z = squares;
}

// ---- ops -------------------------------------------------------------------------------------------------------

void launch_sort(const RouteSizes& r, const Args& a, cudaStream_t stream) {
  launch<sort_expert>(static_cast<unsigned>(r.experts), sort_block, sort_block * sizeof(uint64_t), stream,
                      a.out<int32_t>(1), r.all * r.k, a.out<int32_t>(2), a.out<int32_t>(3), a.out<int32_t>(4));
}

struct Route {
  static constexpr const char* op = MOE_OP_ROUTE;
  static void check(const Call& c) {
    need_float(c.in[0], "logits"), need_type(c.out[0], ENG_F32, "weights"), need_type(c.out[5], ENG_F32, "load");
    need(c.in[0].dims[0] <= 65535, "there are too many sequences for one grid");
  }
  static uint64_t workspace(const Call& c) { return sizeof(float) * 2 * static_cast<uint64_t>(rows(c.in[0])); }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const RouteSizes r(c);
    int32_t* const chosen = a.out<int32_t>(1);
    float* const found = a.scratch<float>();
    const dim3 of_load(static_cast<unsigned>((r.experts + 1 + 31) / 32), static_cast<unsigned>(r.sequences));
    by_type(c.in[0].dtype, [&]<class T>(T) {
      launch<choose_experts<T>>(grid_of(r), token_block, 0, stream, r, a.in<T>(0), a.out<float>(0), chosen, found);
      launch<sum_load<T>>(of_load, load_block, load_block * (sizeof(float) + sizeof(int32_t)), stream, r, a.in<T>(0),
                          chosen, found, a.out<float>(5));
    });
    launch_sort(r, a, stream);
  }
};

struct RouteGrad {
  static constexpr const char* op = MOE_OP_ROUTE_GRAD;
  static void check(const Call& c) {
    need_float(c.in[0], "logits"), need_type(c.out[0], c.in[0].dtype, "dlogits");
    for (size_t k : {2, 3})
      if (c.has(k)) need_type(c.in[k], ENG_F32, "a gradient of weights or load");
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const RouteSizes r(c);
    by_type(c.in[0].dtype, [&]<class T>(T) {
      launch<route_grad<T>>(grid_of(r), token_block, 0, stream, r, a.in<T>(0), a.in<int32_t>(1), a.in<float>(2),
                            a.in<float>(3), a.out<T>(0));
    });
  }
};

template <bool grad>
struct Balance {
  static constexpr const char* op = grad ? MOE_OP_BALANCE_GRAD : MOE_OP_BALANCE;
  static void check(const Call& c) { need_type(c.in[0], ENG_F32, "load"); }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    launch<balance_terms>(1, 1, 0, stream, a.in<float>(0), a.in<float>(1), a.in<float>(2), a.out<float>(0),
                          a.out<float>(1), grad ? a.out<float>(0) : nullptr, c.in[0].dims[0], c.in[0].dims[1] / 2,
                          static_cast<float>(c.integer("rows")));
  }
};

}  // namespace on_cuda

void add_route(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Route>, &kernel<RouteGrad>, &kernel<Balance<false>>, &kernel<Balance<true>>});
}

}  // namespace moe
