// SPDX-License-Identifier: Apache-2.0
// embedding and positions, and their gradients.
#include "engine/ops_parallel.h"
#include "reference.hpp"

namespace reference {
namespace {

void expect_tokens(const int32_t* tokens, int64_t n, int64_t vocabulary) {
  for (int64_t i = 0; i < n; ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      throw Error{ENG_OUT_OF_RANGE, "token " + std::to_string(tokens[i]) + " at position " + std::to_string(i) +
                                        " is outside the table of " + std::to_string(vocabulary) + " rows"};
}

// `part`: of the table are only the rows from `first` on; tokens of others have zeros.
template <bool part>
struct Embedding {
  static constexpr const char* op = part ? ENG_OP_EMBEDDING_PART : ENG_OP_EMBEDDING;
  static constexpr uint32_t flags = part ? ENG_KERNEL_EXACT : 0;
  Call c;
  int64_t first;

  explicit Embedding(const Call& call) : c(call), first(part ? c.integer("first") : 0) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 2, {1}, 1, {0});
    expect(c.in[0].dtype == ENG_I32, "tokens must be i32");
    expect(c.in[1].ndim == 2, "table must be (V, H)");
    expect(rows(c.out[0]) == elements(c.in[0]) && columns(c.out[0]) == columns(c.in[1]), "y must be (B, T, H)");
  }
  void run(const Args& a) const {
    by_type(c.in[1].dtype, [&]<class T>(T) {
      const int64_t N = elements(c.in[0]), V = c.in[1].dims[0], H = columns(c.in[1]);
      const int32_t* tokens = a.in<int32_t>(0);  // (N)
      const T* table = a.in<T>(1);               // (V, H)
      if (!part) expect_tokens(tokens, N, V);
      for (int64_t i = 0; i < N; ++i) {
        const int64_t row = tokens[i] - first;
        const bool own = !part || (row >= 0 && row < V);
        for (int64_t h = 0; h < H; ++h) a.out<T>(0)[i * H + h] = own ? table[row * H + h] : T(0);
      }
    });
  }
};

template <bool part>
struct EmbeddingGrad {
  static constexpr const char* op = part ? ENG_OP_EMBEDDING_PART_GRAD : ENG_OP_EMBEDDING_GRAD;
  Call c;
  int64_t first;

  explicit EmbeddingGrad(const Call& call) : c(call), first(part ? c.integer("first") : 0) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 3, {1}, 1, {});
    expect_sums(c, c.in[1].dtype, {2}, {0});
    expect(c.in[0].dtype == ENG_I32, "tokens must be i32");
    expect(rows(c.in[1]) == elements(c.in[0]), "dy must have one row per token");
    expect(c.out[0].ndim == 2 && columns(c.out[0]) == columns(c.in[1]), "dtable must be (V, H)");
    expect(!c.has(2) || elements(c.in[2]) == elements(c.out[0]), "acc must be (V, H)");
  }
  void run(const Args& a) const {
    by_type(c.in[1].dtype, [&]<class T>(T) {
      const int64_t N = elements(c.in[0]), V = c.out[0].dims[0], H = columns(c.in[1]);
      const int32_t* tokens = a.in<int32_t>(0);  // (N)
      const T* dy = a.in<T>(1);                  // (N, H)
      const Reals acc(c, a, 2);                  // (V, H)
      const RealsOut dtable(c, a, 0);            // (V, H)
      if (!part) expect_tokens(tokens, N, V);
      for (int64_t v = 0; v < V; ++v)
        for (int64_t h = 0; h < H; ++h) {
          double sum = acc ? acc[v * H + h] : 0.0;
          for (int64_t i = 0; i < N; ++i)
            if (tokens[i] - first == v) sum += double(dy[i * H + h]);
          dtable.set(v * H + h, sum);
        }
    });
  }
};

struct Positions {
  static constexpr const char* op = ENG_OP_POSITIONS;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  int64_t offset;

  explicit Positions(const Call& call) : c(call), offset(c.integer("offset")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 4, {0, 1}, 1, {0});
    cpu::need_numbers(c, 3, c.in[0], "positions");
    expect(!c.has(2) || !c.has(3), "counters and positions exclude each other");
    expect(!c.has(2) || (c.in[2].dtype == ENG_I64 && elements(c.in[2]) == ENG_C_COUNT), "counters must be i64 (8)");
    expect(c.in[0].ndim == 3 && c.in[1].ndim == 2 && columns(c.in[0]) == columns(c.in[1]),
           "x must be (B, T, H) and table (P, H)");
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
    expect(c.integer("offset") >= 0 && c.in[0].dims[1] + c.integer("offset") <= c.in[1].dims[0],
           "table must have T + offset rows");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t N = rows(c.in[0]), length = c.in[0].dims[1], H = columns(c.in[0]);
      const int64_t start = c.has(2) ? a.in<int64_t>(2)[ENG_C_POSITION] : 0;
      if (start < 0 || start + length + offset > c.in[1].dims[0])
        throw Error{ENG_OUT_OF_RANGE, "position " + std::to_string(start) + " is outside of the table"};
      const int32_t* positions = a.in<int32_t>(3);
      if (positions) cpu::need_rows(positions, N, offset, c.in[1].dims[0]);
      const T *x = a.in<T>(0), *table = a.in<T>(1) + (start + offset) * H;  // (N, H), (P, H) from its row
      for (int64_t i = 0; i < N; ++i) {
        const int64_t row = positions ? positions[i] : i % length;
        for (int64_t h = 0; h < H; ++h) a.out<T>(0)[i * H + h] = T(x[i * H + h] + table[row * H + h]);
      }
    });
  }
};

struct PositionsGrad {
  static constexpr const char* op = ENG_OP_POSITIONS_GRAD;
  Call c;
  int64_t offset;

  explicit PositionsGrad(const Call& call) : c(call), offset(c.integer("offset")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0});
    expect_types(c, 3, {0}, 1, {});
    expect_sums(c, c.in[0].dtype, {1}, {0});
    cpu::need_numbers(c, 2, c.in[0], "positions");
    expect(c.in[0].ndim == 3 && c.out[0].ndim == 2 && columns(c.in[0]) == columns(c.out[0]),
           "dy must be (B, T, H) and dtable (P, H)");
    expect(!c.has(1) || elements(c.in[1]) == elements(c.out[0]), "acc must be (P, H)");
    expect(c.integer("offset") >= 0 && c.in[0].dims[1] + c.integer("offset") <= c.out[0].dims[0],
           "dtable must have T + offset rows");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t B = c.in[0].dims[0], length = c.in[0].dims[1], P = c.out[0].dims[0], H = columns(c.in[0]);
      const T* dy = a.in<T>(0);        // (B, T, H)
      const Reals acc(c, a, 1);        // (P, H)
      const RealsOut dtable(c, a, 0);  // (P, H)
      const int32_t* positions = a.in<int32_t>(2);
      if (positions) cpu::need_rows(positions, B * length, offset, P);
      for (int64_t p = 0; p < P; ++p)
        for (int64_t h = 0; h < H; ++h) {
          double sum = acc ? acc[p * H + h] : 0.0;
          for (int64_t i = 0; positions && i < B * length; ++i)
            if (positions[i] + offset == p) sum += double(dy[i * H + h]);
          if (!positions && p >= offset && p < length + offset)
            for (int64_t b = 0; b < B; ++b) sum += double(dy[(b * length + p - offset) * H + h]);
          dtable.set(p * H + h, sum);
        }
    });
  }
};

}  // namespace

void add_embedding(List& list) {
  list.insert(list.end(), {&common::kernel<Embedding<false>>, &common::kernel<Embedding<true>>,
                           &common::kernel<EmbeddingGrad<false>>, &common::kernel<EmbeddingGrad<true>>,
                           &common::kernel<Positions>, &common::kernel<PositionsGrad>});
}

}  // namespace reference
