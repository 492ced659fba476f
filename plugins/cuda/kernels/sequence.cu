// SPDX-License-Identifier: Apache-2.0
// What depends on tokens and positions: embedding, positions, rope, dropout, init, and the gradients.
#include "../../common/cuda/glue.hpp"
#include "../../common/cuda/random.cuh"
#include "../../common/philox.hpp"
#include "list.hpp"

namespace cuda {
namespace sequence {

template <class T>
struct EmbeddingOf {
  const int32_t* tokens;
  const T* table;
  T* y;
  int64_t columns;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) y[i + k] = table[tokens[(i + k) / columns] * columns + (i + k) % columns];
  }
};

// One block for each row of the table: it looks for its token, and adds the rows of dy in their order. Row r has token
// r - `offset`.
template <class T, class S>
__global__ void embedding_grad(const int32_t* tokens, int64_t n, const T* dy, const S* acc, S* out, int64_t columns,
                               int32_t offset) {
  constexpr int tile = 256;
  int32_t* const here = shared<int32_t[tile]>();
  const auto token = static_cast<int32_t>(blockIdx.x) - offset;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * columns;
  for (int64_t first = 0; first < columns; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    float sum = 0;
    for (int64_t from = 0; from < n; from += tile) {
      const int count = static_cast<int>(n - from < tile ? n - from : tile);
      __syncthreads();
      for (int k = static_cast<int>(threadIdx.x); k < count; k += static_cast<int>(blockDim.x))
        here[k] = tokens[from + k];
      __syncthreads();
      if (i < columns)
        for (int k = 0; k < count; ++k)
          if (here[k] == token) sum += to_f32(dy[(from + k) * columns + i]);
    }
    if (i < columns) from_f32(acc ? to_f32(acc[at + i]) + sum : sum, out[at + i]);
  }
}

template <class T, bool packed>
struct PositionsOf {
  const T *x, *table;
  T* y;
  const int64_t* counters;   // may be null
  const int32_t* positions;  // of each row of x, of packed samples
  int64_t length, columns, offset;
  template <int W>
  __device__ void at(int64_t i) const {
    const int64_t start = offset + (counters ? counters[ENG_C_POSITION] : 0);
    for (int k = 0; k < W; ++k) {
      const int64_t row = (i + k) / columns, t = (packed ? positions[row] : row % length) + start;
      from_f32(to_f32(x[i + k]) + to_f32(table[t * columns + (i + k) % columns]), y[i + k]);
    }
  }
};
template <class T, class S>
struct PositionsGradOf {
  const T* dy;
  const S* acc;
  S* out;
  int64_t batch, length, columns, offset;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) {
      const int64_t t = (i + k) / columns - offset, column = (i + k) % columns;
      float sum = 0;
      if (t >= 0 && t < length)
        for (int64_t b = 0; b < batch; ++b) sum += to_f32(dy[(b * length + t) * columns + column]);
      from_f32(acc ? to_f32(acc[i + k]) + sum : sum, out[i + k]);
    }
  }
};

// i counts pairs: (row, head, j) with j below D / 2.
template <class T, bool packed>
struct RopeOf {
  const T* x;
  T* y;
  const float* table;
  const int64_t* counters;   // may be null
  const int32_t* positions;  // of each row of x, of packed samples
  int64_t length, heads, half;
  float sign;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) one(i + k);
  }
  __device__ void one(int64_t i) const {
    const int64_t j = i % half, head = i / half, row = head / heads;
    const int64_t t = (packed ? positions[row] : row % length) + (counters ? counters[ENG_C_POSITION] : 0);
    const int64_t at = head * 2 * half + j;
    const float cosine = table[t * 2 * half + j], sine = sign * table[t * 2 * half + half + j];
    const float x1 = to_f32(x[at]), x2 = to_f32(x[at + half]);
    from_f32(x1 * cosine - x2 * sine, y[at]);
    from_f32(x2 * cosine + x1 * sine, y[at + half]);
  }
};

template <class T>
struct DropoutOf {
  const T* x;
  T* y;
  const int64_t* counters;
  int64_t batch, each;  // sequences; elements of one
  uint64_t seed;
  uint32_t stream, threshold;
  float factor;
  template <int W>
  __device__ void at(int64_t i) const {
    const int64_t world = counters[ENG_C_WORLD] < 1 ? 1 : counters[ENG_C_WORLD],
                  first = batch * (counters[ENG_C_MICRO] * world + counters[ENG_C_RANK]);
    for (int k = 0; k < W; ++k) {
      const auto b = static_cast<uint64_t>(first + (i + k) / each), j = static_cast<uint64_t>((i + k) % each);
      const Words words =
          philox(((j / 64 * 16 + j % 16) & 0xffffffff) | b << 32,
                 (static_cast<uint64_t>(counters[ENG_C_STEP]) & 0xffffffff) | uint64_t{stream} << 32, seed);
      const bool dropped = words.at[j % 64 / 16] < threshold;
      from_f32(dropped ? 0.0f : to_f32(x[i + k]) * factor, y[i + k]);
    }
  }
};

enum class Fill { constant, normal, uniform };

__device__ __forceinline__ double unit(uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}
// To a neighbour with an odd last bit, if f32 does not have the value: rounding that to 16 bits is rounding once.
__device__ __forceinline__ float to_odd(double x) {
  const auto f = static_cast<float>(x);
  const double back = f;
  if (back == x || x != x) return f;
  uint32_t bits = bits_of<uint32_t>(f);
  if (fabs(back) > fabs(x)) --bits;
  return bits_of<float>(bits | 1);
}
__device__ __forceinline__ void put(double x, float& out) {
  out = static_cast<float>(x);
}
template <class T>
__device__ __forceinline__ void put(double x, T& out) {
  from_f32(to_odd(x), out);
}
template <class T>
struct FillOf {
  T* out;
  Fill kind;
  double a, b;  // value; mean and std; low and high
  uint64_t seed, stream, first;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) put(value(first + static_cast<uint64_t>(i + k)), out[i + k]);
  }
  __device__ double value(uint64_t e) const {
    if (kind == Fill::constant) return a;
    if (kind == Fill::uniform) return a + (b - a) * unit(philox(e / 4, stream, seed).at[e % 4]);
    const Words w = philox(e / 2, stream, seed);
    const double radius = sqrt(-2.0 * log(unit(w.at[0]))), angle = 2.0 * 3.14159265358979323846 * unit(w.at[1]);
    return a + b * (radius * (e % 2 ? sin(angle) : cos(angle)));
  }
};

// ---- ops -------------------------------------------------------------------------------------------------------

void need_tokens(const eng_desc& d) {
  need_type(d, ENG_I32, "tokens");
}
// Of each row of x (B, T, ...); may be absent.
void need_positions(const Call& c, size_t at, const eng_desc& x) {
  if (c.has(at)) need_type(c.in[at], ENG_I32, "positions"), need_size(c.in[at], rows(x), "positions");
}
void need_sums(const Call& c, int32_t type, size_t acc, size_t out) {
  if (c.out[out].dtype != ENG_F32) need_type(c.out[out], type, "the gradient");
  if (c.has(acc)) need_type(c.in[acc], c.out[out].dtype, "acc"), need_size(c.in[acc], elements(c.out[out]), "acc");
}

struct Embedding {
  static constexpr const char* op = ENG_OP_EMBEDDING;
  int32_t type;
  int64_t n, n_columns;
  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1), need_tokens(c.in[0]), need_float(c.in[1], "the table");
    need_type(c.out[0], c.in[1].dtype, "y"), need_size(c.out[0], elements(c.in[0]) * columns(c.in[1]), "y");
  }
  explicit Embedding(const Call& c) : type(c.in[1].dtype), n(elements(c.out[0])), n_columns(columns(c.in[1])) {}
  void run(const Args& a, cudaStream_t queue) const {
    by_type(type, [&]<class T>(T) {
      launch_each(n, queue, EmbeddingOf<T>{a.in<int32_t>(0), a.in<T>(1), a.out<T>(0), n_columns});
    });
  }
};

struct EmbeddingGrad {
  static constexpr const char* op = ENG_OP_EMBEDDING_GRAD;
  int32_t type, sums;
  int64_t tokens, vocabulary, n_columns;
  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1), need_tokens(c.in[0]), need_float(c.in[1], "dy");
    need_size(c.in[1], elements(c.in[0]) * columns(c.out[0]), "dy"), need_sums(c, c.in[1].dtype, 2, 0);
    need(c.out[0].ndim == 2 && c.out[0].dims[0] == c.integer("rows") && c.out[0].dims[0] < int64_t{1} << 31,
         "dtable must be (rows, H)");
  }
  explicit EmbeddingGrad(const Call& c)
      : type(c.in[1].dtype),
        sums(c.out[0].dtype),
        tokens(elements(c.in[0])),
        vocabulary(c.out[0].dims[0]),
        n_columns(columns(c.out[0])) {}
  void run(const Args& a, cudaStream_t queue) const {
    by_types(type, sums, [&]<class T, class S>(T, S) {
      launch<embedding_grad<T, S>>(static_cast<unsigned>(vocabulary), 128, sizeof(int32_t[256]), queue,
                                   a.in<int32_t>(0), tokens, a.in<T>(1), a.in<S>(2), a.out<S>(0), n_columns, 0);
    });
  }
};

struct Positions {
  static constexpr const char* op = ENG_OP_POSITIONS;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t type;
  int64_t n, length, n_columns, offset;
  static void check(const Call& c) {
    need_counts(c, 2, 4, 1, 1), need_float(c.in[0], "x"), need(c.in[0].ndim == 3, "x must be (B, T, H)");
    need_positions(c, 3, c.in[0]);
    need_type(c.in[1], c.in[0].dtype, "the table"), need_type(c.out[0], c.in[0].dtype, "y");
    need(columns(c.in[1]) == columns(c.in[0]) && c.in[1].dims[0] >= c.in[0].dims[1] + c.integer("offset"),
         "the table must be (P, H), P at least T + offset");
    need_size(c.out[0], elements(c.in[0]), "y");
  }
  explicit Positions(const Call& c)
      : type(c.in[0].dtype),
        n(elements(c.in[0])),
        length(c.in[0].dims[1]),
        n_columns(columns(c.in[0])),
        offset(c.integer("offset")) {}
  void run(const Args& a, cudaStream_t queue) const {
    by_type(type, [&]<class T>(T) {
      const auto with = [&]<bool packed>() {
        launch_each(n, queue,
                    PositionsOf<T, packed>{a.in<T>(0), a.in<T>(1), a.out<T>(0), a.in<int64_t>(2), a.in<int32_t>(3),
                                           length, n_columns, offset});
      };
      a.in<int32_t>(3) ? with.template operator()<true>() : with.template operator()<false>();
    });
  }
};

struct PositionsGrad {
  static constexpr const char* op = ENG_OP_POSITIONS_GRAD;
  int32_t type, sums;
  int64_t n, batch, length, n_columns, offset;
  static void check(const Call& c) {
    need_counts(c, 1, 3, 1, 1), need_float(c.in[0], "dy"), need(c.in[0].ndim == 3, "dy must be (B, T, H)");
    need_positions(c, 2, c.in[0]);
    need_sums(c, c.in[0].dtype, 1, 0);
    need(columns(c.out[0]) == columns(c.in[0]) && c.out[0].dims[0] == c.integer("rows") &&
             c.integer("rows") >= c.in[0].dims[1] + c.integer("offset"),
         "dtable must be (rows, H), rows at least T + offset");
  }
  explicit PositionsGrad(const Call& c)
      : type(c.in[0].dtype),
        sums(c.out[0].dtype),
        n(elements(c.out[0])),
        batch(c.in[0].dims[0]),
        length(c.in[0].dims[1]),
        n_columns(columns(c.in[0])),
        offset(c.integer("offset")) {}
  void run(const Args& a, cudaStream_t queue) const {
    by_types(type, sums, [&]<class T, class S>(T, S) {
      if (const int32_t* given = a.in<int32_t>(2))
        return launch<embedding_grad<T, S>>(static_cast<unsigned>(n / n_columns), 128, sizeof(int32_t[256]), queue,
                                            given, batch * length, a.in<T>(0), a.in<S>(1), a.out<S>(0), n_columns,
                                            static_cast<int32_t>(offset));
      launch_each(n, queue,
                  PositionsGradOf<T, S>{a.in<T>(0), a.in<S>(1), a.out<S>(0), batch, length, n_columns, offset});
    });
  }
};

// The third input: rope_step has counters, rope may have positions.
template <bool step>
struct Rope {
  static constexpr const char* op = step ? ENG_OP_ROPE_STEP : ENG_OP_ROPE;
  int32_t type;
  int64_t n, length, heads, half;
  float sign;
  static void check(const Call& c) {
    need_counts(c, step ? 3 : 2, 3, 1, 1), need_float(c.in[0], "x"),
        need(c.in[0].ndim == 3, "x must be (B, T, heads*D)");
    const int64_t heads = c.integer("heads");
    c.integer("inverse");
    need(heads > 0 && columns(c.in[0]) % (2 * heads) == 0, "x must be (B, T, heads*D) with D even");
    need_type(c.in[1], ENG_F32, "the table"), need_type(c.out[0], c.in[0].dtype, "y");
    need(columns(c.in[1]) * heads == columns(c.in[0]) && c.in[1].dims[0] >= c.in[0].dims[1],
         "the table must be (T, D)");
    need_size(c.out[0], elements(c.in[0]), "y");
    if (step)
      need_type(c.in[2], ENG_I64, "counters"), need_size(c.in[2], ENG_C_COUNT, "counters");
    else
      need_positions(c, 2, c.in[0]);
  }
  explicit Rope(const Call& c)
      : type(c.in[0].dtype),
        n(elements(c.in[0]) / 2),
        length(c.in[0].dims[1]),
        heads(c.integer("heads")),
        half(columns(c.in[1]) / 2),
        sign(c.integer("inverse") ? -1.0f : 1.0f) {}
  void run(const Args& a, cudaStream_t queue) const {
    by_type(type, [&]<class T>(T) {
      const int64_t* counters = step ? a.in<int64_t>(2) : nullptr;
      const int32_t* positions = step ? nullptr : a.in<int32_t>(2);
      const auto with = [&]<bool packed>() {
        launch_each(
            n, queue,
            RopeOf<T, packed>{a.in<T>(0), a.out<T>(0), a.in<float>(1), counters, positions, length, heads, half, sign});
      };
      positions ? with.template operator()<true>() : with.template operator()<false>();
    });
  }
};

struct Dropout {
  static constexpr const char* op = ENG_OP_DROPOUT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t type;
  int64_t n, batch;
  double p;
  uint64_t seed;
  uint32_t stream;
  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1), need_float(c.in[0], "x"),
        need(c.in[0].ndim >= 1 && c.in[0].dims[0] > 0, "x must be (B, ...)");
    need_type(c.in[1], ENG_I64, "counters"), need_size(c.in[1], ENG_C_COUNT, "counters");
    need_type(c.out[0], c.in[0].dtype, "y"), need_size(c.out[0], elements(c.in[0]), "y");
    need(c.real("p") >= 0 && c.real("p") < 1, "p must be at least 0 and below 1");
  }
  explicit Dropout(const Call& c)
      : type(c.in[0].dtype),
        n(elements(c.in[0])),
        batch(c.in[0].dims[0]),
        p(c.real("p")),
        seed(static_cast<uint64_t>(c.integer("seed"))),
        stream(static_cast<uint32_t>(c.integer("stream"))) {}
  void run(const Args& a, cudaStream_t queue) const {
    by_type(type, [&]<class T>(T) {
      launch_each(n, queue,
                  DropoutOf<T>{a.in<T>(0), a.out<T>(0), a.in<int64_t>(1), batch, n / batch, seed, stream,
                               cpu::dropout_threshold(p), static_cast<float>(1.0 / (1.0 - p))});
    });
  }
};

template <Fill kind>
struct Init {
  static constexpr const char* op = kind == Fill::constant ? ENG_OP_INIT_CONSTANT
                                    : kind == Fill::normal ? ENG_OP_INIT_NORMAL
                                                           : ENG_OP_INIT_UNIFORM;
  static constexpr uint32_t flags = kind == Fill::normal ? 0 : ENG_KERNEL_EXACT;
  int32_t type;
  int64_t n;
  double a = 0, b = 0;
  uint64_t seed = 0, stream = 0, first;
  static void check(const Call& c) {
    need_counts(c, 0, 0, 1, 1), need_float(c.out[0], "out"),
        need(c.integer("first") >= 0, "first must not be negative");
    (void)Init(c);
  }
  explicit Init(const Call& c)
      : type(c.out[0].dtype), n(elements(c.out[0])), first(static_cast<uint64_t>(c.integer("first"))) {
    a = c.real(kind == Fill::constant ? "value" : kind == Fill::normal ? "mean" : "low");
    if (kind == Fill::constant) return;
    b = c.real(kind == Fill::normal ? "std" : "high");
    seed = static_cast<uint64_t>(c.integer("seed")), stream = static_cast<uint64_t>(c.integer("stream"));
  }
  void run(const Args& args, cudaStream_t queue) const {
    by_type(type, [&]<class T>(T) {
      launch_each(n, queue, FillOf<T>{args.out<T>(0), kind, a, b, seed, stream, first});
    });
  }
};

}  // namespace sequence

void add_sequence(List& list) {
  using namespace sequence;
  list.insert(list.end(), {&kernel<Embedding>, &kernel<EmbeddingGrad>, &kernel<Positions>, &kernel<PositionsGrad>,
                           &kernel<Rope<false>>, &kernel<Rope<true>>, &kernel<Dropout>, &kernel<Init<Fill::constant>>,
                           &kernel<Init<Fill::normal>>, &kernel<Init<Fill::uniform>>});
}

}  // namespace cuda
