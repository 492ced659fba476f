// SPDX-License-Identifier: Apache-2.0
// Causal attention, also within a window and with capped scores: in tiles where a tiling fits (attention.hpp). Else in
// f32 by plain threads, as the step of a running sequence always is: One block for each query or key; the scores of one
// row lie in shared memory. No atomics: dk and dv are summed by query heads, then by queries in their order.
#include "attention.hpp"

#include "library.hpp"
#include "list.hpp"

namespace cuda {
namespace attention {

constexpr unsigned block = 128;
constexpr int64_t shared_most = 48 << 10;  // bytes that every launch may have
constexpr int64_t longest = (shared_most - 256) / 8;

template <class T>
__device__ __forceinline__ float dot(const T* x, const T* y, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum = fmaf(to_f32(x[i]), to_f32(y[i]), sum);
  return sum;
}

// Grid: (T, heads, B). `counters`: of a running sequence, may be null; lse may be null.
template <class T>
__global__ void forward(Heads s, Forward<T> of, const int64_t* counters) {
  float* const scratch = &shared<float>();
  const int64_t i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, kv = h / (s.heads / s.kv_heads);
  const int64_t last = i + (counters ? counters[ENG_C_POSITION] : 0), ahead = last - s.seen() + 1;
  const int64_t first = of.starts ? of.starts[b * s.length + i] : ahead > 0 ? ahead : 0;
  float* const p = scratch + block / warp;  // of keys from `first` on
  const T* const mine = of.q + s.query(b, i, h);
  float top = -INFINITY, sum = 0;
  for (int64_t j = first + threadIdx.x; j <= last; j += block)
    top = fmaxf(top, p[j - first] = s.score(dot(mine, of.k + s.key(b, j, kv), s.size)));
  top = max_of_block(top, scratch);
  for (int64_t j = first + threadIdx.x; j <= last; j += block) sum += p[j - first] = expf(p[j - first] - top);
  sum = sum_of_block(sum, scratch);
  for (int64_t d = threadIdx.x; d < s.size; d += block) {
    float out = 0;
    for (int64_t j = first; j <= last; ++j) out = fmaf(p[j - first], to_f32(of.v[s.key(b, j, kv) + d]), out);
    from_f32(out / sum, of.o[s.query(b, i, h) + d]);
  }
  if (of.lse && threadIdx.x == 0) of.lse[s.row(b, i, h)] = top + logf(sum);
}

// P = exp(score(q k^T) - lse);  dS = slope P (do v^T - delta), delta = rowsum(do o);  dq = dS k.
template <class T>
__global__ void grad_of_query(Heads s, Grad<T> of) {
  float* const scratch = &shared<float>();
  const int64_t i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, kv = h / (s.heads / s.kv_heads), at = s.query(b, i, h);
  const int64_t first = of.starts ? of.starts[b * s.length + i] : 0;
  float* const ds = scratch + block / warp;  // of keys from `first` on
  float part = 0;
  for (int64_t d = threadIdx.x; d < s.size; d += block)
    part = fmaf(to_f32(of.dout[at + d]), to_f32(of.o[at + d]), part);
  const float delta = sum_of_block(part, scratch);
  if (threadIdx.x == 0) of.deltas[s.row(b, i, h)] = delta;
  for (int64_t j = first + threadIdx.x; j <= i; j += block) {
    const float score = s.score(dot(of.q + at, of.k + s.key(b, j, kv), s.size));
    const float p = expf(score - of.lse[s.row(b, i, h)]);
    ds[j - first] = s.slope(score) * p * (dot(of.dout + at, of.v + s.key(b, j, kv), s.size) - delta);
  }
  __syncthreads();
  for (int64_t d = threadIdx.x; d < s.size; d += block) {
    float sum = 0;
    for (int64_t j = first; j <= i; ++j) sum = fmaf(ds[j - first], to_f32(of.k[s.key(b, j, kv) + d]), sum);
    from_f32(sum, of.dq[at + d]);
  }
}

// dk = dS^T q, dv = P^T do, over the query heads of a key head. Grid: (T, kv_heads, B). Each thread has one column, or
// several if a head has more than `block`.
template <class T>
__global__ void grad_of_key(Heads s, Grad<T> of) {
  const int64_t j = blockIdx.x, kv = blockIdx.y, b = blockIdx.z, group = s.heads / s.kv_heads, at = s.key(b, j, kv);
  const int64_t end = of.ends ? of.ends[b * s.length + j] : s.length;
  float* const p = &shared<float>() + block / warp;  // of queries from j on
  float* const ds = p + s.seen();
  for (int64_t first = 0; first < s.size; first += block) {
    const int64_t d = first + threadIdx.x;
    float key = 0, value = 0;
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      __syncthreads();
      for (int64_t i = j + threadIdx.x; i < end; i += block) {
        const int64_t from = s.query(b, i, h), row = s.row(b, i, h);
        const float score = s.score(dot(of.q + from, of.k + at, s.size));
        p[i - j] = expf(score - of.lse[row]);
        ds[i - j] = s.slope(score) * p[i - j] * (dot(of.dout + from, of.v + at, s.size) - of.deltas[row]);
      }
      __syncthreads();
      if (d < s.size)
        for (int64_t i = j; i < end; ++i) {
          const int64_t from = s.query(b, i, h) + d;
          key = fmaf(ds[i - j], to_f32(of.q[from]), key), value = fmaf(p[i - j], to_f32(of.dout[from]), value);
        }
    }
    if (d < s.size) from_f32(key, of.dk[at + d]), from_f32(value, of.dv[at + d]);
  }
}

// Row t of the new k and v goes to row p + t of the caches.
template <class T>
struct CacheOf {
  static constexpr int width = 1;
  const T *k, *v;
  T *k_cache, *v_cache;
  const int64_t* counters;
  int64_t fresh, all;  // elements of a sequence: new ones, and in the cache
  int64_t columns;
  template <int>
  __device__ void at(int64_t i) const {
    const int64_t to = i / fresh * all + counters[ENG_C_POSITION] * columns + i % fresh;
    k_cache[to] = k[i], v_cache[to] = v[i];
  }
};

// ---- ops -------------------------------------------------------------------------------------------------------

// `more`: what the message adds.
void need_plain(const Heads& s, const char* more = "") {
  if (s.seen() > longest)
    throw Error{ENG_UNSUPPORTED, "this kernel attends to at most " + std::to_string(longest) + " positions, not " +
                                     std::to_string(s.seen()) + more};
  if (s.heads > 65535 || s.batch > 65535) throw Error{ENG_UNSUPPORTED, "more than 65535 heads or sequences"};
}
// q is input `at`, k and v follow; `cache`: the input with the keys, if these are not they.
Heads heads_of(const Call& c, size_t at, size_t cache) {
  const int64_t heads = c.integer("heads"), kv_heads = c.integer("kv_heads");
  for (size_t k : {at, at + 1, at + 2, cache})
    need_float(c.in[k], "q, k or v"), need_type(c.in[k], c.in[at].dtype, "k or v"),
        need(c.in[k].ndim == 3, "q, k and v must be (B, T, heads*D)");
  need(heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && columns(c.in[at]) % heads == 0,
       "heads must be a multiple of kv_heads, and divide the columns of q");
  const int64_t window = c.integer_or("window", 0), all = c.in[cache].dims[1];
  const double scale = c.real("scale"), cap = c.real_or("softcap", 0), within = cap > 0 ? scale / cap : 0;
  need(window >= 0, "window must be at least 0");
  need(cap >= 0 && cap <= 3e38, "softcap must be at least 0, and finite");
  const int64_t *const dims = c.in[at].dims, size = dims[2] / heads, seen = window < all ? window : 0;
  const Heads s{dims[0], dims[1], heads, kv_heads, size, all, float(scale), seen, float(cap), float(within)};
  for (size_t k : {at + 1, at + 2}) need_size(c.in[k], s.batch * s.length * kv_heads * s.size, "k or v");
  need_size(c.in[cache], s.batch * s.keys * kv_heads * s.size, "the keys");
  return s;
}
// The tiling of a call, or null: plain threads can serve it. Throws if they cannot either.
const Tiling* choose(const Heads& s, int32_t dtype) {
  if (const Tiling* t = tiling_of(s, dtype)) return t;
  need_plain(s,
             "; more need a scale above 0, and heads of a multiple of 8 elements, at most 256, or in f32 of 4, at most "
             "128, without a cap");
  return nullptr;
}
// Shared memory for what sums of a block need and `n` rows of scores, of which the gradient has a second one.
size_t room(const Heads& s, int64_t n) {
  return static_cast<size_t>(block / warp + n * s.seen()) * sizeof(float);
}
dim3 grid(const Heads& s, int64_t heads) {
  return dim3(static_cast<unsigned>(s.length), static_cast<unsigned>(heads), static_cast<unsigned>(s.batch));
}

template <bool windowed>
struct Attention {
  static constexpr const char* op = windowed ? ENG_OP_ATTENTION_WINDOW : ENG_OP_ATTENTION;
  static constexpr size_t segments = 3;
  int32_t type;
  Heads s;
  const Tiling* tiling;
  static void check(const Call& c) {
    need_counts(c, segments, segments + 1, 2, 2);
    const Heads s = heads_of(c, 0, 1);
    need_segments(c, segments, s.batch * s.length);
    choose(s, c.in[0].dtype);
    need_type(c.out[0], c.in[0].dtype, "o"), need_size(c.out[0], elements(c.in[0]), "o");
    need_type(c.out[1], ENG_F32, "lse"), need_size(c.out[1], s.batch * s.heads * s.length, "lse");
  }
  static uint64_t workspace(const Call& c) {  // the first key of each query
    const Heads s = heads_of(c, 0, 1);
    return c.has(segments) || s.bounded() ? static_cast<uint64_t>(s.batch * s.length) * sizeof(int32_t) : 0;
  }
  explicit Attention(const Call& c) : type(c.in[0].dtype), s(heads_of(c, 0, 1)), tiling(choose(s, type)) {}
  void run(const Args& a, cudaStream_t stream) const {
    int32_t* const starts = a.in<int32_t>(segments) || s.bounded() ? a.scratch<int32_t>() : nullptr;
    if (starts) find_bounds_of(s, a.in<int32_t>(segments), starts, nullptr, stream);
    by_type(type, [&]<class T>(T) {
      const Forward<T> p{a.in<T>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0), a.out<float>(1), starts};
      if (tiling) return forward_tiled(s, *tiling, p, stream);
      launch<forward<T>>(grid(s, s.heads), block, room(s, 1), stream, s, p, nullptr);
    });
  }
};

template <bool windowed>
struct AttentionGrad {
  static constexpr const char* op = windowed ? ENG_OP_ATTENTION_WINDOW_GRAD : ENG_OP_ATTENTION_GRAD;
  static constexpr size_t segments = 6;
  int32_t type;
  Heads s;
  const Tiling* tiling;
  bool wgmma;
  static void check(const Call& c) {
    need_counts(c, segments, segments + 1, 3, 3);
    const Heads s = heads_of(c, 1, 2);
    need_segments(c, segments, s.batch * s.length);
    choose(s, c.in[1].dtype);
    for (size_t k : {0, 4})
      need_type(c.in[k], c.in[1].dtype, "do or o"), need_size(c.in[k], elements(c.in[1]), "do or o");
    need_type(c.in[5], ENG_F32, "lse"), need_size(c.in[5], s.batch * s.heads * s.length, "lse");
    for (size_t k : {0, 1, 2})
      need_type(c.out[k], c.in[1].dtype, "a gradient"), need_size(c.out[k], elements(c.in[1 + k]), "a gradient");
  }
  // Deltas; the first key of each query, and the end of the queries of each key.
  static uint64_t workspace(const Call& c) {
    const Heads s = heads_of(c, 1, 2);
    const int64_t bounds = c.has(segments) || s.bounded() ? 2 * s.batch * s.length : 0;
    return static_cast<uint64_t>(s.batch * s.heads * s.length) * sizeof(float) +
           static_cast<uint64_t>(bounds) * sizeof(int32_t);
  }
  explicit AttentionGrad(const Call& c) : type(c.in[1].dtype), s(heads_of(c, 1, 2)), tiling(choose(s, type)) {
    wgmma = c.device.settings[library::attention_setting] % 4 == library::own_wgmma && has_wgmma(c);
  }
  void run(const Args& a, cudaStream_t stream) const {
    const int64_t rows = s.batch * s.length;
    float* const deltas = a.scratch<float>();
    int32_t *starts = nullptr, *ends = nullptr;
    const int32_t* const of = a.in<int32_t>(segments);
    if (of || s.bounded()) {
      starts = reinterpret_cast<int32_t*>(deltas + rows * s.heads), ends = starts + rows;
      find_bounds_of(s, of, starts, ends, stream);
    }
    by_type(type, [&]<class T>(T) {
      const Grad<T> p{a.in<T>(0), a.in<T>(1),  a.in<T>(2),  a.in<T>(3),  a.in<T>(4), a.in<float>(5),
                      deltas,     a.out<T>(0), a.out<T>(1), a.out<T>(2), starts,     ends};
      if (tiling) grad_query_tiled(s, *tiling, p, wgmma, stream);
      if constexpr (sizeof(T) == 2)
        if (wgmma) return grad_wgmma(s, p, stream);
      if (tiling) return grad_key_tiled(s, *tiling, p, stream);
      launch<grad_of_query<T>>(grid(s, s.heads), block, room(s, 1), stream, s, p);
      launch<grad_of_key<T>>(grid(s, s.kv_heads), block, room(s, 2), stream, s, p);
    });
  }
};

template <bool windowed>
struct AttentionStep {
  static constexpr const char* op = windowed ? ENG_OP_ATTENTION_WINDOW_STEP : ENG_OP_ATTENTION_STEP;
  int32_t type;
  Heads s;
  int64_t n;
  static void check(const Call& c) {
    need_counts(c, 6, 6, 3, 3);
    need_plain(heads_of(c, 0, 3));
    need_type(c.in[5], ENG_I64, "counters"), need_size(c.in[5], ENG_C_COUNT, "counters");
    need_type(c.in[4], c.in[0].dtype, "v_cache"), need_size(c.in[4], elements(c.in[3]), "v_cache");
    need_size(c.out[0], elements(c.in[0]), "o");
    for (size_t k : {1, 2}) need_size(c.out[k], elements(c.in[3]), "a cache");
    for (const eng_desc& d : c.out) need_type(d, c.in[0].dtype, "o or a cache");
  }
  explicit AttentionStep(const Call& c) : type(c.in[0].dtype), s(heads_of(c, 0, 3)), n(elements(c.in[1])) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      const int64_t width = s.kv_heads * s.size;
      for (size_t k : {0, 1})
        if (a.out<T>(1 + k) != a.in<T>(3 + k)) throw Error{ENG_UNSUPPORTED, "the caches are written in place only"};
      launch_each(n, stream,
                  CacheOf<T>{a.in<T>(1), a.in<T>(2), a.out<T>(1), a.out<T>(2), a.in<int64_t>(5), s.length * width,
                             s.keys * width, width});
      const Forward<T> p{a.in<T>(0), a.out<T>(1), a.out<T>(2), a.out<T>(0), nullptr, nullptr};
      launch<forward<T>>(grid(s, s.heads), block, room(s, 1), stream, s, p, a.in<int64_t>(5));
    });
  }
};

}  // namespace attention

bool has_wgmma(const Call& c) {
  const attention::Heads s = attention::heads_of(c, 1, 2);
  const bool fits = c.device.arch == 90 && c.in[1].dtype != ENG_F32 && (s.size == 64 || s.size == 128) && s.cap == 0;
  return fits && attention::tiling_of(s, c.in[1].dtype);
}

void add_attention(List& list) {
  using namespace attention;
  list.insert(list.end(), {&kernel<Attention<false>>, &kernel<AttentionGrad<false>>, &kernel<AttentionStep<false>>,
                           &kernel<Attention<true>>, &kernel<AttentionGrad<true>>, &kernel<AttentionStep<true>>});
}

}  // namespace cuda
