// SPDX-License-Identifier: Apache-2.0
// Rows of a table by token or by position, and their gradients.
#include <cstring>
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

void need_tokens(const int32_t* tokens, int64_t n, int64_t vocabulary) {
  for (int64_t i = 0; i < n; ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      throw Error{ENG_OUT_OF_RANGE, "token " + std::to_string(tokens[i]) + " at position " + std::to_string(i) +
                                        " is outside of the vocabulary of " + std::to_string(vocabulary)};
}

void check_shapes(const eng_desc& tokens, const eng_desc& table, const eng_desc& y) {
  if (tokens.dtype != ENG_I32) throw Error{ENG_UNSUPPORTED, "tokens must be i32, they are " + describe(tokens)};
  need_f32(table, "the table");
  need_f32(y, "the rows");
  need(table.ndim == 2, "the table must be (V, H)");
  need(columns(y) == table.dims[1] && rows(y) == elements(tokens), "the shapes of tokens, rows and table do not match");
}

struct Embedding {
  static constexpr const char* op = ENG_OP_EMBEDDING;
  unsigned threads;
  int64_t n, v, h;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    check_shapes(c.in[0], c.in[1], c.out[0]);
  }
  explicit Embedding(const Call& c)
      : threads(c.parallel), n(elements(c.in[0])), v(c.in[1].dims[0]), h(c.in[1].dims[1]) {}
  void run(const Args& args) const {
    const int32_t* tokens = args.in<int32_t>(0);
    const float* table = args.in<float>(1);
    float* y = args.out<float>(0);
    need_tokens(tokens, n, v);
    in_ranges(threads, n, h, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) std::memcpy(y + i * h, table + tokens[i] * h, size_t(h) * sizeof(float));
    });
  }
};

// Each thread owns some columns of the whole table and walks all tokens: every element is summed in row order
// by one thread, and the work is even whatever the tokens are.
struct EmbeddingGrad {
  static constexpr const char* op = ENG_OP_EMBEDDING_GRAD;
  const simd_table& simd;
  unsigned threads;
  int64_t n, v, h;

  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1);
    check_shapes(c.in[0], c.out[0], c.in[1]);
    if (c.has(2)) need_same(c.in[2], c.out[0], "acc and dtable");
  }
  EmbeddingGrad(const Call& c, void* device)
      : simd(simd_for(device)), threads(c.parallel), n(elements(c.in[0])), v(c.out[0].dims[0]), h(c.out[0].dims[1]) {}
  void run(const Args& args) const {
    const int32_t* tokens = args.in<int32_t>(0);
    const float *dy = args.in<float>(1), *acc = args.in<float>(2);
    float* table = args.out<float>(0);
    need_tokens(tokens, n, v);
    if (acc != table)
      in_lines(threads, v * h, [&](int64_t first, int64_t last) {
        const size_t bytes = size_t(last - first) * sizeof(float);
        if (acc)
          std::memcpy(table + first, acc + first, bytes);
        else
          std::memset(table + first, 0, bytes);
      });
    in_ranges(threads, h, n, 16, [&](int64_t first, int64_t last) {
      for (int64_t i = 0; i < n; ++i) {
        float* row = table + tokens[i] * h + first;
        simd.add(row, dy + i * h + first, row, last - first);
      }
    });
  }
};

struct Positions {
  static constexpr const char* op = ENG_OP_POSITIONS;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int64_t n, t, h, p, offset;

  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1);
    if (c.has(2)) need(c.in[2].dtype == ENG_I64 && elements(c.in[2]) == ENG_C_COUNT, "counters must be i64 (8)");
    check_table(c, c.in[0], c.in[1]);
    need_same(c.in[0], c.out[0], "x and y");
  }
  static void check_table(const Call& c, const eng_desc& x, const eng_desc& table) {
    need_f32(x, "the rows");
    need_f32(table, "the table");
    need(x.ndim == 3 && table.ndim == 2 && columns(x) == columns(table), "rows (B, T, H) and table (P, H) are needed");
    const int64_t offset = c.integer("offset");
    need(offset >= 0 && x.dims[1] + offset <= table.dims[0], "the table must have T + offset rows");
  }
  Positions(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        n(rows(c.in[0])),
        t(c.in[0].dims[1]),
        h(columns(c.in[0])),
        p(c.in[1].dims[0]),
        offset(c.integer("offset")) {}
  void run(const Args& args) const {
    const int64_t* counters = args.in<int64_t>(2);
    const int64_t start = counters ? counters[ENG_C_POSITION] : 0;
    if (start < 0 || start + t + offset > p)
      throw Error{ENG_OUT_OF_RANGE, "position " + std::to_string(start) + " is outside of the table"};
    const float *x = args.in<float>(0), *table = args.in<float>(1) + (start + offset) * h;
    float* y = args.out<float>(0);
    in_ranges(threads, n, h, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) simd.add(x + i * h, table + i % t * h, y + i * h, h);
    });
  }
};

// Each thread owns some positions and walks the sequences in order.
struct PositionsGrad {
  static constexpr const char* op = ENG_OP_POSITIONS_GRAD;
  const simd_table& simd;
  unsigned threads;
  int64_t b, t, h, p, offset;

  static void check(const Call& c) {
    need_counts(c, 1, 2, 1, 1);
    Positions::check_table(c, c.in[0], c.out[0]);
    if (c.has(1)) need_same(c.in[1], c.out[0], "acc and dtable");
  }
  PositionsGrad(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        b(c.in[0].dims[0]),
        t(c.in[0].dims[1]),
        h(columns(c.in[0])),
        p(c.out[0].dims[0]),
        offset(c.integer("offset")) {}
  void run(const Args& args) const {
    const float *dy = args.in<float>(0), *acc = args.in<float>(1);
    float* table = args.out<float>(0);
    const size_t bytes = size_t(h) * sizeof(float);
    in_ranges(threads, p, b * h, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        float* row = table + i * h;
        if (!acc)
          std::memset(row, 0, bytes);
        else if (acc != table)
          std::memcpy(row, acc + i * h, bytes);
        if (i >= offset && i < offset + t)
          for (int64_t k = 0; k < b; ++k) simd.add(row, dy + (k * t + i - offset) * h, row, h);
      }
    });
  }
};

}  // namespace

extern const eng_kernel* const embedding_kernels[] = {&kernel<Embedding>, &kernel<EmbeddingGrad>, &kernel<Positions>,
                                                      &kernel<PositionsGrad>};
extern const uint32_t embedding_kernel_count = std::size(embedding_kernels);

}  // namespace cpu
