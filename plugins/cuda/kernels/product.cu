// SPDX-License-Identifier: Apache-2.0
// linear and matmul, both with relu, and sum_rows.
#include "product.cuh"

#include "column_sums.cuh"
#include "list.hpp"
#include "relu.cuh"

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
  static void check(const Call& c) { check(c, 1); }
  static void check(const Call& c, size_t outputs) {
    need_counts(c, 2, 3, outputs, outputs), need_float(c.in[0], "x"), need_type(c.in[1], c.in[0].dtype, "w");
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

void need_mask(const eng_desc& mask, const eng_desc& y) {
  need_type(mask, ENG_U8, "the mask"), need_size(mask, rows(y) * eng_relu_mask_bytes(columns(y)), "the mask");
}

// The library's epilogue, or the product and a pass over its result. What the library writes behind the last bit of a
// row is not documented, so rows of its masks are full.
struct LinearRelu {
  static constexpr const char* op = ENG_OP_LINEAR_RELU;
  library::Product p;
  std::shared_ptr<const library::Algorithm> fused, plain;
  static void check(const Call& c) { Linear::check(c, 2), need_mask(c.out[1], c.out[0]); }
  static uint64_t workspace(const Call& c) { return Linear::workspace(c); }
  LinearRelu(const Call& c, void* device) : p(Linear::of(c)) {
    library::Product whole = p;
    whole.epilogue = library::Epilogue::relu;
    if (p.n == eng_relu_mask_bytes(p.n) * 8) fused = library::prepare(device, whole, workspace(c));
    if (!fused) plain = library::prepare(device, p, workspace(c));
  }
  void run(const Args& a, cudaStream_t stream) const {
    by_type(p.type, [&]<class T>(T) {
      const library::Operands o{a.in<T>(0), a.in<T>(1), nullptr, a.in<T>(2), a.out<T>(0), a.out<uint8_t>(1)};
      if (fused && fused->takes(o)) return fused->run(o, a.workspace, stream);
      product::run(
          Matrices<T, T, T>{a.in<T>(0), a.in<T>(1), nullptr, a.in<T>(2), a.out<T>(0), p.m, p.n, p.k, false, true},
          plain.get(), a.workspace, stream);
      relu::forward(a.out<T>(0), a.out<uint8_t>(1), p.m, p.n, stream);
    });
  }
};

// The library gives dz and dbias, or dz alone, or the product alone.
struct MatmulReluGrad {
  static constexpr const char* op = ENG_OP_MATMUL_RELU_GRAD;
  library::Product p;
  int32_t sums;  // the type of dbias; 0: there is none
  std::shared_ptr<const library::Algorithm> fused, plain;
  bool fused_sums = false;
  static void check(const Call& c) {
    const size_t outputs = c.integer("sums") ? 2 : 1;
    need_counts(c, 3, 4, outputs, outputs), need_float(c.in[0], "dy"), need_type(c.in[1], c.in[0].dtype, "w");
    need(c.in[1].ndim == 2 && c.in[1].dims[0] == columns(c.in[0]), "w must be (N, K), N the last dimension of dy");
    need_type(c.out[0], c.in[0].dtype, "dz"), need_size(c.out[0], rows(c.in[0]) * c.in[1].dims[1], "dz");
    need(columns(c.out[0]) == c.in[1].dims[1], "dz must be (..., K)"), need_mask(c.in[2], c.out[0]);
    need(outputs == 2 || !c.has(3), "acc is for sums");
    if (outputs == 1) return;
    if (c.out[1].dtype != ENG_F32) need_type(c.out[1], c.in[0].dtype, "dbias");
    need_size(c.out[1], c.in[1].dims[1], "dbias");
    if (c.has(3)) need_type(c.in[3], c.out[1].dtype, "acc"), need_size(c.in[3], c.in[1].dims[1], "acc");
  }
  static library::Product of(const Call& c) {
    library::Product p;
    p.type = p.result = c.in[0].dtype;
    p.m = rows(c.in[0]), p.n = columns(c.in[1]), p.k = columns(c.in[0]);
    return p;
  }
  static uint64_t workspace(const Call& c) {
    const library::Product p = of(c);
    return std::max(library::scratch(c, p), c.has_out(1) ? column_sums::scratch(p.m, p.n) : 0);
  }
  MatmulReluGrad(const Call& c, void* device) : p(of(c)), sums(c.has_out(1) ? c.out[1].dtype : 0) {
    const uint64_t scratch = library::scratch(c, p);
    library::Product whole = p;
    whole.epilogue = library::Epilogue::relu_grad, whole.sums = c.has(3) ? 0 : sums;
    fused = library::prepare(device, whole, scratch);
    fused_sums = fused && whole.sums;
    if (!fused && whole.sums) whole.sums = 0, fused = library::prepare(device, whole, scratch);
    if (!fused) plain = library::prepare(device, p, scratch);
  }
  void run(const Args& a, cudaStream_t stream) const {
    uint8_t* const mask = const_cast<uint8_t*>(a.in<uint8_t>(2));  // it is read only
    const library::Operands o{a.in<void>(0), a.in<void>(1), nullptr, nullptr, a.out<void>(0), mask, a.out<void>(1)};
    const bool by_library = fused && fused->takes(o);
    if (by_library)
      fused->run(o, a.workspace, stream);
    else
      by_type(p.type, [&]<class T>(T) {
        T* dz = a.out<T>(0);
        product::run(Matrices<T, T, T>{a.in<T>(0), a.in<T>(1), nullptr, nullptr, dz, p.m, p.n, p.k, false, false},
                     plain.get(), a.workspace, stream);
        relu::grad(dz, mask, p.m, p.n, stream);
      });
    if (!sums || (by_library && fused_sums)) return;
    by_types(p.type, sums, [&]<class T, class S>(T, S) {
      column_sums::run(a.out<T>(0), p.m, p.n, a.in<S>(3), a.out<S>(1), a.scratch<float>(), stream);
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
  list.insert(list.end(),
              {&kernel<Linear>, &kernel<LinearRelu>, &kernel<Matmul>, &kernel<MatmulReluGrad>, &kernel<SumRows>});
}

}  // namespace cuda
