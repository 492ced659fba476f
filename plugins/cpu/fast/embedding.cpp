// SPDX-License-Identifier: Apache-2.0
// Rows of a table by token or by position, and their gradients.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "../../common/documents.hpp"
#include "engine/ops_parallel.h"
#include "simd/select.hpp"

namespace cpu {
namespace {

void need_tokens(const int32_t* tokens, int64_t n, int64_t vocabulary) {
  for (int64_t i = 0; i < n; ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      throw Error{ENG_OUT_OF_RANGE, "token " + std::to_string(tokens[i]) + " at position " + std::to_string(i) +
                                        " is outside of the vocabulary of " + std::to_string(vocabulary)};
}

// Sorts the numbers 0 .. n - 1 of rows by what they belong to, keys[i] + offset in 0 .. v - 1; those of one key stay in
// order. space (v + n): where the rows of each key end, then the rows.
void sort_rows(const int32_t* keys, int64_t offset, int64_t n, int64_t v, int32_t* space) {
  int32_t *const ends = space, *const order = space + v;
  std::fill_n(ends, v, 0);
  for (int64_t i = 0; i < n; ++i) ++ends[keys[i] + offset];
  int32_t begin = 0;
  for (int64_t key = 0; key < v; ++key) {
    const int32_t count = ends[key];
    ends[key] = begin, begin += count;
  }
  for (int64_t i = 0; i < n; ++i) order[ends[keys[i] + offset]++] = static_cast<int32_t>(i);
}
// The columns first .. last - 1 of table (v, h) = acc + the rows of dy of each key, after sort_rows with `others` keys
// more, which are left out.
template <class T, class Sum>
void sum_sorted(const simd_table& simd, const T* dy, const int32_t* space, int64_t v, int64_t h, const Sum* acc,
                Sum* table, int64_t first, int64_t last, int64_t others = 0) {
  for (int64_t key = 0; key < v; ++key) {
    const int32_t begin = key ? space[key - 1] : 0, count = space[key] - begin;
    const Sum* from = acc ? acc + key * h : nullptr;
    if (count == 0 && from == table + key * h) continue;
    const int32_t* const rows = space + v + others + begin;
    sum_rows(simd, row_sums<T, Sum>{dy, rows, count, h, from, table + key * h, true}, first, last);
  }
}

void check_shapes(const eng_desc& tokens, const eng_desc& table, const eng_desc& y) {
  if (tokens.dtype != ENG_I32) throw Error{ENG_UNSUPPORTED, "tokens must be i32, they are " + describe(tokens)};
  need(table.ndim == 2, "the table must be (V, H)");
  need(columns(y) == table.dims[1] && rows(y) == elements(tokens), "the shapes of tokens, rows and table do not match");
}

// `part`: of the table are only the rows from `first` on; tokens of others have zeros.
template <bool part>
struct Embedding {
  static constexpr const char* op = part ? ENG_OP_EMBEDDING_PART : ENG_OP_EMBEDDING;
  static constexpr uint32_t flags = part ? ENG_KERNEL_EXACT : 0;
  unsigned threads;
  int64_t n, v, h, first_row, bytes;  // bytes of a row

  static void check(const Call& c) {
    if (part) need(c.integer("first") >= 0, "first must be at least 0");
    need_counts(c, 2, 2, 1, 1);
    need_float(c.in[1], "the table");
    need_same_type(c.in[1], c.out[0], "the table and its rows");
    check_shapes(c.in[0], c.in[1], c.out[0]);
  }
  explicit Embedding(const Call& c)
      : threads(c.parallel),
        n(elements(c.in[0])),
        v(c.in[1].dims[0]),
        h(c.in[1].dims[1]),
        first_row(part ? c.integer("first") : 0),
        bytes(h * dtype_size(c.in[1].dtype)) {}
  void run(const Args& args) const {
    const int32_t* tokens = args.in<int32_t>(0);
    const char* table = args.in<char>(1);
    char* y = args.out<char>(0);
    if (!part) need_tokens(tokens, n, v);
    in_ranges(threads, n, h, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        if (const int64_t row = tokens[i] - first_row; !part || (row >= 0 && row < v))
          std::memcpy(y + i * bytes, table + row * bytes, size_t(bytes));
        else
          std::memset(y + i * bytes, 0, size_t(bytes));
    });
  }
};

// Each thread owns some columns of the whole table and walks all tokens: every element is summed in row order
// by one thread, and the work is even whatever the tokens are.
//
// From 16-bit rows, an element must be summed in f32 before it is rounded, so all rows of one token have to come
// together: the workspace holds the positions sorted by token, those of a token in their order.
template <bool part>
struct EmbeddingGrad {
  static constexpr const char* op = part ? ENG_OP_EMBEDDING_PART_GRAD : ENG_OP_EMBEDDING_GRAD;
  const simd_table& simd;
  unsigned threads;
  int32_t type, sums;
  int64_t n, v, h, first_row;

  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1);
    need_float(c.in[1], "dy");
    need_sums(c, c.in[1].dtype, {2}, {0});
    check_shapes(c.in[0], c.out[0], c.in[1]);
    need(elements(c.in[0]) <= INT32_MAX, "there are too many tokens");
    if (c.has(2)) need_same(c.in[2], c.out[0], "acc and dtable");
  }
  static uint64_t workspace(const Call& c) {
    if (c.in[1].dtype == ENG_F32) return 0;
    // With parts, also a place for the tokens of other rows, and the rows of all.
    const int64_t more = part ? 1 + elements(c.in[0]) : 0;
    return static_cast<uint64_t>(c.out[0].dims[0] + elements(c.in[0]) + more) * sizeof(int32_t);
  }
  EmbeddingGrad(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[1].dtype),
        sums(c.out[0].dtype),
        n(elements(c.in[0])),
        v(c.out[0].dims[0]),
        h(c.out[0].dims[1]),
        first_row(part ? c.integer("first") : 0) {}
  void run(const Args& args) const {
    const int32_t* tokens = args.in<int32_t>(0);
    if (!part) need_tokens(tokens, n, v);
    if (type == ENG_F32) return run_f32(args);
    int32_t* const space = args.scratch<int32_t>();
    if (part) {
      int32_t* const mine = space + keys() + n;
      for (int64_t i = 0; i < n; ++i) mine[i] = static_cast<int32_t>(owned(tokens[i]) ? tokens[i] - first_row : v);
      tokens = mine;
    }
    sort_rows(tokens, 0, n, keys(), space);
    by_types(type, sums, [&]<class T, class Sum>(T, Sum) { run_sorted<T, Sum>(args); });
  }
  bool owned(int64_t token) const { return !part || (token >= first_row && token < first_row + v); }
  int64_t keys() const { return v + part; }  // the last: tokens of other rows

  template <class T, class Sum>
  void run_sorted(const Args& args) const {
    const T* dy = args.in<T>(1);
    const Sum* acc = args.in<Sum>(2);
    Sum* table = args.out<Sum>(0);
    in_ranges(threads, h, n + v, 32, [&](int64_t first, int64_t last) {
      sum_sorted(simd, dy, args.scratch<int32_t>(), v, h, acc, table, first, last, part);
    });
  }
  void run_f32(const Args& args) const {
    const int32_t* tokens = args.in<int32_t>(0);
    const float *dy = args.in<float>(1), *acc = args.in<float>(2);
    float* table = args.out<float>(0);
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
        if (!owned(tokens[i])) continue;
        float* row = table + (tokens[i] - first_row) * h + first;
        simd.f32.add(row, dy + i * h + first, row, last - first);
      }
    });
  }
};

struct Positions {
  static constexpr const char* op = ENG_OP_POSITIONS;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n, t, h, p, offset;

  static void check(const Call& c) {
    need_counts(c, 2, 4, 1, 1);
    need_numbers(c, 3, c.in[0], "positions");
    need(!c.has(2) || !c.has(3), "counters and positions exclude each other");
    if (c.has(2)) need(c.in[2].dtype == ENG_I64 && elements(c.in[2]) == ENG_C_COUNT, "counters must be i64 (8)");
    need_float(c.in[0], "x");
    need_same_type(c.in[0], c.in[1], "x and the table");
    check_table(c, c.in[0], c.in[1]);
    need_same(c.in[0], c.out[0], "x and y");
  }
  static void check_table(const Call& c, const eng_desc& x, const eng_desc& table) {
    need(x.ndim == 3 && table.ndim == 2 && columns(x) == columns(table), "rows (B, T, H) and table (P, H) are needed");
    const int64_t offset = c.integer("offset");
    need(offset >= 0 && x.dims[1] + offset <= table.dims[0], "the table must have T + offset rows");
  }
  Positions(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
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
    const int32_t* positions = args.in<int32_t>(3);
    if (positions) need_rows(positions, n, offset, p);
    by_type(type, [&]<class T>(T) {
      const T *x = args.in<T>(0), *table = args.in<T>(1) + (start + offset) * h;
      T* y = args.out<T>(0);
      in_ranges(threads, n, h, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i)
          simd.of<T>().add(x + i * h, table + (positions ? positions[i] : i % t) * h, y + i * h, h);
      });
    });
  }
};

// Each thread owns some rows of the table and walks the sequences in order. With positions, the workspace holds the
// tokens sorted by position.
struct PositionsGrad {
  static constexpr const char* op = ENG_OP_POSITIONS_GRAD;
  const simd_table& simd;
  unsigned threads;
  int32_t type, sums;
  int64_t b, t, h, p, offset;

  static void check(const Call& c) {
    need_counts(c, 1, 3, 1, 1);
    need_float(c.in[0], "dy");
    need_numbers(c, 2, c.in[0], "positions");
    need(!c.has(2) || rows(c.in[0]) <= INT32_MAX, "there are too many tokens");
    need_sums(c, c.in[0].dtype, {1}, {0});
    Positions::check_table(c, c.in[0], c.out[0]);
    if (c.has(1)) need_same(c.in[1], c.out[0], "acc and dtable");
  }
  static uint64_t workspace(const Call& c) {
    return c.has(2) ? static_cast<uint64_t>(c.out[0].dims[0] + rows(c.in[0])) * sizeof(int32_t) : 0;
  }
  PositionsGrad(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        sums(c.out[0].dtype),
        b(c.in[0].dims[0]),
        t(c.in[0].dims[1]),
        h(columns(c.in[0])),
        p(c.out[0].dims[0]),
        offset(c.integer("offset")) {}
  void run(const Args& args) const {
    const int32_t* positions = args.in<int32_t>(2);
    if (positions) {
      need_rows(positions, b * t, offset, p);
      sort_rows(positions, offset, b * t, p, args.scratch<int32_t>());
    }
    by_types(type, sums, [&]<class T, class Sum>(T, Sum) {
      const T* dy = args.in<T>(0);
      const Sum* acc = args.in<Sum>(1);
      Sum* table = args.out<Sum>(0);
      if (positions)
        return in_ranges(threads, h, b * t + p, 32, [&](int64_t first, int64_t last) {
          sum_sorted(simd, dy, args.scratch<int32_t>(), p, h, acc, table, first, last);
        });
      in_ranges(threads, p, b * h, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const bool some = i >= offset && i < offset + t;
          const T* x = some ? dy + (i - offset) * h : dy;
          const Sum* from = acc ? acc + i * h : nullptr;
          sum_rows(simd, row_sums<T, Sum>{x, nullptr, some ? b : 0, t * h, from, table + i * h, true}, 0, h);
        }
      });
    });
  }
};

}  // namespace

extern const eng_kernel* const embedding_kernels[] = {
    &kernel<Embedding<false>>,    &kernel<Embedding<true>>, &kernel<EmbeddingGrad<false>>,
    &kernel<EmbeddingGrad<true>>, &kernel<Positions>,       &kernel<PositionsGrad>};
extern const uint32_t embedding_kernel_count = std::size(embedding_kernels);

}  // namespace cpu
