// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm with the sum of the residual, and their gradients. Each value is read from memory once: rows
// are kept in shared memory, where each thread reads only what itself has put there. Gradients of weights are summed by
// rows in their order, within slices of rows, and then over the slices: the same bits in every run.
#include "../../common/cuda/glue.hpp"
#include "../../common/cuda/tensor.cuh"
#include "column_sums.cuh"
#include "list.hpp"

namespace cuda {
namespace norm {

// A block of (threads, 1) takes one row at a time. One of (8, 16 or 32 lanes, rows) takes rows of at most so many
// vectors, each by its lanes alone, without a barrier.
constexpr unsigned most_threads = 512;
struct Scratch {
  float warps[most_threads / warp];
};
constexpr size_t most_bytes = 98 << 10;  // of shared memory: what every GPU has
// Rooms of rows begin at multiples of the widest vector.
constexpr int64_t line_up(int64_t bytes) {
  return (bytes + 31) / 32 * 32;
}

dim3 block_for(int64_t vectors, int64_t most) {
  unsigned lanes = 8;
  while (lanes < warp && lanes < vectors) lanes *= 2;
  if (vectors <= lanes) return {lanes, most_threads / lanes};
  const int64_t threads = (vectors + warp - 1) / warp * warp;
  return static_cast<unsigned>(threads < most ? threads : most);
}
// W elements at once. Kernels for single ones are for rows of no whole vectors, and for rows too long for shared
// memory: they keep no row, and read it again.
template <int W>
inline constexpr bool keeps = W > 1;

// The room behind the scratch, for the row of these threads.
__device__ __forceinline__ unsigned char* room_of(int64_t bytes, unsigned y) {
  return reinterpret_cast<unsigned char*>(&shared<Scratch>() + 1) + y * bytes;
}
// Over the threads of a row.
__device__ __forceinline__ float sum_of_row(float x) {
  if (blockDim.x > warp) return sum_of_block(x, shared<Scratch>().warps);
  for (unsigned by = blockDim.x / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, static_cast<int>(by));
  return x;
}

// X: type of x, residual and s. Y: of w and y. `mean`: LayerNorm.
template <class X, class Y>
struct Forward {
  const X *x, *residual;  // residual: may be null
  const Y *w, *bias;      // may be null
  Y* y;
  float* stats;  // rstd, or mean and rstd, of each row
  X* s;          // null without a residual
  int64_t rows, columns;
  float eps;
  bool mean;
  int64_t room = 0;  // bytes, for each row of a block
};

// s may be x or the residual: each thread reads what it is about to overwrite.
template <int W, class X, class Y>
__global__ void forward(Forward<X, Y> f) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, at = row * f.columns,
                begin = static_cast<int64_t>(threadIdx.x) * W, step = static_cast<int64_t>(blockDim.x) * W,
                end = row < f.rows ? f.columns : 0;  // lanes without a row go along
  X* const kept = reinterpret_cast<X*>(room_of(f.room, threadIdx.y));
  float mean = 0, sum = 0, x[W], y[W];
  for (int64_t i = begin; i < end; i += step) {
    Pack<X, W> pack = load_pack<W>(f.x + at + i);  // not rounded again
    if (f.residual) {
      load<W, Nan::any>(f.residual + at + i, y);
      for (int k = 0; k < W; ++k) from_f32<Nan::any>(to_f32<Nan::any>(pack.at[k]) + y[k], pack.at[k]);
      store_pack(f.s + at + i, pack);
    }
    if constexpr (keeps<W>) store_pack(kept + i, pack);
    for (int k = 0; k < W; ++k) x[k] = to_f32<Nan::any>(pack.at[k]);
    if (f.mean)
      for (int k = 0; k < W; ++k) sum += x[k];
    else
      for (int k = 0; k < W; ++k) sum = fmaf(x[k], x[k], sum);
  }
  const auto again = [&](int64_t i) { load<W, Nan::any>(keeps<W> ? kept + i : (f.s ? f.s : f.x) + at + i, x); };
  const float n = static_cast<float>(f.columns);
  if (f.mean) {
    mean = sum_of_row(sum) / n;
    sum = 0;
    for (int64_t i = begin; i < end; i += step) {
      again(i);
      for (int k = 0; k < W; ++k) sum = fmaf(x[k] - mean, x[k] - mean, sum);
    }
  }
  const float rstd = 1.0f / sqrtf(sum_of_row(sum) / n + f.eps);
  for (int64_t i = begin; i < end; i += step) {
    again(i);
    for (int k = 0; k < W; ++k) x[k] = (x[k] - mean) * rstd;
    if (f.w) {
      load<W, Nan::any>(f.w + i, y);
      for (int k = 0; k < W; ++k) x[k] *= y[k];
    }
    if (f.bias) {
      load<W, Nan::any>(f.bias + i, y);
      for (int k = 0; k < W; ++k) x[k] += y[k];
    }
    store<W, Nan::any>(f.y + at + i, x);
  }
  if (threadIdx.x || row >= f.rows) return;
  f.stats[f.mean ? 2 * row + 1 : row] = rstd;
  if (f.mean) f.stats[2 * row] = mean;
}

template <class X, class Y>
struct Backward {
  const Y* dy;
  const X* s;
  const Y* w;  // may be null
  const float* stats;
  const X* ds;  // may be null
  X* dx;
  float *dw, *dbias;  // sums of each slice: may be null
  int64_t rows, columns, slice;
  bool mean;
  int depth = 0;                 // so many rows of inputs are in shared memory
  bool sums = false;             // and so are the sums, or they are in memory
  int64_t inputs = 0, room = 0;  // bytes: of those, and of all for one of the rows that a block has at once

  // Two rows: the next one is on its way. Where a block has several rows at once, their sums always fit.
  template <int W>
  bool choose(unsigned rows_of_block) {
    for (const auto& [rows_kept, sums_kept] : {std::pair(2, true), std::pair(1, true), std::pair(1, false)}) {
      depth = keeps<W> ? rows_kept : 0, sums = sums_kept;
      inputs = depth * columns * (int64_t{sizeof(X)} * (ds ? 2 : 1) + int64_t{sizeof(Y)});
      room = line_up(inputs + (sums ? columns * int64_t{sizeof(float)} * ((dw ? 1 : 0) + (dbias ? 1 : 0)) : 0));
      if (bytes(rows_of_block) <= most_bytes) return true;
    }
    return false;
  }
  size_t bytes(unsigned rows_of_block) const { return static_cast<size_t>(room) * rows_of_block + sizeof(Scratch); }
};

// Starts to copy W elements to shared memory.
template <int W, class T>
__device__ __forceinline__ void fetch(T* to, const T* from) {
  constexpr int each = 16 / sizeof(T);
  for (int k = 0; k + each <= W; k += each) copy_async<16>(shared_address(to + k), from + k, true);
}

// Sums of columns. In shared memory the fours of a vector lie apart, so that neighbouring threads use other banks.
template <int W>
struct Sums {
  static constexpr int part = W < 4 ? W : 4, parts = W / part;
  using Part = float[part];
  float *near, *far;
  int64_t columns;
  bool is_near;
  __device__ __forceinline__ unsigned place(int p, int64_t i) const {
    return (p * static_cast<unsigned>(columns) + static_cast<unsigned>(i)) / parts;
  }
  __device__ __forceinline__ void take(int64_t i, float (&x)[W]) const {
    if (!is_near) return load<W>(far + i, x);
    for (int p = 0; p < parts; ++p) load<part>(near + place(p, i), reinterpret_cast<Part&>(x[p * part]));
  }
  // Adds a b to the sums of columns i ..; for the first row (not `begun`), to 0.
  __device__ __forceinline__ void add_product(int64_t i, const float (&a)[W], const float (&b)[W], bool begun) const {
    float x[W] = {};
    if (begun) take(i, x);
    for (int k = 0; k < W; ++k) x[k] = fmaf(a[k], b[k], x[k]);
    if (!is_near) return store<W>(far + i, x);
    for (int p = 0; p < parts; ++p) store<part>(near + place(p, i), reinterpret_cast<Part&>(x[p * part]));
  }
};

// With u = dy w and h = (s - mean) rstd: dx = rstd (u - mean(u) - h mean(u h)); RMSNorm has no mean(u). One block for
// each slice of rows; its dw = sum of dy h, dbias = sum of dy.
template <int W, class X, class Y>
__global__ void __launch_bounds__(most_threads, 2) backward(Backward<X, Y> b) {
  const int64_t first = blockIdx.x * b.slice, last = first + b.slice < b.rows ? first + b.slice : b.rows;
  const int64_t columns = b.columns, begin = static_cast<int64_t>(threadIdx.x) * W,
                step = static_cast<int64_t>(blockDim.x) * W;
  // A room: rows of s, of ds and of dy, then sums.
  X* const near_s = reinterpret_cast<X*>(room_of(b.room, threadIdx.y));
  X* const near_ds = near_s + b.depth * columns;
  Y* const near_dy = reinterpret_cast<Y*>(near_ds + (b.ds ? b.depth * columns : 0));
  const auto sums_of = [&](unsigned y, bool bias) {
    float *const near = reinterpret_cast<float*>(room_of(b.room, y) + b.inputs), *const far = bias ? b.dbias : b.dw;
    return Sums<W>{near + (bias && b.dw ? columns : 0), far ? far + blockIdx.x * columns : nullptr, columns, b.sums};
  };
  const Sums<W> dw = sums_of(threadIdx.y, false), dbias = sums_of(threadIdx.y, true);
  const auto end_of = [&](int64_t row) { return row < last ? columns : 0; };  // lanes without a row go along
  const auto fetch_row = [&](int64_t row, int64_t to) {
    const int64_t at = row * columns;
    for (int64_t i = begin; i < end_of(row); i += step) {
      fetch<W>(near_s + to + i, b.s + at + i), fetch<W>(near_dy + to + i, b.dy + at + i);
      if (b.ds) fetch<W>(near_ds + to + i, b.ds + at + i);
    }
    commit_async();
  };
  float next_mean = 0, next_rstd = 0;
  const auto read_stats = [&](int64_t row) {
    if (row >= last) return;
    next_rstd = b.stats[b.mean ? 2 * row + 1 : row];
    if (b.mean) next_mean = b.stats[2 * row];
  };

  int64_t row = first + threadIdx.y, now = 0, next = b.depth == 2 ? columns : 0;  // now, next: where rows are kept
  read_stats(row);
  if constexpr (keeps<W>) fetch_row(row, now);
  for (int64_t done = first; done < last; done += blockDim.y, row += blockDim.y) {
    const bool begun = done > first;
    const int64_t at = row * columns, end = end_of(row);
    const float mean = next_mean, rstd = next_rstd;
    read_stats(row + blockDim.y);
    if constexpr (keeps<W>) {
      if (b.depth == 2) {
        fetch_row(row + blockDim.y, next);
        wait_async<1>();
      } else {
        if (begun) fetch_row(row, now);
        wait_async<0>();
      }
    }
    float dy[W], h[W], u[W], x[W], ones[W], plain = 0, scaled = 0;
    const auto get = [&](int64_t i) {
      load<W, Nan::any>(keeps<W> ? near_dy + now + i : b.dy + at + i, dy),
          load<W, Nan::any>(keeps<W> ? near_s + now + i : b.s + at + i, h);
      if (b.w) load<W, Nan::any>(b.w + i, u);
      for (int k = 0; k < W; ++k) h[k] = (h[k] - mean) * rstd, u[k] = b.w ? dy[k] * u[k] : dy[k], ones[k] = 1;
    };
    for (int64_t i = begin; i < end; i += step) {
      get(i);
      for (int k = 0; k < W; ++k) plain += u[k], scaled = fmaf(u[k], h[k], scaled);
      if (b.dw) dw.add_product(i, dy, h, begun);
      if (b.dbias) dbias.add_product(i, dy, ones, begun);
    }
    const float n = static_cast<float>(columns);
    const float a = b.mean ? sum_of_row(plain) / n : 0.0f, c = sum_of_row(scaled) / n;
    for (int64_t i = begin; i < end; i += step) {
      get(i);
      for (int k = 0; k < W; ++k) u[k] = rstd * (u[k] - a - h[k] * c);
      if (b.ds) {
        load<W, Nan::any>(keeps<W> ? near_ds + now + i : b.ds + at + i, x);
        for (int k = 0; k < W; ++k) u[k] += x[k];
      }
      store<W, Nan::any>(b.dx + at + i, u);
    }
    const int64_t was = now;
    now = next, next = was;
  }

  // The sums of each room, in order; if the block has one, each thread has put its own there.
  if ((!b.dw && !b.dbias) || (!b.sums && first < last)) return;
  const unsigned all = static_cast<unsigned>(last - first < blockDim.y ? last - first : blockDim.y);
  if (blockDim.y > 1) __syncthreads();
  const auto finish = [&](float* out, bool bias) {
    for (int64_t i = threadIdx.y * step + begin; i < columns; i += blockDim.y * step) {
      float sum[W] = {}, x[W];
      ENG_UNROLL_BY(2)
      for (unsigned y = 0; y < all; ++y) {
        sums_of(y, bias).take(i, x);
        for (int k = 0; k < W; ++k) sum[k] += x[k];
      }
      store<W, Nan::any>(out + blockIdx.x * columns + i, sum);
    }
  };
  if (b.dw) finish(b.dw, false);
  if (b.dbias) finish(b.dbias, true);
}

// ---- ops -------------------------------------------------------------------------------------------------------

// f.operator()<W>() for vectors of 16 bytes of the narrowest type; for single elements if that cannot be.
template <class X, class Y, class F>
void by_width(int64_t columns, F&& f) {
  if (columns % widest<X, Y> || !f.template operator()<widest<X, Y>>()) f.template operator()<1>();
}
// Rows of a slice: enough slices to fill a GPU, whatever the GPU, so that the plan and the bits do not depend on it.
column_sums::Slices slices_of(int64_t rows) {
  return {rows, 8, 256};
}
void need_rows(const eng_desc& d) {
  need(columns(d) > 0 && rows(d) < int64_t{1} << 31, "rows must be fewer than 2^31, and not empty");
}
// RMSNorm: in x, w, [residual]; out y, rstd, [s]. LayerNorm: in x, [w], [bias], [residual]; out y, stats, [s].
template <bool layer>
struct Norm {
  static constexpr const char* op = layer ? ENG_OP_LAYER_NORM : ENG_OP_RMS_NORM;
  static constexpr size_t residual = layer ? 3 : 2;
  float eps;
  static void check(const Call& c) {
    need_counts(c, 1, residual + 1, 2, 3), need_float(c.in[0], "x"), need_rows(c.in[0]), c.real("eps");
    need_float(c.out[0], "y"), need_size(c.out[0], elements(c.in[0]), "y");
    need_tensor(c.out[1], ENG_F32, rows(c.in[0]) * (layer ? 2 : 1), "rstd or stats");
    if (c.in[0].dtype != ENG_F32) need_type(c.out[0], c.in[0].dtype, "y");
    need(layer || c.has(1), "there must be a weight");
    for (size_t k = 1; k < residual; ++k) need_optional(c, k, c.out[0].dtype, columns(c.in[0]), "a weight");
    need(c.has(residual) == c.has_out(2), "there is a sum if and only if there is a residual");
    if (c.has(residual))
      for (const eng_desc& d : {c.in[residual], c.out[2]})
        need_tensor(d, c.in[0].dtype, elements(c.in[0]), "residual or s");
  }
  explicit Norm(const Call& c) : eps(static_cast<float>(c.real("eps"))) {}
  void run(const Call& c, const Args& a, cudaStream_t queue) const {
    const int64_t n_rows = rows(c.in[0]), n_columns = columns(c.in[0]);
    by_types(c.out[0].dtype, c.in[0].dtype, [&]<class Y, class X>(Y, X) {
      const Y* const bias = layer ? a.in<Y>(2) : nullptr;
      Forward<X, Y> f{a.in<X>(0), a.in<X>(residual), a.in<Y>(1), bias, a.out<Y>(0), a.out<float>(1), a.out<X>(2),
                      n_rows,     n_columns,         eps,        layer};
      by_width<X, Y>(n_columns, [&]<int W>() {
        const dim3 block = block_for(n_columns / W, most_threads);
        f.room = keeps<W> ? line_up(n_columns * int64_t{sizeof(X)}) : 0;
        const size_t bytes = static_cast<size_t>(f.room * block.y) + sizeof(Scratch);
        if (bytes > most_bytes) return false;
        launch<forward<W, X, Y>>(static_cast<unsigned>((n_rows + block.y - 1) / block.y), block, bytes, queue, f);
        return true;
      });
    });
  }
};

// RMSNorm: in dy, s, w, rstd, [ds], [dw_acc]; out dx, dw.
// LayerNorm: in dy, s, [w], stats, [ds], [dw_acc], [dbias_acc]; out dx, [dw], [dbias].
template <bool layer>
struct NormGrad {
  static constexpr const char* op = layer ? ENG_OP_LAYER_NORM_GRAD : ENG_OP_RMS_NORM_GRAD;
  static void check(const Call& c) {
    need_counts(c, 4, layer ? 7 : 6, 1, layer ? 3 : 2);
    need_float(c.in[0], "dy"), need_rows(c.in[1]), need_float(c.in[1], "s");
    if (c.in[1].dtype != ENG_F32) need_type(c.in[1], c.in[0].dtype, "s");
    need_size(c.in[0], elements(c.in[1]), "dy"), need_type(c.in[3], ENG_F32, "stats");
    need(layer || c.has(2), "there must be a weight");
    need_optional(c, 2, c.in[0].dtype, columns(c.in[1]), "w");
    need_tensor(c.out[0], c.in[1].dtype, elements(c.in[1]), "dx");
    need_optional(c, 4, c.in[1].dtype, elements(c.in[1]), "ds");
    for (size_t k : {1, 2})
      if (c.has_out(k)) {
        need_size(c.out[k], columns(c.in[1]), "dw or dbias"), need_type(c.out[k], c.out[1].dtype, "dbias");
        need_sum(c, c.in[0].dtype, k, "dw or dbias", 4 + k, "dw_acc or dbias_acc");
      }
  }
  static uint64_t workspace(const Call& c) {
    const auto sums = static_cast<uint64_t>(slices_of(rows(c.in[1])).count * columns(c.in[1])) * sizeof(float);
    return sums * ((c.has_out(1) ? 1 : 0) + (c.has_out(2) ? 1 : 0));
  }
  static void run(const Call& c, const Args& a, cudaStream_t queue) {
    const int64_t n_rows = rows(c.in[1]), n_columns = columns(c.in[1]);
    const column_sums::Slices slices = slices_of(n_rows);
    float* const dw = c.has_out(1) ? a.scratch<float>() : nullptr;
    float* const dbias = c.has_out(2) ? a.scratch<float>() + (dw ? slices.count * n_columns : 0) : nullptr;
    by_types(c.in[0].dtype, c.in[1].dtype, [&]<class Y, class X>(Y, X) {
      Backward<X, Y> b{a.in<Y>(0), a.in<X>(1), a.in<Y>(2), a.in<float>(3), a.in<X>(4),  a.out<X>(0),
                       dw,         dbias,      n_rows,     n_columns,      slices.rows, layer};
      by_width<X, Y>(n_columns, [&]<int W>() {
        const dim3 block = block_for(n_columns / W, most_threads / 2);
        if (!b.template choose<W>(block.y)) return false;
        launch<backward<W, X, Y>>(static_cast<unsigned>(slices.count), block, b.bytes(block.y), queue, b);
        return true;
      });
    });
    for (const size_t k : {1, 2})
      if (const float* const of = k == 1 ? dw : dbias)
        by_type(c.out[k].dtype,
                [&]<class S>(S) { column_sums::all(of, slices.count, n_columns, a.in<S>(4 + k), a.out<S>(k), queue); });
  }
};

}  // namespace norm

void add_norm(List& list) {
  using namespace norm;
  list.insert(list.end(),
              {&kernel<Norm<false>>, &kernel<NormGrad<false>>, &kernel<Norm<true>>, &kernel<NormGrad<true>>});
}

}  // namespace cuda
