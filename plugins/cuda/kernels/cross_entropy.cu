// SPDX-License-Identifier: Apache-2.0
// Linear and cross-entropy in one op: the logits of some tokens exist at a time, never those of all.
#include "list.hpp"
#include "product.cuh"

namespace cuda {
namespace cross_entropy {

constexpr unsigned block = 256;
struct Scratch {
  float warps[block / warp];
};
constexpr int32_t ignored = -100;

// One block for each token: its loss, and, with `scalars`, the gradient of its logits in their place.
__global__ void softmax(float* logits, const int32_t* labels, const float* scalars, float* losses, int64_t vocabulary) {
  float* const scratch = shared<Scratch>().warps;
  float* const row = logits + static_cast<int64_t>(blockIdx.x) * vocabulary;
  const int32_t label = labels[blockIdx.x];
  const bool counts = label >= 0 && label < vocabulary;
  float top = -INFINITY, sum = 0;
  for (int64_t v = threadIdx.x; v < vocabulary; v += block) top = fmaxf(top, row[v]);
  top = max_of_block(top, scratch);
  for (int64_t v = threadIdx.x; v < vocabulary; v += block) sum += expf(row[v] - top);
  const float lse = top + logf(sum_of_block(sum, scratch));
  // A label that is none makes the loss not a number: the run stops at it.
  if (threadIdx.x == 0) losses[blockIdx.x] = counts ? lse - row[label] : label == ignored ? 0.0f : NAN;
  if (!scalars) return;
  __syncthreads();
  const float scale = scalars[ENG_S_INV_TOKENS] * scalars[ENG_S_LOSS_SCALE];
  for (int64_t v = threadIdx.x; v < vocabulary; v += block)
    row[v] = counts ? scale * (expf(row[v] - lse) - (v == label ? 1.0f : 0.0f)) : 0.0f;
}

// In order, in f64.
__global__ void total(const float* losses, int64_t n, float* loss) {
  constexpr int tile = 1024;
  float* const next = shared<float[tile]>();
  double sum = 0;
  for (int64_t from = 0; from < n; from += tile) {
    const int count = static_cast<int>(n - from < tile ? n - from : tile);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
      next[i] = losses[from + i];
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 0; i < count; ++i) sum += next[i];
    __syncthreads();
  }
  if (threadIdx.x == 0) *loss = static_cast<float>(sum);
}

template <class S>
struct StoreOf {  // out = acc + sum
  const float* sum;
  const S* acc;
  S* out;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) from_f32(acc ? to_f32(acc[i + k]) + sum[i + k] : sum[i + k], out[i + k]);
  }
};

struct Sizes {
  int64_t tokens, vocabulary, width, chunk;
  explicit Sizes(const Call& c) : tokens(rows(c.in[0])), vocabulary(rows(c.in[1])), width(columns(c.in[0])) {
    constexpr int64_t most = int64_t{64} << 20;  // bytes of logits
    const int64_t fit = most / (vocabulary * 4);
    chunk = fit < 1 ? 1 : fit < tokens ? fit : tokens;
  }
};
void need_inputs(const Call& c) {
  need_float(c.in[0], "x"), need_type(c.in[1], c.in[0].dtype, "w"), need_type(c.in[2], ENG_I32, "labels");
  need(c.in[1].ndim == 2 && columns(c.in[1]) == columns(c.in[0]), "w must be (V, H), H the last dimension of x");
  need_size(c.in[2], rows(c.in[0]), "labels"), need_type(c.out[0], ENG_F32, "loss"), need_size(c.out[0], 1, "loss");
}
uint64_t scratch_of(const Sizes& s) {  // logits, then losses
  return static_cast<uint64_t>(s.chunk * s.vocabulary + s.tokens) * sizeof(float);
}

// Calls then(first, count, logits) for each chunk, whose logits are their gradients if there are scalars.
template <class T, class Then>
void chunks(const Sizes& s, const Args& a, const float* scalars, cudaStream_t stream, Then then) {
  float *logits = a.scratch<float>(), *losses = logits + s.chunk * s.vocabulary;
  for (int64_t first = 0; first < s.tokens; first += s.chunk) {
    const int64_t count = s.tokens - first < s.chunk ? s.tokens - first : s.chunk;
    product::run(product::Matrices<T, T, float>{a.in<T>(0) + first * s.width, a.in<T>(1), nullptr, nullptr, logits,
                                                count, s.vocabulary, s.width, false, true},
                 stream);
    launch<softmax>(static_cast<unsigned>(count), block, sizeof(Scratch), stream, logits, a.in<int32_t>(2) + first,
                    scalars, losses + first, s.vocabulary);
    then(first, count, logits);
  }
  launch<total>(1, block, sizeof(float[1024]), stream, losses, s.tokens, a.out<float>(0));
}

struct CrossEntropy {
  static constexpr const char* op = ENG_OP_CROSS_ENTROPY;
  int32_t type;
  Sizes sizes;
  static void check(const Call& c) { need_counts(c, 3, 3, 1, 1), need_inputs(c); }
  static uint64_t workspace(const Call& c) { return scratch_of(Sizes(c)); }
  explicit CrossEntropy(const Call& c) : type(c.in[0].dtype), sizes(c) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) { chunks<T>(sizes, a, nullptr, stream, [](int64_t, int64_t, float*) {}); });
  }
};

struct CrossEntropyGrad {
  static constexpr const char* op = ENG_OP_CROSS_ENTROPY_GRAD;
  int32_t type, sums;
  bool has_dw;
  Sizes sizes;
  static void check(const Call& c) {
    need_counts(c, 4, 5, 2, 3), need_inputs(c);
    need_type(c.in[3], ENG_F32, "scalars"), need_size(c.in[3], ENG_S_COUNT, "scalars");
    need_type(c.out[1], c.in[0].dtype, "dx"), need_size(c.out[1], elements(c.in[0]), "dx");
    if (c.has_out(2)) {
      if (c.out[2].dtype != ENG_F32) need_type(c.out[2], c.in[0].dtype, "dw");
      need_size(c.out[2], elements(c.in[1]), "dw");
      if (c.has(4)) need_type(c.in[4], c.out[2].dtype, "dw_acc"), need_size(c.in[4], elements(c.in[1]), "dw_acc");
    }
  }
  // The sum over chunks is in f32, where dw is not.
  static uint64_t workspace(const Call& c) {
    const bool apart = c.has_out(2) && c.out[2].dtype != ENG_F32;
    return scratch_of(Sizes(c)) + (apart ? static_cast<uint64_t>(elements(c.in[1])) * sizeof(float) : 0);
  }
  explicit CrossEntropyGrad(const Call& c)
      : type(c.in[0].dtype), sums(c.has_out(2) ? c.out[2].dtype : ENG_F32), has_dw(c.has_out(2)), sizes(c) {}
  void run(const Args& a, cudaStream_t stream) const {
    const Sizes& s = sizes;
    float* const apart = a.scratch<float>() + s.chunk * s.vocabulary + s.tokens;
    float* const dw = sums == ENG_F32 ? a.out<float>(2) : apart;
    by_types(type, sums, [&]<class T, class S>(T, S) {
      chunks<T>(s, a, a.in<float>(3), stream, [&](int64_t first, int64_t count, const float* dlogits) {
        product::run(
            product::Matrices<float, T, T>{dlogits, a.in<T>(1), nullptr, nullptr, a.out<T>(1) + first * s.width, count,
                                           s.width, s.vocabulary, false, false},
            stream);
        if (!has_dw) return;
        const float* acc = first ? dw : sums == ENG_F32 ? a.in<float>(4) : nullptr;
        product::run(product::Matrices<float, T, float>{dlogits, a.in<T>(0) + first * s.width, acc, nullptr, dw,
                                                        s.vocabulary, s.width, count, true, false},
                     stream);
      });
      if (has_dw && sums != ENG_F32)
        launch_each(s.vocabulary * s.width, stream, StoreOf<S>{dw, a.in<S>(4), a.out<S>(2)});
    });
  }
};

}  // namespace cross_entropy

void add_cross_entropy(List& list) {
  list.insert(list.end(), {&kernel<cross_entropy::CrossEntropy>, &kernel<cross_entropy::CrossEntropyGrad>});
}

}  // namespace cuda
