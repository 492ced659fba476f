// SPDX-License-Identifier: Apache-2.0
// Linear and what is made of a softmax of its outputs, in one op: the logits of some tokens exist at a time, never
// those of all.
#pragma once

#include <algorithm>

#include "../../common/cuda/lanes.cuh"
#include "product.cuh"

namespace cuda {
namespace cross_entropy {

constexpr unsigned block = 256;
struct Scratch {
  float warps[block / warp];
};
constexpr int32_t ignored = -100;

// Results that are wanted of each token's logits. Pointers are to the numbers of all tokens, or null.
struct Asked {
  float* losses = nullptr;           // weighted; or the label's log-probabilities
  float* squares = nullptr;          // of lse, weighted, for the z loss
  bool logprobs = false;             // instead of losses
  const float* weights = nullptr;    // of losses
  const float* scalars = nullptr;    // of the step: the gradient of losses is wanted, weighted by `loss` and `z`
  const float* dlogprobs = nullptr;  // the gradient of log-probabilities is wanted
  float loss = 0, z = 0, cap = 0;    // of the call; logits are cap * tanh(x / cap), or x if cap is 0
  // The ids from `own` on are a part of `whole`: losses become lse, squares the label's logits, unless lse of the whole
  // are given, for the gradient.
  int64_t own = 0, whole = 0;
  const float* lse = nullptr;

  Asked from(int64_t first) const {
    Asked out = *this;
    for (float** p : {&out.losses, &out.squares})
      if (*p) *p += first;
    for (const float** p : {&out.weights, &out.dlogprobs, &out.lse})
      if (*p) *p += first;
    return out;
  }
};

// One block for each token: its loss or log-probability, and the gradient of its logits in their place. Gradients of 16
// bits take the first half of the place. From one row to the next are `stride` logits: whole vectors. Of each, the
// first `all` have a gradient, which is 0 behind the vocabulary. `part`: these are logits of a part of a vocabulary.
template <class D, bool capped, bool part>
__global__ void softmax(float* logits, const int32_t* labels, Asked by, int64_t vocabulary, int64_t all,
                        int64_t stride) {
  constexpr int wide = widest<float>;
  float* const scratch = shared<Scratch>().warps;
  float* const row = logits + static_cast<int64_t>(blockIdx.x) * stride;
  const int32_t label = labels[blockIdx.x];
  const bool counts = label >= 0 && label < (part ? by.whole : vocabulary);
  const int64_t place = part ? label - by.own : label;  // in the row, if it is there
  const bool here = part ? counts && place >= 0 && place < vocabulary : counts;
  // The tanh of a capped logit, whose products keep their place; what is behind the vocabulary stays.
  const auto squash = [&](float& x) {
    if (capped && x != -INFINITY) x = tanhf(x / by.cap);
  };
  const float factor = capped ? by.cap : 1.0f;
  float of_label = here ? row[place] : 0.0f;
  squash(of_label), of_label *= factor;
  constexpr int64_t step = int64_t{block} * wide;
  // The last vector may end behind the vocabulary: the thread that reads it makes its rest count for nothing.
  if (threadIdx.x == vocabulary / wide % block)
    for (int64_t v = vocabulary; v % wide; ++v) row[v] = -INFINITY;
  float lse = part && by.lse ? by.lse[blockIdx.x] : 0.0f;
  if (!part || !by.lse) {
    // The sum is that of exp(x - top), top as far as this thread has seen.
    float top = -INFINITY, sum = 0;
    for (int64_t v = static_cast<int64_t>(threadIdx.x) * wide; v < vocabulary; v += step) {
      float x[wide], most = top, more = 0;
      load(row + v, x);
      if constexpr (capped)
        for (int k = 0; k < wide; ++k) squash(x[k]), x[k] *= factor;
      for (int k = 0; k < wide; ++k) most = fmaxf(most, x[k]);
      for (int k = 0; k < wide; ++k) more += expf(x[k] - most);
      if (most > top) sum *= expf(top - most);
      top = most, sum += more;
    }
    const float most = max_of_block(top, scratch);
    if (most > top) sum *= expf(top - most);
    lse = most + logf(sum_of_block(sum, scratch));
  }
  const float weight = by.weights ? by.weights[blockIdx.x] : 1.0f;
  // A label that is none makes the loss not a number: the run stops at it.
  if (threadIdx.x == 0) {
    const float value = part ? lse : by.logprobs ? of_label - lse : weight * (lse - of_label);
    if (by.losses) by.losses[blockIdx.x] = counts ? value : label == ignored ? 0.0f : NAN;
    if (by.squares) by.squares[blockIdx.x] = counts ? (part ? of_label : weight * lse * lse) : 0.0f;
  }
  if (!by.scalars && !by.dlogprobs) return;
  const float of_all = by.scalars ? by.scalars[ENG_S_INV_TOKENS] * by.scalars[ENG_S_LOSS_SCALE] : 0.0f;
  const float scale = by.dlogprobs ? -by.dlogprobs[blockIdx.x] : of_all * by.loss * weight;
  const float of_z = by.z > 0 ? 2.0f * (of_all * by.z * weight) * lse : 0.0f;
  D* const out = reinterpret_cast<D*>(row);
  for (int64_t from = 0; from < all; from += step) {
    const int64_t v = from + static_cast<int64_t>(threadIdx.x) * wide;
    float x[wide] = {};
    if (v < vocabulary) load(row + v, x);
    if constexpr (sizeof(D) < sizeof(float)) __syncthreads();  // what is written now, others have read
    if (v >= all) continue;
    const bool some = counts && v < vocabulary;
    for (int k = 0; k < wide; ++k) {
      squash(x[k]);
      const float p = expf(capped ? factor * x[k] - lse : x[k] - lse), slope = fmaxf(1.0f - x[k] * x[k], 0.0f);
      const float d = scale * (p - (v + k == place ? 1.0f : 0.0f)) + of_z * p;
      x[k] = some ? (capped ? d * slope : d) : 0.0f;
    }
    store(out + v, x);
  }
}

template <class T>
__global__ void __launch_bounds__(lanes_block) total(const T* losses, int64_t n, float* loss) {
  const double sum = sum_in_lanes(losses, n);
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
  int64_t all;  // rows of w, and logits of a token: those behind the vocabulary only pad them
  int64_t row;  // logits from one token to the next: rows are aligned to 256 bytes, for wide accesses
  int64_t chunk;
  bool has_dw, has_z;
  float weight, z_loss, cap;
  // Scratch: logits, then these, as far as the call has them. All of it begins where a library accepts it.
  uint64_t losses, squares, sums, library, bytes;  // squares: of lse, for the z loss

  // dw: the output with the gradient of w, if the call has one.
  Sizes(const Call& c, size_t dw)
      : type(c.in[0].dtype),
        tokens(rows(c.in[0])),
        vocabulary(c.integer_or("vocabulary", rows(c.in[1]))),
        width(columns(c.in[0])),
        all(rows(c.in[1])),
        row((all + 63) / 64 * 64),
        has_dw(c.has_out(dw) && c.integer_or("no_dw", 0) == 0),
        has_z(c.real_or("z_loss", 0) > 0),
        weight(static_cast<float>(c.real_or("weight", 1))),
        z_loss(static_cast<float>(c.real_or("z_loss", 0))),
        cap(static_cast<float>(c.real_or("softcap", 0))) {
    // The gradient of w is read and written once for each chunk: with few tokens in one, that would be most of the
    // time.
    const auto given = static_cast<int64_t>(c.device.settings[library::loss_chunk_setting]);
    chunk = std::max<int64_t>(std::min(given ? given : library::usual_loss_chunk, tokens), 1);
    const auto after = [](uint64_t at, int64_t floats) {
      return at + (static_cast<uint64_t>(floats) * sizeof(float) + 255) / 256 * 256;
    };
    losses = after(0, chunk * row), squares = after(losses, tokens), sums = after(squares, has_z ? tokens : 0);
    // The sum over chunks is in f32, where dw is not.
    library = after(sums, has_dw && c.out[dw].dtype != ENG_F32 ? all * width : 0);
    bytes = library + library::scratch(c, of_logits(chunk));
  }
  // Bytes of so many tokens of x.
  int64_t bytes_of(int64_t count) const { return count * width * common::dtype_size(type); }

  // The products for a chunk of `count` tokens.
  library::Product of_logits(int64_t count) const {
    library::Product p;
    p.type = type, p.result = ENG_F32, p.m = count, p.n = all, p.k = width, p.tb = true;
    p.c_stride = row;
    p.a_aligned = library::aligned_at(bytes_of(chunk));
    return p;
  }
  library::Product of_dx(int64_t count) const {
    library::Product p;
    p.type = p.result = type, p.m = count, p.n = width, p.k = all, p.a_stride = stride();
    p.c_aligned = library::aligned_at(bytes_of(chunk));
    return p;
  }
  library::Product of_dw(int64_t count, bool add) const {
    library::Product p;
    p.type = type, p.result = ENG_F32, p.m = all, p.n = width, p.k = count, p.ta = true, p.add = add;
    p.a_stride = stride(), p.b_aligned = library::aligned_at(bytes_of(chunk));
    return p;
  }
  // Elements from one token to the next of gradients of x's type in the place of logits.
  int64_t stride() const { return row * static_cast<int64_t>(sizeof(float) / common::dtype_size(type)); }
};

// Algorithms that the library chose for the products of a chunk of `count` tokens.
struct Chunk {
  product::Chosen logits, dx, dw, dw_more;  // dw: of the first chunk

  // add: the first chunk is added to what there is.
  Chunk(void* device, const Sizes& s, int64_t count, bool gradient, bool add) {
    if (count == 0) return;
    const uint64_t scratch = s.bytes - s.library;
    logits = product::choose(device, s.of_logits(count), scratch);
    if (!gradient) return;
    dx = product::choose(device, s.of_dx(count), scratch);
    if (!s.has_dw) return;
    dw = product::choose(device, s.of_dw(count, add), scratch);
    dw_more = product::choose(device, s.of_dw(count, true), scratch);
  }
  // True if the library computes all products of the gradient.
  bool multiplies(bool has_dw) const { return dx.algorithm && (!has_dw || (dw.algorithm && dw_more.algorithm)); }
};

inline void need_head(const Call& c) {
  need_float(c.in[0], "x"), need_type(c.in[1], c.in[0].dtype, "w"), need_type(c.in[2], ENG_I32, "labels");
  need(c.in[1].ndim == 2 && columns(c.in[1]) == columns(c.in[0]), "w must be (V, H), H the last dimension of x");
  need(rows(c.in[1]) > 0, "w has no rows");
  const int64_t vocabulary = c.integer_or("vocabulary", rows(c.in[1]));
  need(vocabulary > 0 && vocabulary <= rows(c.in[1]), "vocabulary must be 1 to the number of rows of w");
  need_size(c.in[2], rows(c.in[0]), "labels");
}
// `dx`: the output with the gradient of x; that of w, if there is one, is the next. `acc`: the input added to it.
inline void need_gradients(const Call& c, size_t dx, bool dw, size_t acc = 4) {
  need_tensor(c.out[dx], c.in[0].dtype, elements(c.in[0]), "dx");
  if (!dw) return;
  need_size(c.out[dx + 1], elements(c.in[1]), "dw"), need_sum(c, c.in[0].dtype, dx + 1, "dw", acc, "dw_acc");
}

// Base of the ops. dx: the output with the gradient of x; that of w is the next. acc: the input added to that.
template <size_t dx, bool part = false, size_t acc = 4>
struct Chunks {
  static constexpr size_t dw = dx + 1;
  Sizes sizes;
  Chunk whole, rest;
  Chunks(const Call& c, void* device, bool gradient) : Chunks(c, device, gradient, Sizes(c, dw)) {}
  Chunks(const Call& c, void* device, bool gradient, const Sizes& s)
      : sizes(s),
        whole(device, s, s.chunk, gradient, adds(c, s)),
        rest(device, s, s.tokens % s.chunk, gradient, adds(c, s)) {}
  static bool adds(const Call& c, const Sizes& s) { return s.has_dw && c.out[dw].dtype == ENG_F32 && c.has(acc); }
  static uint64_t workspace(const Call& c) { return Sizes(c, dw).bytes; }

  // Scratch for a number of each token.
  float* losses(const Args& a) const { return reinterpret_cast<float*>(a.scratch<char>() + sizes.losses); }
  float* squares(const Args& a) const {
    return sizes.has_z ? reinterpret_cast<float*>(a.scratch<char>() + sizes.squares) : nullptr;
  }
  // The loss, and the sum `z` of the squares if there are any.
  void add_up(const Args& a, float* z, cudaStream_t stream) const {
    launch<total<float>>(1, lanes_block, sizeof(Lanes), stream, losses(a), sizes.tokens, a.out<float>(0));
    if (sizes.has_z) launch<total<float>>(1, lanes_block, sizeof(Lanes), stream, squares(a), sizes.tokens, z);
  }

  // Calls then(chunk, first) for each chunk, whose logits have become gradients of type D, if these are asked for.
  template <class D, class Then>
  void for_each(const Args& a, Asked asked, cudaStream_t stream, Then then) const {
    const Sizes& s = sizes;
    asked.loss = s.weight, asked.z = s.z_loss, asked.cap = s.cap;
    float* const logits = a.scratch<float>();
    for (int64_t first = 0; first < s.tokens; first += s.chunk) {
      const int64_t count = s.tokens - first < s.chunk ? s.tokens - first : s.chunk;
      const Chunk& chunk = count == s.chunk ? whole : rest;
      chunk.logits.run({a.in<char>(0) + s.bytes_of(first), a.in<void>(1), nullptr, nullptr, logits},
                       a.scratch<char>() + s.library, stream);
      const auto go = [&]<bool capped>() {
        launch<softmax<D, capped, part>>(static_cast<unsigned>(count), block, sizeof(Scratch), stream, logits,
                                         a.in<int32_t>(2) + first, asked.from(first), s.vocabulary, s.all, s.row);
      };
      s.cap != 0 ? go.template operator()<true>() : go.template operator()<false>();
      then(chunk, first);
    }
  }
  void values(const Args& a, const Asked& asked, cudaStream_t stream) const {
    for_each<float>(a, asked, stream, [](const Chunk&, int64_t) {});
  }
  // A library multiplies matrices of one type: it gets the gradients of logits rounded to that of x, which own threads
  // do not need.
  void gradients(const Call& c, const Args& a, const Asked& asked, cudaStream_t stream) const {
    const Sizes& s = sizes;
    char* const scratch = a.scratch<char>();
    const bool in_f32 = !s.has_dw || c.out[dw].dtype == ENG_F32;
    float* const sums = in_f32 ? a.out<float>(dw) : reinterpret_cast<float*>(scratch + s.sums);
    const bool has_rest = s.tokens % s.chunk != 0;
    const bool library = whole.multiplies(s.has_dw) && (!has_rest || rest.multiplies(s.has_dw));
    const auto multiply = [&](const product::Chosen& chosen, const library::Operands& o) {
      if (library || s.type == ENG_F32) return chosen.run(o, scratch + s.library, stream);
      library::Product p = chosen.p;
      p.a_stride = s.row;  // gradients are f32
      by_types(p.type, p.result, [&]<class T, class C>(T, C) { product::by_threads<float, T, C>(p, o, stream); });
    };
    const auto then = [&](const Chunk& chunk, int64_t first) {
      multiply(chunk.dx, {scratch, a.in<void>(1), nullptr, nullptr, a.out<char>(dx) + s.bytes_of(first)});
      if (!s.has_dw) return;
      const float* before = first ? sums : in_f32 ? a.in<float>(acc) : nullptr;
      multiply(first ? chunk.dw_more : chunk.dw, {scratch, a.in<char>(0) + s.bytes_of(first), before, nullptr, sums});
    };
    by_type(library ? s.type : int32_t{ENG_F32}, [&]<class D>(D) { for_each<D>(a, asked, stream, then); });
    if (in_f32) return;
    by_type(s.type, [&]<class S>(S) {
      launch_each(s.all * s.width, stream, StoreOf<S>{sums, a.in<S>(acc), a.out<S>(dw)});
    });
  }
};

}  // namespace cross_entropy
}  // namespace cuda
