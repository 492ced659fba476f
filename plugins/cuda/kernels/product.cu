// SPDX-License-Identifier: Apache-2.0
// linear, matmul and sum_rows.
#include "product.cuh"

#include "column_sums.cuh"
#include "list.hpp"

namespace cuda {
namespace product {

void need_sums(const Call& c, int32_t type, size_t acc) {
  if (c.out[0].dtype != ENG_F32) need_type(c.out[0], type, "the result");
  if (c.has(acc)) need_type(c.in[acc], c.out[0].dtype, "acc"), need_size(c.in[acc], elements(c.out[0]), "acc");
}

struct Linear {
  static constexpr const char* op = ENG_OP_LINEAR;
  library::Product p;
  std::shared_ptr<const library::Algorithm> algorithm;
  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1), need_float(c.in[0], "x"), need_type(c.in[1], c.in[0].dtype, "w");
    need(c.in[1].ndim == 2 && columns(c.in[1]) == columns(c.in[0]), "w must be (N, K), K the last dimension of x");
    need_type(c.out[0], c.in[0].dtype, "y"), need_size(c.out[0], rows(c.in[0]) * c.in[1].dims[0], "y");
    if (c.has(2)) need_type(c.in[2], c.in[0].dtype, "bias"), need_size(c.in[2], c.in[1].dims[0], "bias");
  }
  static library::Product of(const Call& c) {
    library::Product p;
    p.type = c.in[0].dtype, p.result = c.out[0].dtype;
    p.m = rows(c.in[0]), p.n = c.in[1].dims[0], p.k = columns(c.in[0]);
    p.tb = true, p.bias = c.has(2);
    return p;
  }
  static uint64_t workspace(const Call& c) { return library::scratch(c, of(c)); }
  Linear(const Call& c, void* device) : p(of(c)), algorithm(library::prepare(device, p, workspace(c))) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(p.type, [&]<class T>(T) {
      product::run(
          Matrices<T, T, T>{a.in<T>(0), a.in<T>(1), nullptr, a.in<T>(2), a.out<T>(0), p.m, p.n, p.k, false, true},
          algorithm.get(), a.workspace, stream);
    });
  }
};

struct Matmul {
  static constexpr const char* op = ENG_OP_MATMUL;
  library::Product p;
  std::shared_ptr<const library::Algorithm> algorithm;
  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1), need_float(c.in[0], "a"), need_type(c.in[1], c.in[0].dtype, "b");
    need_sums(c, c.in[0].dtype, 2);
    const library::Product p = of(c);
    need((p.tb ? columns(c.in[1]) : rows(c.in[1])) == p.k, "op(a) is (M, K), op(b) must be (K, N)");
    need_size(c.out[0], p.m * p.n, "c");
    if (p.ta && p.m > most_rows) throw Error{ENG_UNSUPPORTED, "a transposed has too many columns"};
  }
  static library::Product of(const Call& c) {
    library::Product p;
    p.type = c.in[0].dtype, p.result = c.out[0].dtype;
    p.ta = c.integer("ta") != 0, p.tb = c.integer("tb") != 0, p.add = c.has(2);
    p.m = p.ta ? columns(c.in[0]) : rows(c.in[0]);
    p.n = p.tb ? rows(c.in[1]) : columns(c.in[1]);
    p.k = p.ta ? rows(c.in[0]) : columns(c.in[0]);
    return p;
  }
  static uint64_t workspace(const Call& c) { return library::scratch(c, of(c)); }
  Matmul(const Call& c, void* device) : p(of(c)), algorithm(library::prepare(device, p, workspace(c))) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_types(p.type, p.result, [&]<class T, class S>(T, S) {
      product::run(
          Matrices<T, T, S>{a.in<T>(0), a.in<T>(1), a.in<S>(2), nullptr, a.out<S>(0), p.m, p.n, p.k, p.ta, p.tb},
          algorithm.get(), a.workspace, stream);
    });
  }
};

struct SumRows {
  static constexpr const char* op = ENG_OP_SUM_ROWS;
  int32_t type, sums;
  int64_t n_rows, n_columns;
  static void check(const Call& c) {
    need_counts(c, 1, 2, 1, 1), need_float(c.in[0], "x"), need_sums(c, c.in[0].dtype, 1);
    need_size(c.out[0], columns(c.in[0]), "y");
  }
  static uint64_t workspace(const Call& c) { return column_sums::scratch(rows(c.in[0]), columns(c.in[0])); }
  explicit SumRows(const Call& c)
      : type(c.in[0].dtype), sums(c.out[0].dtype), n_rows(rows(c.in[0])), n_columns(columns(c.in[0])) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_types(type, sums, [&]<class T, class S>(T, S) {
      column_sums::run(a.in<T>(0), n_rows, n_columns, a.in<S>(1), a.out<S>(0), a.scratch<float>(), stream);
    });
  }
};

}  // namespace product

void add_product(List& list) {
  using namespace product;
  list.insert(list.end(), {&kernel<Linear>, &kernel<Matmul>, &kernel<SumRows>});
}

}  // namespace cuda
