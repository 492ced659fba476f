// SPDX-License-Identifier: Apache-2.0
// The router whose scores are sigmoids, and its gradient, in f64 as on the other devices, so that all choose alike.
#include "route.cuh"

namespace moe {
namespace on_cuda {

constexpr int most_groups = 32;  // one for each lane

struct SigmoidSizes : RouteSizes {
  int32_t groups, chosen_groups;
  double scale;
  explicit SigmoidSizes(const Call& c)
      : RouteSizes(c),
        groups(static_cast<int32_t>(c.integer("groups"))),
        chosen_groups(static_cast<int32_t>(c.integer("chosen_groups"))),
        scale(c.real("scale")) {}
};

// The logits of a token, and which groups are eligible.
template <class T>
struct Scores {
  const T* logits;
  const float* correction;  // may be null
  int32_t each;             // experts of a group
  unsigned eligible = all_lanes;
  __device__ __forceinline__ double score(int32_t e) const {
    return 1.0 / (1.0 + exp(-static_cast<double>(to_f32(logits[e]))));
  }
  // The number by which an expert is chosen.
  __device__ __forceinline__ double at(int32_t e) const {
    if (!(eligible >> e / each & 1)) return -static_cast<double>(INFINITY);
    return score(e) + (correction ? static_cast<double>(correction[e]) : 0.0);
  }
  // The best expert of first .. last - 1 that comes after `before`.
  __device__ __forceinline__ Choice<double> next(int32_t first, int32_t last, const Choice<double>& before) const {
    Choice<double> best{NAN, INT32_MAX};
    ENG_ROLL
    for (int32_t e = first + lane_of_warp(); e < last; e += 32) {
      const Choice<double> one{at(e), e};
      if (before.before(one) && one.before(best)) best = one;
    }
    return best_of_warp(best);
  }
  // Leaves only the best groups eligible: those with the largest sum of their two best experts.
  __device__ __forceinline__ void leave_groups(int32_t groups, int32_t chosen) {
    Choice<double> mine{NAN, INT32_MAX};
    for (int32_t g = 0; g < groups; ++g) {
      const Choice<double> one = next(g * each, (g + 1) * each, {INFINITY, -1}),
                           two = next(g * each, (g + 1) * each, one);
      if (lane_of_warp() == g) mine = {one.logit + two.logit, g};
    }
    int32_t better = 0;
    for (int32_t g = 0; g < groups; ++g)
      if (Choice<double>{__shfl_sync(all_lanes, mine.logit, g), g}.before(mine)) ++better;
    eligible = __ballot_sync(all_lanes, better < chosen && lane_of_warp() < groups);
  }
};

template <class T>
__global__ void __launch_bounds__(token_block)
    choose_by_sigmoid(SigmoidSizes r, const T* logits, const float* correction, float* weights, int32_t* chosen) {
  const int64_t t = token_of_warp();
  if (t >= r.all) return;
  const auto experts = static_cast<int32_t>(r.experts);
  Scores<T> token{logits + t * r.experts, correction, experts / r.groups};
  if (r.groups > 1) token.leave_groups(r.groups, r.chosen_groups);
  Choice<double> last{INFINITY, -1};
  double divisor = r.normalise ? 0.0 : 1.0;
  for (int64_t j = 0; j < r.k; ++j) {
    last = token.next(0, experts, last);
    if (r.normalise) divisor += token.score(last.expert);
    if (lane_of_warp() == 0) chosen[t * r.k + j] = last.expert;
  }
  if (lane_of_warp() > 0) return;
  for (int64_t j = 0; j < r.k; ++j)
    weights[t * r.k + j] = static_cast<float>(r.scale * (token.score(chosen[t * r.k + j]) / divisor));
}

template <class T>
__global__ void __launch_bounds__(token_block)
    sigmoid_grad(SigmoidSizes r, const T* logits, const int32_t* chosen, const float* dweights, T* dlogits) {
  const int64_t t = token_of_warp();
  if (t >= r.all) return;
  const Scores<T> token{logits + t * r.experts, nullptr, 1};
  chosen += t * r.k, dweights += t * r.k, dlogits += t * r.experts;
  double divisor = r.normalise ? 0.0 : 1.0, mean = 0.0;
  for (int64_t j = 0; r.normalise && j < r.k; ++j) {
    const double score = token.score(chosen[j]);
    divisor += score, mean += static_cast<double>(dweights[j]) * score;
  }
  if (r.normalise) mean /= divisor;
  for (int64_t e = lane_of_warp(); e < r.experts; e += 32) {
    double d = 0.0;
    for (int64_t j = 0; j < r.k; ++j) {
      if (chosen[j] != e) continue;
      const double score = token.score(chosen[j]);
      d = r.scale * (static_cast<double>(dweights[j]) - mean) / divisor * score * (1.0 - score);
    }
    from_f32(static_cast<float>(d), dlogits[e]);
  }
}

// ---- ops -------------------------------------------------------------------------------------------------------

struct RouteSigmoid {
  static constexpr const char* op = MOE_OP_ROUTE_SIGMOID;
  static void check(const Call& c) {
    need_float(c.in[0], "logits"), need_type(c.out[0], ENG_F32, "weights");
    if (c.has(1)) need_type(c.in[1], ENG_F32, "correction");
    if (c.integer("groups") > most_groups) throw Error{ENG_UNSUPPORTED, "chooses from up to 32 groups of experts"};
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const SigmoidSizes r(c);
    by_type(c.in[0].dtype, [&]<class T>(T) {
      launch<choose_by_sigmoid<T>>(grid_of(r), token_block, 0, stream, r, a.in<T>(0), a.in<float>(1), a.out<float>(0),
                                   a.out<int32_t>(1));
    });
    launch_sort(r, a, stream);
  }
};

struct RouteSigmoidGrad {
  static constexpr const char* op = MOE_OP_ROUTE_SIGMOID_GRAD;
  static void check(const Call& c) {
    need_float(c.in[0], "logits"), need_type(c.out[0], c.in[0].dtype, "dlogits");
    need_type(c.in[2], ENG_F32, "dweights");
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const SigmoidSizes r(c);
    by_type(c.in[0].dtype, [&]<class T>(T) {
      launch<sigmoid_grad<T>>(grid_of(r), token_block, 0, stream, r, a.in<T>(0), a.in<int32_t>(1), a.in<float>(2),
                              a.out<T>(0));
    });
  }
};

}  // namespace on_cuda

void add_sigmoid(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<RouteSigmoid>, &kernel<RouteSigmoidGrad>});
}

}  // namespace moe
