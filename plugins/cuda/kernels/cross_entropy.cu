// SPDX-License-Identifier: Apache-2.0
// Linear and cross-entropy in one op: the logits of some tokens exist at a time, never those of all.
#include <algorithm>

#include "list.hpp"
#include "product.cuh"
#include "sum_in_order.cuh"

namespace cuda {
namespace cross_entropy {

constexpr unsigned block = 256;
struct Scratch {
  float warps[block / warp];
};
constexpr int32_t ignored = -100;

// Weights of the tokens' losses. scalars: null if no gradients are wanted. squares: null if there is no z loss.
struct Weighting {
  const float *scalars, *weights;  // weights: of the tokens, or null
  float* squares;
  float loss, z;  // of a gradient
};

// One block for each token: its loss, and, with scalars, the gradient of its logits in their place. Gradients of 16
// bits take the first half of the place. From one row to the next are `stride` logits: whole vectors.
template <class D>
__global__ void softmax(float* logits, const int32_t* labels, Weighting by, float* losses, int64_t vocabulary,
                        int64_t stride) {
  constexpr int wide = widest<float>;
  float* const scratch = shared<Scratch>().warps;
  float* const row = logits + static_cast<int64_t>(blockIdx.x) * stride;
  const int32_t label = labels[blockIdx.x];
  const bool counts = label >= 0 && label < vocabulary;
  const float of_label = counts ? row[label] : 0.0f;
  constexpr int64_t step = int64_t{block} * wide;
  // The last vector may end behind the vocabulary: the thread that reads it makes its rest count for nothing.
  if (threadIdx.x == vocabulary / wide % block)
    for (int64_t v = vocabulary; v % wide; ++v) row[v] = -INFINITY;
  // The sum is that of exp(x - top), top as far as this thread has seen.
  float top = -INFINITY, sum = 0;
  for (int64_t v = static_cast<int64_t>(threadIdx.x) * wide; v < vocabulary; v += step) {
    float x[wide], most = top, more = 0;
    load(row + v, x);
    for (int k = 0; k < wide; ++k) most = fmaxf(most, x[k]);
    for (int k = 0; k < wide; ++k) more += expf(x[k] - most);
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
    const int64_t v = from + static_cast<int64_t>(threadIdx.x) * wide;
    float x[wide];
    if (v < vocabulary) load(row + v, x);
    if constexpr (sizeof(D) < sizeof(float)) __syncthreads();  // what is written now, others have read
    if (v >= vocabulary) continue;
    for (int k = 0; k < wide; ++k) {
      const float p = expf(x[k] - lse);
      x[k] = counts ? scale * (p - (v + k == label ? 1.0f : 0.0f)) + of_z * p : 0.0f;
    }
    store(out + v, x);
  }
}

__global__ void total(const float* losses, int64_t n, float* loss) {
  const double sum = sum_in_order(losses, n);
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

// Type, sizes and options of a call, and the layout of its scratch memory.
struct Sizes {
  int32_t type;
  int64_t tokens, vocabulary, width;
  int64_t row;  // logits from one token to the next: rows are aligned to 256 bytes, for wide accesses
  int64_t chunk;
  bool has_dw, has_z;
  float weight, z_loss;
  // Scratch: logits, then these, as far as the call has them. All of it begins where a library accepts it.
  uint64_t losses, squares, sums, library, bytes;  // squares: of lse, for the z loss

  explicit Sizes(const Call& c)
      : type(c.in[0].dtype),
        tokens(rows(c.in[0])),
        vocabulary(rows(c.in[1])),
        width(columns(c.in[0])),
        row((vocabulary + 63) / 64 * 64),
        has_dw(c.has_out(2) && c.integer_or("no_dw", 0) == 0),
        has_z(c.real_or("z_loss", 0) > 0),
        weight(static_cast<float>(c.real_or("weight", 1))),
        z_loss(static_cast<float>(c.real_or("z_loss", 0))) {
    // The gradient of w is read and written once for each chunk: with few tokens in one, that would be most of the
    // time.
    const auto given = static_cast<int64_t>(c.device.settings[library::loss_chunk_setting]);
    chunk = std::max<int64_t>(std::min(given ? given : library::usual_loss_chunk, tokens), 1);
    const auto after = [](uint64_t at, int64_t floats) {
      return at + (static_cast<uint64_t>(floats) * sizeof(float) + 255) / 256 * 256;
    };
    losses = after(0, chunk * row), squares = after(losses, tokens), sums = after(squares, has_z ? tokens : 0);
    // The sum over chunks is in f32, where dw is not.
    library = after(sums, has_dw && c.out[2].dtype != ENG_F32 ? vocabulary * width : 0);
    bytes = library + library::scratch(c, of_logits(chunk));
  }
  // Bytes of so many tokens of x.
  int64_t bytes_of(int64_t count) const { return count * width * common::dtype_size(type); }

  // The products for a chunk of `count` tokens.
  library::Product of_logits(int64_t count) const {
    library::Product p;
    p.type = type, p.result = ENG_F32, p.m = count, p.n = vocabulary, p.k = width, p.tb = true;
    p.c_stride = row;
    p.a_aligned = library::aligned_at(bytes_of(chunk));
    return p;
  }
  library::Product of_dx(int64_t count) const {
    library::Product p;
    p.type = p.result = type, p.m = count, p.n = width, p.k = vocabulary, p.a_stride = stride();
    p.c_aligned = library::aligned_at(bytes_of(chunk));
    return p;
  }
  library::Product of_dw(int64_t count, bool add) const {
    library::Product p;
    p.type = type, p.result = ENG_F32, p.m = vocabulary, p.n = width, p.k = count, p.ta = true, p.add = add;
    p.a_stride = stride(), p.b_aligned = library::aligned_at(bytes_of(chunk));
    return p;
  }
  // Elements from one token to the next of gradients of x's type in the place of logits.
  int64_t stride() const { return row * static_cast<int64_t>(sizeof(float) / common::dtype_size(type)); }
};

// Algorithms that the library chose for the products of a chunk of `count` tokens.
struct Chunk {
  product::Chosen logits, dx, dw, dw_more;  // dw: of the first chunk

  Chunk(const Call& c, void* device, const Sizes& s, int64_t count, bool gradient) {
    if (count == 0) return;
    const uint64_t scratch = s.bytes - s.library;
    logits = product::choose(device, s.of_logits(count), scratch);
    if (!gradient) return;
    dx = product::choose(device, s.of_dx(count), scratch);
    if (!s.has_dw) return;
    dw = product::choose(device, s.of_dw(count, c.out[2].dtype == ENG_F32 && c.has(4)), scratch);
    dw_more = product::choose(device, s.of_dw(count, true), scratch);
  }
  // True if the library computes all products of the gradient.
  bool multiplies(bool has_dw) const { return dx.algorithm && (!has_dw || (dw.algorithm && dw_more.algorithm)); }
};

// `weights`: the input with loss weights; `z`: the output of the z loss.
void need_inputs(const Call& c, size_t weights, size_t z) {
  need_optional(c, weights, ENG_F32, rows(c.in[0]), "loss weights");
  if (c.real_or("z_loss", 0) > 0) need_tensor(c.out[z], ENG_F32, 1, "z");
  need_float(c.in[0], "x"), need_type(c.in[1], c.in[0].dtype, "w"), need_type(c.in[2], ENG_I32, "labels");
  need(c.in[1].ndim == 2 && columns(c.in[1]) == columns(c.in[0]), "w must be (V, H), H the last dimension of x");
  need(rows(c.in[1]) > 0, "w has no rows");
  need_size(c.in[2], rows(c.in[0]), "labels"), need_tensor(c.out[0], ENG_F32, 1, "loss");
}

// Base of both ops: sizes and chunks of a call.
struct Chunks {
  Sizes sizes;
  Chunk whole, rest;
  Chunks(const Call& c, void* device, bool gradient)
      : sizes(c),
        whole(c, device, sizes, sizes.chunk, gradient),
        rest(c, device, sizes, sizes.tokens % sizes.chunk, gradient) {}
  static uint64_t workspace(const Call& c) { return Sizes(c).bytes; }

  // Calls then(chunk, first) for each chunk; with scalars, its logits have become gradients of type D. `z` receives the
  // second sum, if there is one.
  template <class D, class Then>
  void for_each(const Args& a, const float* scalars, const float* weights, float* z, cudaStream_t stream,
                Then then) const {
    const Sizes& s = sizes;
    char* const scratch = a.scratch<char>();
    float *const logits = a.scratch<float>(), *const losses = reinterpret_cast<float*>(scratch + s.losses);
    float* const squares = s.has_z ? reinterpret_cast<float*>(scratch + s.squares) : nullptr;
    for (int64_t first = 0; first < s.tokens; first += s.chunk) {
      const int64_t count = s.tokens - first < s.chunk ? s.tokens - first : s.chunk;
      const Chunk& chunk = count == s.chunk ? whole : rest;
      chunk.logits.run({a.in<char>(0) + s.bytes_of(first), a.in<void>(1), nullptr, nullptr, logits},
                       scratch + s.library, stream);
      const Weighting by{scalars, weights ? weights + first : nullptr, squares ? squares + first : nullptr, s.weight,
                         s.z_loss};
      launch<softmax<D>>(static_cast<unsigned>(count), block, sizeof(Scratch), stream, logits, a.in<int32_t>(2) + first,
                         by, losses + first, s.vocabulary, s.row);
      then(chunk, first);
    }
    launch<total>(1, order_block, sizeof(OrderTiles), stream, losses, s.tokens, a.out<float>(0));
    if (squares) launch<total>(1, order_block, sizeof(OrderTiles), stream, squares, s.tokens, z);
  }
};

struct CrossEntropy : Chunks {
  static constexpr const char* op = ENG_OP_CROSS_ENTROPY;
  static void check(const Call& c) {
    const size_t outputs = c.real_or("z_loss", 0) > 0 ? 2 : 1;
    need_counts(c, 3, 4, outputs, outputs), need_inputs(c, 3, 1);
  }
  CrossEntropy(const Call& c, void* device) : Chunks(c, device, false) {}
  void run(const Args& a, cudaStream_t stream) const {
    for_each<float>(a, nullptr, a.in<float>(3), a.out<float>(1), stream, [](const Chunk&, int64_t) {});
  }
};

struct CrossEntropyGrad : Chunks {
  static constexpr const char* op = ENG_OP_CROSS_ENTROPY_GRAD;
  static void check(const Call& c) {
    const bool dw = c.out.size() != 2 && c.integer_or("no_dw", 0) == 0;
    const size_t z = dw ? 3 : 2, outputs = c.real_or("z_loss", 0) > 0 ? z + 1 : z;
    need_counts(c, 4, 6, outputs, outputs), need_inputs(c, 5, z), need_scalars(c.in[3]);
    need_tensor(c.out[1], c.in[0].dtype, elements(c.in[0]), "dx");
    if (dw) need_size(c.out[2], elements(c.in[1]), "dw"), need_sum(c, c.in[0].dtype, 2, "dw", 4, "dw_acc");
  }
  CrossEntropyGrad(const Call& c, void* device) : Chunks(c, device, true) {}

  // A library multiplies matrices of one type: it gets the gradients of logits rounded to that of x, which own threads
  // do not need.
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    const Sizes& s = sizes;
    char* const scratch = a.scratch<char>();
    const bool in_f32 = !s.has_dw || c.out[2].dtype == ENG_F32;  // dw
    float* const dw = in_f32 ? a.out<float>(2) : reinterpret_cast<float*>(scratch + s.sums);
    const bool has_rest = s.tokens % s.chunk != 0;
    const bool library = whole.multiplies(s.has_dw) && (!has_rest || rest.multiplies(s.has_dw));
    const auto multiply = [&](const product::Chosen& chosen, const library::Operands& o) {
      if (library || s.type == ENG_F32) return chosen.run(o, scratch + s.library, stream);
      library::Product p = chosen.p;
      p.a_stride = s.row;  // gradients are f32
      by_types(p.type, p.result, [&]<class T, class C>(T, C) { product::by_threads<float, T, C>(p, o, stream); });
    };
    const auto then = [&](const Chunk& chunk, int64_t first) {
      multiply(chunk.dx, {scratch, a.in<void>(1), nullptr, nullptr, a.out<char>(1) + s.bytes_of(first)});
      if (!s.has_dw) return;
      const float* acc = first ? dw : in_f32 ? a.in<float>(4) : nullptr;
      multiply(first ? chunk.dw_more : chunk.dw, {scratch, a.in<char>(0) + s.bytes_of(first), acc, nullptr, dw});
    };
    by_type(library ? s.type : int32_t{ENG_F32}, [&]<class D>(D) {
      for_each<D>(a, a.in<float>(3), a.in<float>(5), a.out<float>(s.has_dw ? 3 : 2), stream, then);
    });
    if (in_f32) return;
    by_type(s.type, [&]<class S>(S) {
      launch_each(s.vocabulary * s.width, stream, StoreOf<S>{dw, a.in<S>(4), a.out<S>(2)});
    });
  }
};

}  // namespace cross_entropy

void add_cross_entropy(List& list) {
  list.insert(list.end(), {&kernel<cross_entropy::CrossEntropy>, &kernel<cross_entropy::CrossEntropyGrad>});
}

}  // namespace cuda
