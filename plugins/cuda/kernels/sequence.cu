// SPDX-License-Identifier: Apache-2.0
// Ops that depend on tokens and positions: embedding, positions, rope, dropout, init, and the gradients.
#include "../../common/cuda/glue.hpp"
#include "../../common/philox.hpp"
#include "engine/ops_parallel.h"
#include "list.hpp"
#include "sequence.cuh"

namespace cuda {
namespace sequence {

// `part`: of a table with the rows of `rows` tokens, from `first` on; 0 for others.
template <class T, bool part>
struct EmbeddingOf {
  const int32_t* tokens;
  const T* table;
  T* y;
  int64_t columns, first, rows;
  static constexpr int width = widest<T>;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const int64_t own = tokens[row] - first;
    const bool here = !part || (own >= 0 && own < rows);
    store_pack(y + row * columns + column, here ? load_pack<W>(table + own * columns + column) : Pack<T, W>{});
  }
};

// The tokens that a warp found among `run` neighbours, in their order.
constexpr int run = 256;
struct Found {
  int32_t count;
  uint16_t at[run];
};

__device__ __forceinline__ void find(const int32_t* tokens, int n, int32_t token, Found& found) {
  constexpr int each = run / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  bool here[each];
  ENG_UNROLL
  for (int k = 0; k < each; ++k) here[k] = k * 32 + lane < n && tokens[k * 32 + lane] == token;
  int count = 0;
  ENG_UNROLL
  for (int k = 0; k < each; ++k) {
    const unsigned votes = __ballot_sync(0xffffffffu, here[k]);
    if (votes == 0) continue;
    if (here[k]) found.at[count + __popc(votes & ((1u << lane) - 1))] = static_cast<uint16_t>(k * 32 + lane);
    count += __popc(votes);
  }
  if (lane == 0) found.count = count;
}
template <int W, class T>
__device__ __forceinline__ void add_rows(const T* dy, int64_t columns, const Found& found, float (&sum)[W]) {
  const int count = found.count;
  ENG_UNROLL_BY(4)  // rows on their way at once
  for (int i = 0; i < count; ++i) {
    float x[W];
    load(dy + found.at[i] * columns, x);
    for (int k = 0; k < W; ++k) sum[k] += x[k];
  }
}

// A block makes W columns of one row of the table for each of its threads: it looks for its token, one run for each
// warp at once, and adds the rows of dy in their order. Row r has token r - `offset`. Two sets of lists take turns, so
// that one barrier is enough: nobody is two steps ahead.
template <int W, class T, class S>
__global__ void embedding_grad(const int32_t* tokens, int64_t n, const T* dy, const S* acc, S* out, int64_t columns,
                               int32_t offset) {
  const int warps = static_cast<int>(blockDim.x / 32), w = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * W;
  Found *lists = shared<Found[1]>(), *others = lists + warps;
  float sum[W] = {};
  for (int64_t from = 0; from < n; from += warps * run) {
    const int64_t own = from + w * run, left = n - own;
    find(tokens + own, static_cast<int>(left < run ? left : run), static_cast<int32_t>(blockIdx.x) - offset, lists[w]);
    __syncthreads();
    const unsigned any = __ballot_sync(0xffffffffu, lane < warps && lists[lane].count > 0);
    if (any && column < columns)
      for (int v = 0; v < warps; ++v)
        if (any >> v & 1) add_rows(dy + (from + v * run) * columns + column, columns, lists[v], sum);
    Found* const read = lists;
    lists = others, others = read;
  }
  if (column < columns) put_sum(acc, static_cast<int64_t>(blockIdx.x) * columns + column, sum, out);
}
template <class T, class S>
void launch_embedding_grad(int64_t rows, cudaStream_t queue, const int32_t* tokens, int64_t n, const T* dy,
                           const S* acc, S* out, int64_t columns, int64_t offset) {
  const auto go = [&]<int W>() {
    const int64_t threads = (columns / W + 127) / 128 * 128, block = threads < 512 ? threads : 512;
    if (columns == 0) return;
    const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>((threads + block - 1) / block));
    launch<embedding_grad<W, T, S>>(grid, static_cast<unsigned>(block),
                                    static_cast<size_t>(block / warp) * sizeof(Found[2]), queue, tokens, n, dy, acc,
                                    out, columns, static_cast<int32_t>(offset));
  };
  constexpr int width = widest<T, S>;
  columns % width ? go.template operator()<1>() : go.template operator()<width>();
}

// ---- ops -------------------------------------------------------------------------------------------------------

// The first token that has a row.
template <bool part>
struct First {
  int64_t first;
  explicit First(const Call& c) : first(part ? c.integer("first") : 0) {
    need(first >= 0, "first must not be negative");
  }
};

template <bool part>
struct Embedding : First<part> {
  using First<part>::First;
  static constexpr const char* op = part ? ENG_OP_EMBEDDING_PART : ENG_OP_EMBEDDING;
  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1), need_type(c.in[0], ENG_I32, "tokens"), need_float(c.in[1], "the table");
    need_tensor(c.out[0], c.in[1].dtype, elements(c.in[0]) * columns(c.in[1]), "y"), (void)First<part>(c);
  }
  void run(const Call& c, const Args& a, cudaStream_t queue) const {
    const int64_t n_columns = columns(c.in[1]);
    by_type(c.in[1].dtype, [&]<class T>(T) {
      launch_rows(
          elements(c.in[0]), n_columns, queue,
          EmbeddingOf<T, part>{a.in<int32_t>(0), a.in<T>(1), a.out<T>(0), n_columns, this->first, rows(c.in[1])});
    });
  }
};

template <bool part>
struct EmbeddingGrad : First<part> {
  using First<part>::First;
  static constexpr const char* op = part ? ENG_OP_EMBEDDING_PART_GRAD : ENG_OP_EMBEDDING_GRAD;
  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1), need_type(c.in[0], ENG_I32, "tokens"), need_float(c.in[1], "dy");
    need_size(c.in[1], elements(c.in[0]) * columns(c.out[0]), "dy");
    need_sum(c, c.in[1].dtype, 0, "the gradient", 2), (void)First<part>(c);
    need(c.out[0].ndim == 2 && c.out[0].dims[0] == c.integer("rows") && c.out[0].dims[0] < int64_t{1} << 31,
         "dtable must be (rows, H)");
  }
  void run(const Call& c, const Args& a, cudaStream_t queue) const {
    by_types(c.in[1].dtype, c.out[0].dtype, [&]<class T, class S>(T, S) {
      launch_embedding_grad(rows(c.out[0]), queue, a.in<int32_t>(0), elements(c.in[0]), a.in<T>(1), a.in<S>(2),
                            a.out<S>(0), columns(c.out[0]), -this->first);
    });
  }
};

struct Positions : Exact {
  static constexpr const char* op = ENG_OP_POSITIONS;
  int64_t offset;
  explicit Positions(const Call& c) : offset(c.integer("offset")) {}
  static void check(const Call& c) {
    need_counts(c, 2, 4, 1, 1), need_float(c.in[0], "x"), need(c.in[0].ndim == 3, "x must be (B, T, H)");
    need_optional(c, 3, ENG_I32, rows(c.in[0]), "positions");
    need_type(c.in[1], c.in[0].dtype, "the table"), need_type(c.out[0], c.in[0].dtype, "y");
    need(columns(c.in[1]) == columns(c.in[0]) && c.in[1].dims[0] >= c.in[0].dims[1] + c.integer("offset"),
         "the table must be (P, H), P at least T + offset");
    need_size(c.out[0], elements(c.in[0]), "y");
  }
  void run(const Call& c, const Args& a, cudaStream_t queue) const {
    const int64_t n_columns = columns(c.in[0]);
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const auto with = [&]<bool packed>() {
        const Place<packed> place{a.in<int64_t>(2), a.in<int32_t>(3), c.in[0].dims[1]};
        launch_rows(rows(c.in[0]), n_columns, queue,
                    PositionsOf<T, packed>{a.in<T>(0), a.in<T>(1), a.out<T>(0), place, n_columns, offset});
      };
      a.in<int32_t>(3) ? with.template operator()<true>() : with.template operator()<false>();
    });
  }
};

struct PositionsGrad {
  static constexpr const char* op = ENG_OP_POSITIONS_GRAD;
  int64_t offset;
  explicit PositionsGrad(const Call& c) : offset(c.integer("offset")) {}
  static void check(const Call& c) {
    need_counts(c, 1, 3, 1, 1), need_float(c.in[0], "dy"), need(c.in[0].ndim == 3, "dy must be (B, T, H)");
    need_optional(c, 2, ENG_I32, rows(c.in[0]), "positions");
    need_sum(c, c.in[0].dtype, 0, "the gradient", 1);
    need(columns(c.out[0]) == columns(c.in[0]) && c.out[0].dims[0] == c.integer("rows") &&
             c.integer("rows") >= c.in[0].dims[1] + c.integer("offset"),
         "dtable must be (rows, H), rows at least T + offset");
  }
  void run(const Call& c, const Args& a, cudaStream_t queue) const {
    const int64_t n_rows = c.out[0].dims[0], n_columns = columns(c.in[0]);
    by_types(c.in[0].dtype, c.out[0].dtype, [&]<class T, class S>(T, S) {
      if (const int32_t* given = a.in<int32_t>(2))
        return launch_embedding_grad(n_rows, queue, given, rows(c.in[0]), a.in<T>(0), a.in<S>(1), a.out<S>(0),
                                     n_columns, offset);
      launch_rows(n_rows, n_columns, queue,
                  PositionsGradOf<T, S>{a.in<T>(0), a.in<S>(1), a.out<S>(0), c.in[0].dims[0], c.in[0].dims[1],
                                        n_columns, offset});
    });
  }
};

// The third input: rope_step has counters, rope may have positions.
template <bool step>
struct Rope {
  static constexpr const char* op = step ? ENG_OP_ROPE_STEP : ENG_OP_ROPE;
  float sign;
  explicit Rope(const Call& c) : sign(c.integer("inverse") ? -1.0f : 1.0f) {}
  static void check(const Call& c) {
    need_counts(c, step ? 3 : 2, 3, 1, 1), need_float(c.in[0], "x");
    need(c.in[0].ndim == 3, "x must be (B, T, heads*D)");
    const int64_t heads = c.integer("heads");
    c.integer("inverse");
    need(heads > 0 && columns(c.in[0]) % (2 * heads) == 0, "x must be (B, T, heads*D) with D even");
    constexpr int64_t most = (int64_t{1} << 31) - 1;
    need(rows(c.in[0]) <= most && columns(c.in[0]) <= most, "x must have less than 2^31 rows and columns");
    need_type(c.in[1], ENG_F32, "the table"), need_type(c.out[0], c.in[0].dtype, "y");
    need(columns(c.in[1]) * heads == columns(c.in[0]) && c.in[1].dims[0] >= c.in[0].dims[1],
         "the table must be (T, D)");
    need_size(c.out[0], elements(c.in[0]), "y");
    if (step)
      need_counters(c.in[2]);
    else
      need_optional(c, 2, ENG_I32, rows(c.in[0]), "positions");
  }
  void run(const Call& c, const Args& a, cudaStream_t queue) const {
    const auto pairs = static_cast<uint32_t>(columns(c.in[0]) / 2), half = static_cast<uint32_t>(columns(c.in[1]) / 2);
    if (pairs == 0) return;
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t* counters = step ? a.in<int64_t>(2) : nullptr;
      const int32_t* positions = step ? nullptr : a.in<int32_t>(2);
      const auto with = [&]<bool packed>() {
        const Place<packed> place{counters, positions, c.in[0].dims[1]};
        const Rotation<T, packed> r{a.in<T>(0), a.out<T>(0), a.in<float>(1), place, pairs, half, sign};
        const auto go = [&]<int W>() {
          const uint32_t threads = (pairs / W + 31) / 32 * 32, block = threads < 256 ? threads : 256;
          launch<rope<W, T, packed>>(dim3(static_cast<unsigned>(rows(c.in[0])), (threads + block - 1) / block), block,
                                     0, queue, r);
        };
        half % widest<T> ? go.template operator()<1>() : go.template operator()<widest<T>>();
      };
      positions ? with.template operator()<true>() : with.template operator()<false>();
    });
  }
};

struct Dropout : Exact {
  static constexpr const char* op = ENG_OP_DROPOUT;
  Drops drops{};  // but for counters and threads
  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1), need_float(c.in[0], "x");
    need(c.in[0].ndim >= 1 && c.in[0].dims[0] > 0, "x must be (B, ...)"), need_counters(c.in[1]);
    need_tensor(c.out[0], c.in[0].dtype, elements(c.in[0]), "y");
    need(c.real("p") >= 0 && c.real("p") < 1, "p must be at least 0 and below 1");
  }
  explicit Dropout(const Call& c) {
    drops.batch = c.in[0].dims[0], drops.each = elements(c.in[0]) / drops.batch;
    drops.seed = static_cast<uint64_t>(c.integer("seed")), drops.stream = static_cast<uint32_t>(c.integer("stream"));
    drops.threshold = common::dropout_threshold(c.real("p"));
    drops.factor = static_cast<float>(1.0 / (1.0 - c.real("p")));
  }
  void run(const Call& c, const Args& a, cudaStream_t queue) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const auto with = [&]<int W>() {
        Drops d = drops;
        d.counters = a.in<int64_t>(1), d.threads = (d.each + 63) / 64 * (16 / W);
        constexpr unsigned block = 256;
        launch<dropout<W, T>>(static_cast<unsigned>((d.batch * d.threads + block - 1) / block), block, 0, queue,
                              a.in<T>(0), a.out<T>(0), d);
      };
      drops.each % 64 ? with.template operator()<1>() : with.template operator()<widest<T>>();
    });
  }
};

template <Fill kind>
struct Init {
  static constexpr const char* op = kind == Fill::constant ? ENG_OP_INIT_CONSTANT
                                    : kind == Fill::normal ? ENG_OP_INIT_NORMAL
                                                           : ENG_OP_INIT_UNIFORM;
  static constexpr uint32_t flags = kind == Fill::normal ? 0 : ENG_KERNEL_EXACT;
  Filling filling{kind};
  static void check(const Call& c) {
    need_counts(c, 0, 0, 1, 1), need_float(c.out[0], "out");
    need(c.integer("first") >= 0, "first must not be negative");
    (void)Init(c);
  }
  explicit Init(const Call& c) {
    filling.first = static_cast<uint64_t>(c.integer("first"));
    filling.a = c.real(kind == Fill::constant ? "value" : kind == Fill::normal ? "mean" : "low");
    if (kind == Fill::constant) return;
    filling.b = c.real(kind == Fill::normal ? "std" : "high");
    filling.seed = static_cast<uint64_t>(c.integer("seed"));
    filling.stream = static_cast<uint64_t>(c.integer("stream"));
  }
  void run(const Call& c, const Args& args, cudaStream_t queue) const {
    by_type(c.out[0].dtype, [&]<class T>(T) {
      launch_each(elements(c.out[0]), queue, FillOf<T>{args.out<T>(0), filling});
    });
  }
};

}  // namespace sequence

void add_sequence(List& list) {
  using namespace sequence;
  list.insert(list.end(), {&kernel<Embedding<false>>, &kernel<EmbeddingGrad<false>>, &kernel<Embedding<true>>,
                           &kernel<EmbeddingGrad<true>>, &kernel<Positions>, &kernel<PositionsGrad>,
                           &kernel<Rope<false>>, &kernel<Rope<true>>, &kernel<Dropout>, &kernel<Init<Fill::constant>>,
                           &kernel<Init<Fill::normal>>, &kernel<Init<Fill::uniform>>});
}

}  // namespace cuda
