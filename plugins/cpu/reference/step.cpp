// SPDX-License-Identifier: Apache-2.0
// The step's own ops: begin, get_row, put_row, sum_squares, finish; and fold, the sum over ranks.
#include <cstring>
#include <vector>

#include "../../common/lanes.hpp"
#include "../../common/loss_seed.hpp"
#include "../../common/scaler.hpp"
#include "reference.hpp"

namespace reference {
namespace {

uint64_t bytes_of(const eng_desc& d) {
  return uint64_t(elements(d)) * common::dtype_size(d.dtype);
}

void expect_count(const Call& c, size_t n_in, size_t n_out) {
  if (c.in.size() != n_in || c.out.size() != n_out)
    throw Error{ENG_INVALID, "takes " + std::to_string(n_in) + " inputs and gives " + std::to_string(n_out)};
}

void expect_scalars(const eng_desc& d) {
  expect(is_real(d) && elements(d) == ENG_S_COUNT, "scalars must be f32 (32)");
}

// Copies what an op does not change from an input to its output, unless both are the same memory.
void keep(void* to, const void* from, uint64_t bytes) {
  if (to != from) std::memcpy(to, from, bytes);
}

// counters[MICRO], which must be the number of one of `n` rows.
int64_t micro_batch(const int64_t* counters, int64_t n) {
  const int64_t micro = counters[ENG_C_MICRO];
  if (micro < 0 || micro >= n)
    throw Error{ENG_OUT_OF_RANGE, "micro-batch " + std::to_string(micro) + " of " + std::to_string(n)};
  return micro;
}

struct Begin {
  static constexpr const char* op = ENG_OP_BEGIN;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;

  explicit Begin(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_count(c, 2, 2);
    expect(is_real(c, 0) && elements(c.in[0]) == 8, "inputs must be f32 (8)");
    expect_counters(c.in[1]), expect_scalars(c.out[0]), expect_counters(c.out[1]);
  }
  void run(const Args& a) const {
    int64_t* counters = a.out<int64_t>(1);
    keep(counters, a.in<int64_t>(1), bytes_of(c.in[1]));
    counters[ENG_C_MICRO] = 0;
    counters[ENG_C_STEP] += 1;
    const RealsOut scalars(c, a, 0);
    scalars.set(ENG_S_INV_TOKENS, Reals(c, a, 0)[0]);
    scalars.set(ENG_S_LOSS_SCALE, 1.0);
    scalars.set(ENG_S_MAY_SKIP, 0.0);
  }
};

struct Copy {
  static constexpr const char* op = ENG_OP_COPY;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  uint64_t bytes;

  explicit Copy(const Call& c) : bytes(bytes_of(c.out[0])) {}
  static void check(const Call& c) {
    expect_count(c, 1, 1);
    expect(c.in[0].dtype == c.out[0].dtype && elements(c.in[0]) == elements(c.out[0]), "a copy is of equal shape");
  }
  void run(const Args& a) const {
    if (bytes) std::memcpy(a.out<char>(0), a.in<char>(0), bytes);
  }
};

struct GetRow {
  static constexpr const char* op = ENG_OP_GET_ROW;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;

  explicit GetRow(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_count(c, 2, 1);
    expect_counters(c.in[1]);
    expect(c.in[0].ndim >= 1 && c.out[0].dtype == c.in[0].dtype &&
               elements(c.out[0]) * c.in[0].dims[0] == elements(c.in[0]),
           "out must be one row of rows (A, ...)");
  }
  void run(const Args& a) const {
    const uint64_t bytes = bytes_of(c.out[0]);
    const int64_t micro = micro_batch(a.in<int64_t>(1), c.in[0].dims[0]);
    std::memcpy(a.out<char>(0), a.in<char>(0) + uint64_t(micro) * bytes, bytes);
  }
};

struct PutRow {
  static constexpr const char* op = ENG_OP_PUT_ROW;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;

  explicit PutRow(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_count(c, 3, 2);
    expect_counters(c.in[2]), expect_counters(c.out[1]);
    expect(c.in[1].ndim >= 1 && c.in[0].dtype == c.in[1].dtype && c.out[0].dtype == c.in[1].dtype &&
               elements(c.in[0]) * c.in[1].dims[0] == elements(c.in[1]) && elements(c.out[0]) == elements(c.in[1]),
           "row must be one row of rows (A, ...)");
  }
  void run(const Args& a) const {
    const uint64_t bytes = bytes_of(c.in[0]);
    const int64_t micro = micro_batch(a.in<int64_t>(2), c.in[1].dims[0]);
    keep(a.out<char>(0), a.in<char>(1), bytes_of(c.in[1]));
    keep(a.out<char>(1), a.in<char>(2), bytes_of(c.in[2]));
    std::memcpy(a.out<char>(0) + uint64_t(micro) * bytes, a.in<char>(0), bytes);
    a.out<int64_t>(1)[ENG_C_MICRO] = micro + 1;
  }
};

struct SumSquares {
  static constexpr const char* op = ENG_OP_SUM_SQUARES;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  static constexpr int64_t chunk = 4096, lanes = 64;
  Call c;

  explicit SumSquares(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_inputs(c, {0});
    expect_types(c, 1, {0}, 1, {});
    expect(c.out[0].dtype == (is_half(c.in[0]) ? int32_t{ENG_F32} : c.in[0].dtype), "out must be f32");
    expect(elements(c.in[0]) == elements(c.out[0]) * chunk, "x must be n x 4096 elements, out (n)");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      using Sum = Arithmetic<T>;
      for (int64_t n = 0; n < elements(c.out[0]); ++n) {
        const T* x = a.in<T>(0) + n * chunk;
        Sum lane[lanes] = {};
        for (int64_t i = 0; i < chunk; ++i) lane[i % lanes] = std::fma(Sum(x[i]), Sum(x[i]), lane[i % lanes]);
        for (int64_t half = lanes / 2; half > 0; half /= 2)
          for (int64_t j = 0; j < half; ++j) lane[j] = lane[j] + lane[j + half];
        a.out<Sum>(0)[n] = lane[0];
      }
    });
  }
};

struct Finish {
  static constexpr const char* op = ENG_OP_FINISH;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  double max_norm;

  explicit Finish(const Call& call) : c(call), max_norm(c.real("max_norm")) {}
  static void check(const Call& c) {
    expect_count(c, 4, 2);
    expect(is_real(c, 0), "partials must be f32 (n)");
    expect(is_real(c, 1) && c.in[1].ndim == 2 && columns(c.in[1]) <= ENG_S_COUNT - ENG_S_LR,
           "table must be f32 (steps, columns), at most 24 columns");
    expect_scalars(c.in[2]), expect_counters(c.in[3]), expect_scalars(c.out[0]), expect_counters(c.out[1]);
    expect(c.in[2].dtype == c.out[0].dtype, "scalars must keep their type");
    c.real("max_norm");
  }
  void run(const Args& a) const {
    const int64_t update = a.in<int64_t>(3)[ENG_C_UPDATES], steps = c.in[1].dims[0], n = columns(c.in[1]);
    if (update < 0 || update >= steps)
      throw Error{ENG_OUT_OF_RANGE, "update " + std::to_string(update) + " of a table for " + std::to_string(steps)};

    const Reals partials(c, a, 0), table(c, a, 1);  // (n), (steps, columns)
    int64_t* counters = a.out<int64_t>(1);
    keep(a.out<char>(0), a.in<char>(2), bytes_of(c.in[2]));
    keep(counters, a.in<int64_t>(3), bytes_of(c.in[3]));
    const RealsOut scalars(c, a, 0);

    const double sum = common::sum_in_lanes(elements(c.in[0]), [&](int64_t i) { return partials[i]; });
    const double scale = scalars[ENG_S_LOSS_SCALE], norm = std::sqrt(sum) / scale;
    const bool ok = std::isfinite(norm);
    scalars.set(ENG_S_NORM, norm);
    scalars.set(ENG_S_OK, ok ? 1.0 : 0.0);
    scalars.set(ENG_S_CLIP, (max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1.0) / scale);

    for (int64_t k = 0; k < n; ++k) scalars.set(ENG_S_LR + k, table[update * n + k]);
    if (ok) counters[ENG_C_UPDATES] = update + 1;
  }
};

// Level by level: neighbours are added, one without a neighbour passes on.
struct Fold {
  static constexpr const char* op = ENG_OP_FOLD;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;

  explicit Fold(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_inputs(c, {0});
    expect_types(c, 1, {0}, 1, {});
    expect_sums(c, c.in[0].dtype, {}, {0});
    const int64_t rows = c.integer("rows");
    expect(rows >= 1 && elements(c.in[0]) == rows * elements(c.out[0]), "x must be `rows` rows of the sum's length");
  }
  void run(const Args& a) const {
    const Reals x(c, a, 0);
    by_type(c.out[0].dtype, [&]<class T>(T) {
      const int64_t n = elements(c.out[0]);
      std::vector<T> level(static_cast<size_t>(c.integer("rows")));
      for (int64_t j = 0; j < n; ++j) {
        size_t m = level.size();
        for (size_t r = 0; r < m; ++r) level[r] = T(x[int64_t(r) * n + j]);
        for (; m > 1; m = (m + 1) / 2)
          for (size_t r = 0; r < m; r += 2) level[r / 2] = r + 1 < m ? T(level[r] + level[r + 1]) : level[r];
        a.out<T>(0)[j] = level[0];
      }
    });
  }
};

}  // namespace

void add_step(List& list) {
  list.insert(list.end(),
              {&common::kernel<Begin>, &common::kernel<GetRow>, &common::kernel<PutRow>, &common::kernel<Copy>,
               &common::kernel<SumSquares>, &common::kernel<Finish>, &common::kernel<Fold>,
               &common::kernel<common::LossScale>, &common::kernel<common::Scaler>, &common::kernel<common::LossSeed>});
}

}  // namespace reference
