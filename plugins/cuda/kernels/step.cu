// SPDX-License-Identifier: Apache-2.0
// The step's own ops, all EXACT: begin, get_row, put_row, sum_squares, finish, loss_scale, scaler; and fold.
// Numbers of micro-batches and updates are on the device; that they are in range is the host's promise.
#include <cmath>

#include "../../common/cuda/glue.hpp"
#include "../../common/cuda/lanes.cuh"
#include "../../common/scaler.hpp"
#include "list.hpp"

namespace cuda {
namespace step {

// Copies an input that the op leaves as it is to its output, unless both are the same memory. One block.
template <class T>
__device__ __forceinline__ void keep(T* to, const T* from, int64_t n) {
  if (to != from)
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
}

__global__ void begin(const float* inputs, const int64_t* counters_in, float* scalars, int64_t* counters) {
  keep(counters, counters_in, ENG_C_COUNT);
  __syncthreads();
  if (threadIdx.x) return;
  counters[ENG_C_MICRO] = 0;
  counters[ENG_C_STEP] += 1;
  scalars[ENG_S_INV_TOKENS] = inputs[0];
  scalars[ENG_S_LOSS_SCALE] = 1.0f;
  scalars[ENG_S_MAY_SKIP] = 0.0f;
}

// Bytes, in units of T.
template <class T>
__global__ void get_row(const T* rows, const int64_t* counters, T* row, int64_t n) {
  const T* from = rows + counters[ENG_C_MICRO] * n;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    row[i] = from[i];
}

// One block: what is put is small.
__global__ void put_row(const char* row, const char* rows_in, const int64_t* counters_in, char* rows, int64_t* counters,
                        int64_t bytes, int64_t all) {
  const int64_t micro = counters_in[ENG_C_MICRO];
  keep(rows, rows_in, all);
  keep(counters, counters_in, ENG_C_COUNT);
  __syncthreads();
  for (int64_t i = threadIdx.x; i < bytes; i += blockDim.x) rows[micro * bytes + i] = row[i];
  if (threadIdx.x == 0) counters[ENG_C_MICRO] = micro + 1;
}

// per_label: the term is divided by the labels that count; the weight of any other one contains its divisor.
__global__ void loss_seed(const float* scalars, float weight, bool per_label, float* out) {
  const float divided = per_label ? scalars[ENG_S_INV_TOKENS] : 1.0f;
  if (threadIdx.x == 0) out[0] = divided * scalars[ENG_S_LOSS_SCALE] * weight;
}

constexpr int chunk = 4096, lanes = 64;

template <class T>
__global__ void sum_squares(const T* x, float* out) {
  float* const fold = shared<float[lanes]>();
  const int lane = static_cast<int>(threadIdx.x);
  const T* const from = x + static_cast<int64_t>(blockIdx.x) * chunk;
  float sum = 0;
  for (int i = lane; i < chunk; i += lanes) {
    const float v = to_f32(from[i]);
    sum = fmaf(v, v, sum);
  }
  fold[lane] = sum;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) fold[lane] = fold[lane] + fold[lane + half];
  }
  if (lane == 0) out[blockIdx.x] = fold[0];
}

__global__ void __launch_bounds__(lanes_block)
    finish(const float* partials, int64_t n, const float* table, int64_t columns, const float* scalars_in,
           const int64_t* counters_in, float* scalars, int64_t* counters, double max_norm) {
  keep(scalars, scalars_in, ENG_S_COUNT), keep(counters, counters_in, ENG_C_COUNT);
  const double sum = sum_in_lanes(partials, n);
  if (threadIdx.x) return;
  const double scale = scalars[ENG_S_LOSS_SCALE], norm = sqrt(sum) / scale;
  const bool ok = norm - norm == 0.0;  // finite
  const int64_t update = counters[ENG_C_UPDATES];
  scalars[ENG_S_NORM] = static_cast<float>(norm);
  scalars[ENG_S_OK] = ok ? 1.0f : 0.0f;
  scalars[ENG_S_CLIP] = static_cast<float>((max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1.0) / scale);
  for (int64_t k = 0; k < columns; ++k) scalars[ENG_S_LR + k] = table[update * columns + k];
  if (ok) counters[ENG_C_UPDATES] = update + 1;
}

constexpr int most_rows = 1024;

// The tree over `count` rows: of two parts, the first of which has as many rows as the largest power of two below.
template <class T, class Y, int count>
struct FoldOf {
  const T* x;
  Y* y;
  int64_t n;
  static constexpr int width = widest<T, Y>;
  template <int W>
  __device__ void at(int64_t i) const {
    float sum[W];
    tree<0, count>(i, sum);
    store(y + i, sum);
  }
  template <int first, int many, int W>
  __device__ void tree(int64_t i, float (&sum)[W]) const {
    if constexpr (many == 1) {
      load(x + first * n + i, sum);
      for (int k = 0; k < W; ++k) sum[k] = to_f32(rounded<Y>(sum[k]));
    } else {
      constexpr int half = many > 4 ? 4 : many > 2 ? 2 : 1;
      float more[W];
      tree<first, half>(i, sum), tree<first + half, many - half>(i, more);
      for (int k = 0; k < W; ++k) sum[k] = to_f32(rounded<Y>(sum[k] + more[k]));
    }
  }
};
// The tree of FoldOf over any number of rows.
template <class T, class Y>
struct FoldAnyOf {
  const T* x;
  Y* y;
  int64_t n;
  int rows;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) y[i + k] = one(i + k);
  }
  // A stack of finished subtrees, one for each bit of the number of rows that were read.
  __device__ Y one(int64_t i) const {
    Y stack[11];
    int depth = 0;
    for (int r = 0; r < rows; ++r) {
      Y sum = rounded<Y>(to_f32(x[r * n + i]));
      for (int bit = r; bit & 1; bit >>= 1) sum = rounded<Y>(to_f32(stack[--depth]) + to_f32(sum));
      stack[depth++] = sum;
    }
    // Rows without a neighbour join from the right.
    Y sum = stack[--depth];
    while (depth > 0) sum = rounded<Y>(to_f32(stack[--depth]) + to_f32(sum));
    return sum;
  }
};

__global__ void loss_scale(common::ScalerRule rule, const float* state, const float* scalars_in, float* scalars) {
  keep(scalars, scalars_in, ENG_S_COUNT);
  __syncthreads();
  if (threadIdx.x == 0) rule.begin(state, scalars);
}
__global__ void scaler(common::ScalerRule rule, const float* state_in, const float* scalars, float* state) {
  keep(state, state_in, ENG_SCALER_COUNT);
  __syncthreads();
  if (threadIdx.x == 0) rule.after(scalars[ENG_S_OK] != 0.0f, state);
}

// ---- ops -------------------------------------------------------------------------------------------------------

constexpr unsigned block = 64;

int64_t bytes_of(const eng_desc& d) {
  return elements(d) * common::dtype_size(d.dtype);
}

struct Begin : Exact {
  static constexpr const char* op = ENG_OP_BEGIN;
  static void check(const Call& c) {
    need_counts(c, 2, 2, 2, 2), need_tensor(c.in[0], ENG_F32, 8, "inputs");
    need_counters(c.in[1]), need_scalars(c.out[0]), need_counters(c.out[1]);
  }
  static void run(const Call&, const Args& a, cudaStream_t stream) {
    launch<begin>(1, block, 0, stream, a.in<float>(0), a.in<int64_t>(1), a.out<float>(0), a.out<int64_t>(1));
  }
};

struct GetRow : Exact {
  static constexpr const char* op = ENG_OP_GET_ROW;
  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1), need_counters(c.in[1]);
    need(c.in[0].ndim >= 1 && c.out[0].dtype == c.in[0].dtype &&
             elements(c.out[0]) * c.in[0].dims[0] == elements(c.in[0]),
         "out must be one row of rows (A, ...)");
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const int64_t bytes = bytes_of(c.out[0]);
    const auto with = [&]<class T>(T) {
      const int64_t n = bytes / static_cast<int64_t>(sizeof(T));
      launch<get_row<T>>(blocks_for(n, 256), 256, 0, stream, a.in<T>(0), a.in<int64_t>(1), a.out<T>(0), n);
    };
    bytes % 4 ? with(char{}) : with(uint32_t{});
  }
};

struct PutRow : Exact {
  static constexpr const char* op = ENG_OP_PUT_ROW;
  static void check(const Call& c) {
    need_counts(c, 3, 3, 2, 2), need_counters(c.in[2]), need_counters(c.out[1]);
    need(c.in[1].ndim >= 1 && c.in[0].dtype == c.in[1].dtype && c.out[0].dtype == c.in[1].dtype &&
             elements(c.in[0]) * c.in[1].dims[0] == elements(c.in[1]) && elements(c.out[0]) == elements(c.in[1]),
         "row must be one row of rows (A, ...)");
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    launch<put_row>(1, block, 0, stream, a.in<char>(0), a.in<char>(1), a.in<int64_t>(2), a.out<char>(0),
                    a.out<int64_t>(1), bytes_of(c.in[0]), bytes_of(c.in[1]));
  }
};

struct LossSeed : Exact {
  static constexpr const char* op = ENG_OP_LOSS_SEED;
  float weight;
  bool per_label;
  explicit LossSeed(const Call& c)
      : weight(static_cast<float>(c.real("weight"))), per_label(c.integer_or("labels", 1) != 0) {}
  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1), need_scalars(c.in[0]), need_tensor(c.out[0], ENG_F32, 1, "out");
  }
  void run(const Args& a, cudaStream_t stream) const {
    launch<loss_seed>(1, 32, 0, stream, a.in<float>(0), weight, per_label, a.out<float>(0));
  }
};

struct SumSquares : Exact {
  static constexpr const char* op = ENG_OP_SUM_SQUARES;
  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1), need_float(c.in[0], "x"), need_type(c.out[0], ENG_F32, "out");
    need_size(c.in[0], elements(c.out[0]) * chunk, "x");
    need(elements(c.out[0]) < int64_t{1} << 31, "x has too many chunks for one grid");
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      launch<sum_squares<T>>(static_cast<unsigned>(elements(c.out[0])), lanes, sizeof(float[lanes]), stream, a.in<T>(0),
                             a.out<float>(0));
    });
  }
};

struct Finish : Exact {
  static constexpr const char* op = ENG_OP_FINISH;
  double max_norm;
  explicit Finish(const Call& c) : max_norm(c.real("max_norm")) {}
  static void check(const Call& c) {
    need_counts(c, 4, 4, 2, 2), need_type(c.in[0], ENG_F32, "partials"), need_type(c.in[1], ENG_F32, "the table");
    need(c.in[1].ndim == 2 && columns(c.in[1]) <= ENG_S_COUNT - ENG_S_LR, "the table has at most 24 columns");
    need_scalars(c.in[2]), need_counters(c.in[3]), need_scalars(c.out[0]), need_counters(c.out[1]);
    c.real("max_norm");
  }
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    launch<finish>(1, lanes_block, sizeof(Lanes), stream, a.in<float>(0), elements(c.in[0]), a.in<float>(1),
                   columns(c.in[1]), a.in<float>(2), a.in<int64_t>(3), a.out<float>(0), a.out<int64_t>(1), max_norm);
  }
};

struct Fold : Exact {
  static constexpr const char* op = ENG_OP_FOLD;
  int rows;
  explicit Fold(const Call& c) : rows(static_cast<int>(c.integer("rows"))) {}
  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1), need_float(c.in[0], "x");
    if (c.out[0].dtype != c.in[0].dtype) need_type(c.out[0], ENG_F32, "the sum");
    const int64_t rows = c.integer("rows");
    need(rows >= 1 && elements(c.in[0]) == rows * elements(c.out[0]), "x must be `rows` rows of the sum's length");
    if (rows > most_rows) throw Error{ENG_UNSUPPORTED, "folds up to 1024 rows"};
  }
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    by_types(c.in[0].dtype, c.out[0].dtype, [&]<class T, class Y>(T, Y) {
      const int64_t n = elements(c.out[0]);
      const auto of = [&]<int count>() { launch_each(n, stream, FoldOf<T, Y, count>{a.in<T>(0), a.out<Y>(0), n}); };
      const bool whole = n % widest<T, Y> == 0;  // so each row begins where vectors may
      if (whole && rows == 2)
        of.template operator()<2>();
      else if (whole && rows == 4)
        of.template operator()<4>();
      else if (whole && rows == 8)
        of.template operator()<8>();
      else
        launch_each(n, stream, FoldAnyOf<T, Y>{a.in<T>(0), a.out<Y>(0), n, rows});
    });
  }
};

struct LossScale : common::LossScale {
  using common::LossScale::LossScale;
  void run(const Args& a, cudaStream_t stream) const {
    launch<loss_scale>(1, block, 0, stream, rule, a.in<float>(0), a.in<float>(1), a.out<float>(0));
  }
};
struct Scaler : common::Scaler {
  using common::Scaler::Scaler;
  void run(const Args& a, cudaStream_t stream) const {
    launch<scaler>(1, block, 0, stream, rule, a.in<float>(0), a.in<float>(1), a.out<float>(0));
  }
};

}  // namespace step

void add_step(List& list) {
  using namespace step;
  list.insert(list.end(), {&kernel<Begin>, &kernel<GetRow>, &kernel<PutRow>, &kernel<SumSquares>, &kernel<Finish>,
                           &kernel<Fold>, &kernel<LossScale>, &kernel<Scaler>, &kernel<LossSeed>});
}

}  // namespace cuda
