// SPDX-License-Identifier: Apache-2.0
// Linear and cross-entropy in one op: the logits of some tokens exist at a time, never those of all.
#include <algorithm>

#include "list.hpp"
#include "product.cuh"

namespace cuda {
namespace cross_entropy {

constexpr unsigned block = 256;
struct Scratch {
  float warps[block / warp];
};
constexpr int32_t ignored = -100;

// How tokens are weighted; scalars: null where no gradients are wanted. squares: null where there is no z loss.
struct Weighting {
  const float *scalars, *weights;  // weights: of the tokens, or null
  float* squares;
  float loss, z;  // of a gradient
};

// One block for each token: its loss, and, with scalars, the gradient of its logits in their place. Gradients of 16
// bits take the first half of the place.
template <int W, class D>
__global__ void softmax(float* logits, const int32_t* labels, Weighting by, float* losses, int64_t vocabulary) {
  float* const scratch = shared<Scratch>().warps;
  float* const row = logits + static_cast<int64_t>(blockIdx.x) * vocabulary;
  const int32_t label = labels[blockIdx.x];
  const bool counts = label >= 0 && label < vocabulary;
  const float of_label = counts ? row[label] : 0.0f;
  constexpr int64_t step = int64_t{block} * W;
  // The sum is that of exp(x - top), top as far as this thread has seen.
  float top = -INFINITY, sum = 0;
  for (int64_t v = static_cast<int64_t>(threadIdx.x) * W; v < vocabulary; v += step) {
    float x[W], most = top, more = 0;
    load(row + v, x);
    for (int k = 0; k < W; ++k) most = fmaxf(most, x[k]);
    for (int k = 0; k < W; ++k) more += expf(x[k] - most);
    if (most > top) sum *= expf(top - most);
    top = most, sum += more;
  }
  const float most = max_of_block(top, scratch);
  if (most > top) sum *= expf(top - most);
  const float lse = most + logf(sum_of_block(sum, scratch));
  const float weight = by.weights ? by.weights[blockIdx.x] : 1.0f;
  // A label that is none makes the loss not a number: the run stops at it.
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = counts ? weight * (lse - of_label) : label == ignored ? 0.0f : NAN;
    if (by.squares) by.squares[blockIdx.x] = counts ? weight * lse * lse : 0.0f;
  }
  if (!by.scalars) return;
  const float all = by.scalars[ENG_S_INV_TOKENS] * by.scalars[ENG_S_LOSS_SCALE];
  const float scale = all * by.loss * weight, of_z = by.squares ? 2.0f * (all * by.z * weight) * lse : 0.0f;
  D* const out = reinterpret_cast<D*>(row);
  for (int64_t from = 0; from < vocabulary; from += step) {
    const int64_t v = from + static_cast<int64_t>(threadIdx.x) * W;
    float x[W];
    if (v < vocabulary) load(row + v, x);
    if constexpr (sizeof(D) < sizeof(float)) __syncthreads();  // what is written now, others have read
    if (v >= vocabulary) continue;
    for (int k = 0; k < W; ++k) {
      const float p = expf(x[k] - lse);
      x[k] = counts ? scale * (p - (v + k == label ? 1.0f : 0.0f)) + of_z * p : 0.0f;
    }
    store(out + v, x);
  }
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
  static constexpr int width = widest<S>;
  template <int W>
  __device__ void at(int64_t i) const {
    float x[W];
    load(sum + i, x);
    put_sum(acc, i, x, out);
  }
};

struct Sizes {
  int64_t tokens, vocabulary, width, chunk;
  uint64_t size;  // bytes of an element of x
  bool has_dw, has_z;
  float weight, z_loss;
  // Of gradients of that many bytes in the place of logits, from one token to the next.
  int64_t stride(uint64_t bytes) const { return vocabulary * static_cast<int64_t>(sizeof(float) / bytes); }
  explicit Sizes(const Call& c)
      : tokens(rows(c.in[0])),
        vocabulary(rows(c.in[1])),
        width(columns(c.in[0])),
        size(cpu::dtype_size(c.in[0].dtype)),
        has_dw(c.has_out(2) && c.integer_or("no_dw", 0) == 0),
        has_z(c.real_or("z_loss", 0) > 0),
        weight(static_cast<float>(c.real_or("weight", 1))),
        z_loss(static_cast<float>(c.real_or("z_loss", 0))) {
    // The gradient of w is read and written once for each chunk: with few tokens in one, that would be most of the
    // time.
    const auto given = static_cast<int64_t>(c.device.settings[library::loss_chunk_setting]);
    chunk = std::max<int64_t>(std::min(given ? given : library::usual_loss_chunk, tokens), 1);
  }
};

// Scratch: logits, losses, and what the call has of the rest. All of it begins where a library accepts it.
struct Places {
  uint64_t losses, squares = 0, sums = 0, library = 0, bytes = 0;  // squares: of lse, for the z loss

  Places(const Call& c, const Sizes& s, bool gradient) {
    const auto after = [](uint64_t at, uint64_t room) { return at + (room + 255) / 256 * 256; };
    const auto logits = static_cast<uint64_t>(s.chunk * s.vocabulary);
    losses = after(0, logits * sizeof(float));
    squares = after(losses, static_cast<uint64_t>(s.tokens) * sizeof(float));
    sums = after(squares, s.has_z ? static_cast<uint64_t>(s.tokens) * sizeof(float) : 0);
    // The sum over chunks is in f32, where dw is not.
    const bool apart = gradient && s.has_dw && c.out[2].dtype != ENG_F32;
    library = after(sums, apart ? static_cast<uint64_t>(s.vocabulary * s.width) * sizeof(float) : 0);
    bytes = library + scratch(c, s);
  }
  static uint64_t scratch(const Call& c, const Sizes& s) {
    library::Product p;
    p.type = c.in[0].dtype, p.result = ENG_F32, p.m = s.chunk, p.n = s.vocabulary, p.k = s.width, p.tb = true;
    return library::scratch(c, p);
  }
  template <class T>
  static T* at(const Args& a, uint64_t offset) {
    return reinterpret_cast<T*>(a.scratch<char>() + offset);
  }
};

// What the library chose for a chunk of so many tokens; null: nothing.
struct Chunk {
  using Chosen = std::shared_ptr<const library::Algorithm>;
  Chosen logits, dx, dw, dw_more;  // dw: of the first chunk

  Chunk(const Call& c, void* device, const Sizes& s, int64_t count, bool gradient) {
    if (count == 0) return;
    const uint64_t scratch = Places::scratch(c, s);
    const uint32_t tokens_aligned = library::aligned_at(s.chunk * s.width * static_cast<int64_t>(s.size));
    library::Product p;
    p.type = c.in[0].dtype, p.result = ENG_F32, p.m = count, p.n = s.vocabulary, p.k = s.width, p.tb = true;
    p.a_aligned = tokens_aligned;
    logits = library::prepare(device, p, scratch);
    if (!gradient) return;
    library::Product x;
    x.type = x.result = c.in[0].dtype, x.m = count, x.n = s.width, x.k = s.vocabulary, x.a_stride = s.stride(s.size);
    x.c_aligned = tokens_aligned;
    dx = library::prepare(device, x, scratch);
    if (!s.has_dw) return;
    library::Product w;
    w.type = c.in[0].dtype, w.result = ENG_F32, w.m = s.vocabulary, w.n = s.width, w.k = count, w.ta = true;
    w.a_stride = s.stride(s.size);
    w.b_aligned = tokens_aligned;
    w.add = c.out[2].dtype == ENG_F32 && c.has(4);
    dw = library::prepare(device, w, scratch);
    w.add = true;
    dw_more = library::prepare(device, w, scratch);
  }
  bool multiplies(bool has_dw) const { return dx && (!has_dw || (dw && dw_more)); }
};

// `weights`: the input with loss weights; `z`: the output of the z loss.
void need_inputs(const Call& c, size_t weights, size_t z) {
  if (c.has(weights))
    need_type(c.in[weights], ENG_F32, "loss weights"), need_size(c.in[weights], rows(c.in[0]), "loss weights");
  if (c.real_or("z_loss", 0) > 0) need_type(c.out[z], ENG_F32, "z"), need_size(c.out[z], 1, "z");
  need_float(c.in[0], "x"), need_type(c.in[1], c.in[0].dtype, "w"), need_type(c.in[2], ENG_I32, "labels");
  need(c.in[1].ndim == 2 && columns(c.in[1]) == columns(c.in[0]), "w must be (V, H), H the last dimension of x");
  need(rows(c.in[1]) > 0, "w has no rows");
  need_size(c.in[2], rows(c.in[0]), "labels"), need_type(c.out[0], ENG_F32, "loss"), need_size(c.out[0], 1, "loss");
}

// What both ops know of a call.
struct Prepared {
  int32_t type;
  Sizes sizes;
  Places places;
  Chunk whole, rest;
  Prepared(const Call& c, void* device, bool gradient)
      : type(c.in[0].dtype),
        sizes(c),
        places(c, sizes, gradient),
        whole(c, device, sizes, sizes.chunk, gradient),
        rest(c, device, sizes, sizes.tokens % sizes.chunk, gradient) {}

  // Calls then(chunk, first, count) for each chunk; with scalars, its logits have become gradients of type D. `z`
  // receives the second sum, if there is one.
  template <class T, class D, class Then>
  void chunks(const Args& a, const float* scalars, const float* weights, float* z, cudaStream_t stream,
              Then then) const {
    const Sizes& s = sizes;
    constexpr int wide = widest<float>;
    float *const logits = a.scratch<float>(), *const losses = Places::at<float>(a, places.losses);
    float* const squares = s.has_z ? Places::at<float>(a, places.squares) : nullptr;
    for (int64_t first = 0; first < s.tokens; first += s.chunk) {
      const int64_t count = s.tokens - first < s.chunk ? s.tokens - first : s.chunk;
      const Chunk& chunk = count == s.chunk ? whole : rest;
      product::run(product::Matrices<T, T, float>{a.in<T>(0) + first * s.width, a.in<T>(1), nullptr, nullptr, logits,
                                                  count, s.vocabulary, s.width, false, true},
                   chunk.logits.get(), Places::at<char>(a, places.library), stream);
      const Weighting by{scalars, weights ? weights + first : nullptr, squares ? squares + first : nullptr, s.weight,
                         s.z_loss};
      const auto go = [&]<int W>() {
        launch<softmax<W, D>>(static_cast<unsigned>(count), block, sizeof(Scratch), stream, logits,
                              a.in<int32_t>(2) + first, by, losses + first, s.vocabulary);
      };
      s.vocabulary % wide ? go.template operator()<1>() : go.template operator()<wide>();
      then(chunk, first, count);
    }
    launch<total>(1, block, sizeof(float[1024]), stream, losses, s.tokens, a.out<float>(0));
    if (squares) launch<total>(1, block, sizeof(float[1024]), stream, squares, s.tokens, z);
  }
};

struct CrossEntropy {
  static constexpr const char* op = ENG_OP_CROSS_ENTROPY;
  Prepared prepared;
  static void check(const Call& c) {
    const size_t outputs = c.real_or("z_loss", 0) > 0 ? 2 : 1;
    need_counts(c, 3, 4, outputs, outputs), need_inputs(c, 3, 1);
  }
  static uint64_t workspace(const Call& c) { return Places(c, Sizes(c), false).bytes; }
  CrossEntropy(const Call& c, void* device) : prepared(c, device, false) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(prepared.type, [&]<class T>(T) {
      prepared.chunks<T, float>(a, nullptr, a.in<float>(3), a.out<float>(1), stream,
                                [](const Chunk&, int64_t, int64_t) {});
    });
  }
};

struct CrossEntropyGrad {
  static constexpr const char* op = ENG_OP_CROSS_ENTROPY_GRAD;
  Prepared prepared;
  int32_t sums;
  bool has_dw;
  static void check(const Call& c) {
    const bool dw = c.out.size() != 2 && c.integer_or("no_dw", 0) == 0;
    const size_t z = dw ? 3 : 2, outputs = c.real_or("z_loss", 0) > 0 ? z + 1 : z;
    need_counts(c, 4, 6, outputs, outputs), need_inputs(c, 5, z);
    need_type(c.in[3], ENG_F32, "scalars"), need_size(c.in[3], ENG_S_COUNT, "scalars");
    need_type(c.out[1], c.in[0].dtype, "dx"), need_size(c.out[1], elements(c.in[0]), "dx");
    if (dw) {
      if (c.out[2].dtype != ENG_F32) need_type(c.out[2], c.in[0].dtype, "dw");
      need_size(c.out[2], elements(c.in[1]), "dw");
      if (c.has(4)) need_type(c.in[4], c.out[2].dtype, "dw_acc"), need_size(c.in[4], elements(c.in[1]), "dw_acc");
    }
  }
  static uint64_t workspace(const Call& c) { return Places(c, Sizes(c), true).bytes; }
  CrossEntropyGrad(const Call& c, void* device)
      : prepared(c, device, true),
        sums(prepared.sizes.has_dw ? c.out[2].dtype : ENG_F32),
        has_dw(prepared.sizes.has_dw) {}

  // The products of the gradient. A library multiplies matrices of one type: it gets the gradients of logits rounded to
  // that of x, which own kernels do not need. D is float then, or the type of x.
  template <class T, class S, class D>
  void run(const Args& a, cudaStream_t stream) const {
    const Sizes& s = prepared.sizes;
    const D* const gradients = a.scratch<D>();
    void* const scratch = Places::at<char>(a, prepared.places.library);
    float* const dw = sums == ENG_F32 ? a.out<float>(2) : Places::at<float>(a, prepared.places.sums);
    const auto multiply = [&](const auto& matrices, const Chunk::Chosen& chosen) {
      if constexpr (std::is_same_v<T, D>)
        product::run(matrices, chosen.get(), scratch, stream);
      else
        product::run(matrices, stream);
    };
    float* const z = a.out<float>(has_dw ? 3 : 2);
    const auto then = [&](const Chunk& chunk, int64_t first, int64_t count) {
      multiply(product::Matrices<D, T, T>{gradients, a.in<T>(1), nullptr, nullptr, a.out<T>(1) + first * s.width, count,
                                          s.width, s.vocabulary, false, false, s.stride(sizeof(D))},
               chunk.dx);
      if (!has_dw) return;
      const float* acc = first ? dw : sums == ENG_F32 ? a.in<float>(4) : nullptr;
      multiply(product::Matrices<D, T, float>{gradients, a.in<T>(0) + first * s.width, acc, nullptr, dw, s.vocabulary,
                                              s.width, count, true, false, s.stride(sizeof(D))},
               first ? chunk.dw_more : chunk.dw);
    };
    prepared.chunks<T, D>(a, a.in<float>(3), a.in<float>(5), z, stream, then);
    if (has_dw && sums != ENG_F32) launch_each(s.vocabulary * s.width, stream, StoreOf<S>{dw, a.in<S>(4), a.out<S>(2)});
  }
  void run(const Args& a, cudaStream_t stream) const {
    const bool rest = prepared.sizes.tokens % prepared.sizes.chunk != 0;
    const bool library = prepared.whole.multiplies(has_dw) && (!rest || prepared.rest.multiplies(has_dw));
    by_types(prepared.type, sums, [&]<class T, class S>(T, S) {
      if (library && sizeof(T) == 2)
        run<T, S, T>(a, stream);
      else
        run<T, S, float>(a, stream);
    });
  }
};

}  // namespace cross_entropy

void add_cross_entropy(List& list) {
  list.insert(list.end(), {&kernel<cross_entropy::CrossEntropy>, &kernel<cross_entropy::CrossEntropyGrad>});
}

}  // namespace cuda
