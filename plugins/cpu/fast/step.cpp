// SPDX-License-Identifier: Apache-2.0
// The work of a step besides computing: begin, rows of the inputs and of the losses, norm and schedule (finish).
#include <cmath>
#include <cstring>
#include <iterator>

#include "../../common/lanes.hpp"
#include "../../common/loss_seed.hpp"
#include "../../common/scaler.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

uint64_t bytes_of(const eng_desc& d) {
  return static_cast<uint64_t>(elements(d)) * dtype_size(d.dtype);
}
void need_row(const eng_desc& all, const eng_desc& row) {
  if (all.ndim < 1 || row.dtype != all.dtype || elements(row) * all.dims[0] != elements(all))
    throw Error{ENG_INVALID, describe(row) + " is not one row of " + describe(all)};
}

void keep(void* to, const void* from, uint64_t bytes) {
  if (to != from && bytes) std::memcpy(to, from, bytes);
}

int64_t micro_batch(const int64_t* counters, int64_t n) {
  const int64_t micro = counters[ENG_C_MICRO];
  if (micro < 0 || micro >= n)
    throw Error{ENG_OUT_OF_RANGE, "micro-batch " + std::to_string(micro) + " of " + std::to_string(n)};
  return micro;
}

struct Begin {
  static constexpr const char* op = ENG_OP_BEGIN;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 2, 2);
    need_f32(c.in[0], "inputs");
    need_size(c.in[0], 8, "inputs");
    need_counters(c.in[1]), need_scalars(c.out[0]), need_counters(c.out[1]);
  }
  explicit Begin(const Call&) {}
  void run(const Args& args) const {
    int64_t* counters = args.out<int64_t>(1);
    keep(counters, args.in<int64_t>(1), ENG_C_COUNT * sizeof(int64_t));
    counters[ENG_C_MICRO] = 0;
    counters[ENG_C_STEP] += 1;
    float* scalars = args.out<float>(0);
    scalars[ENG_S_INV_TOKENS] = args.in<float>(0)[0];
    scalars[ENG_S_LOSS_SCALE] = 1.0f;
    scalars[ENG_S_MAY_SKIP] = 0.0f;
  }
};

struct GetRow {
  static constexpr const char* op = ENG_OP_GET_ROW;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  unsigned threads;
  int64_t n, bytes;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_counters(c.in[1]);
    need_row(c.in[0], c.out[0]);
  }
  explicit GetRow(const Call& c)
      : threads(c.parallel), n(c.in[0].dims[0]), bytes(static_cast<int64_t>(bytes_of(c.out[0]))) {}
  void run(const Args& args) const {
    const char* row = args.in<char>(0) + micro_batch(args.in<int64_t>(1), n) * bytes;
    char* out = args.out<char>(0);
    in_ranges(threads, bytes, 1, 4096,
              [&](int64_t first, int64_t last) { std::memcpy(out + first, row + first, size_t(last - first)); });
  }
};

struct PutRow {
  static constexpr const char* op = ENG_OP_PUT_ROW;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t n;
  uint64_t bytes, all_bytes;

  static void check(const Call& c) {
    need_counts(c, 3, 3, 2, 2);
    need_counters(c.in[2]), need_counters(c.out[1]);
    need_row(c.in[1], c.in[0]);
    need_same(c.in[1], c.out[0], "rows before and after");
  }
  explicit PutRow(const Call& c) : n(c.in[1].dims[0]), bytes(bytes_of(c.in[0])), all_bytes(bytes_of(c.in[1])) {}
  void run(const Args& args) const {
    const int64_t micro = micro_batch(args.in<int64_t>(2), n);
    char* out = args.out<char>(0);
    int64_t* counters = args.out<int64_t>(1);
    keep(out, args.in<char>(1), all_bytes);
    keep(counters, args.in<int64_t>(2), ENG_C_COUNT * sizeof(int64_t));
    keep(out + static_cast<uint64_t>(micro) * bytes, args.in<char>(0), bytes);
    counters[ENG_C_MICRO] = micro + 1;
  }
};

struct Copy {
  static constexpr const char* op = ENG_OP_COPY;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  unsigned threads;
  int64_t bytes;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_same(c.in[0], c.out[0], "x and its copy");
  }
  explicit Copy(const Call& c) : threads(c.parallel), bytes(static_cast<int64_t>(bytes_of(c.out[0]))) {}
  void run(const Args& args) const {
    const char* x = args.in<char>(0);
    char* out = args.out<char>(0);
    in_ranges(threads, bytes, 1, 4096,
              [&](int64_t first, int64_t last) { std::memcpy(out + first, x + first, size_t(last - first)); });
  }
};

struct Finish {
  static constexpr const char* op = ENG_OP_FINISH;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t partials, steps, wide;
  double max_norm;

  static void check(const Call& c) {
    need_counts(c, 4, 4, 2, 2);
    need_f32(c.in[0], "partials");
    need_f32(c.in[1], "the table");
    if (c.in[1].ndim != 2 || columns(c.in[1]) > ENG_S_COUNT - ENG_S_LR)
      throw Error{ENG_INVALID,
                  "the table must be (steps, columns) with at most 24 columns, it is " + describe(c.in[1])};
    need_scalars(c.in[2]), need_counters(c.in[3]), need_scalars(c.out[0]), need_counters(c.out[1]);
    c.real("max_norm");
  }
  explicit Finish(const Call& c)
      : partials(elements(c.in[0])), steps(c.in[1].dims[0]), wide(c.in[1].dims[1]), max_norm(c.real("max_norm")) {}
  void run(const Args& args) const {
    const float *partial = args.in<float>(0), *table = args.in<float>(1);
    float* scalars = args.out<float>(0);
    int64_t* counters = args.out<int64_t>(1);
    keep(scalars, args.in<float>(2), ENG_S_COUNT * sizeof(float));
    keep(counters, args.in<int64_t>(3), ENG_C_COUNT * sizeof(int64_t));
    const int64_t update = counters[ENG_C_UPDATES];
    if (update < 0 || update >= steps)
      throw Error{ENG_OUT_OF_RANGE, "update " + std::to_string(update) + " of a table for " + std::to_string(steps)};

    const double sum = common::sum_in_lanes(partials, [&](int64_t i) { return partial[i]; });
    const double scale = static_cast<double>(scalars[ENG_S_LOSS_SCALE]), norm = std::sqrt(sum) / scale;
    const double clip = max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1.0;
    const bool ok = std::isfinite(norm);
    scalars[ENG_S_NORM] = static_cast<float>(norm);
    scalars[ENG_S_OK] = ok ? 1.0f : 0.0f;
    scalars[ENG_S_CLIP] = static_cast<float>(clip / scale);
    keep(scalars + ENG_S_LR, table + update * wide, static_cast<uint64_t>(wide) * sizeof(float));
    if (ok) counters[ENG_C_UPDATES] = update + 1;
  }
};

}  // namespace

extern const eng_kernel* const step_kernels[] = {&kernel<Begin>,  &kernel<GetRow>,  &kernel<PutRow>,
                                                 &kernel<Copy>,   &kernel<Finish>,  &kernel<LossScale>,
                                                 &kernel<Scaler>, &kernel<LossSeed>};
extern const uint32_t step_kernel_count = std::size(step_kernels);

}  // namespace cpu
