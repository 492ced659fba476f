// SPDX-License-Identifier: Apache-2.0
// linear and matmul, both with relu, and sum_rows.
#include "product.cuh"

#include "column_sums.cuh"
#include "list.hpp"
#include "relu.cuh"

namespace cuda {
namespace product {

struct Linear {
  static constexpr const char* op = ENG_OP_LINEAR;
  Chosen chosen;
  static void check(const Call& c) { check(c, 1); }
  static void check(const Call& c, size_t outputs) {
    need_counts(c, 2, 3, outputs, outputs), need_float(c.in[0], "x"), need_type(c.in[1], c.in[0].dtype, "w");
    need(c.in[1].ndim == 2 && columns(c.in[1]) == columns(c.in[0]), "w must be (N, K), K the last dimension of x");
    need_tensor(c.out[0], c.in[0].dtype, rows(c.in[0]) * c.in[1].dims[0], "y");
    need_optional(c, 2, c.in[0].dtype, c.in[1].dims[0], "bias");
  }
  static library::Product of(const Call& c) {
    library::Product p;
    p.type = c.in[0].dtype, p.result = c.out[0].dtype;
    p.m = rows(c.in[0]), p.n = c.in[1].dims[0], p.k = columns(c.in[0]);
    p.tb = true, p.bias = c.has(2);
    return p;
  }
  static uint64_t workspace(const Call& c) { return library::scratch(c, of(c)); }
  Linear(const Call& c, void* device) : chosen(choose(device, of(c), workspace(c))) {}
  void run(const Args& a, cudaStream_t stream) const {
    chosen.run({a.in<void>(0), a.in<void>(1), nullptr, a.in<void>(2), a.out<void>(0)}, a.workspace, stream);
  }
};

struct Matmul {
  static constexpr const char* op = ENG_OP_MATMUL;
  Chosen chosen;
  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1), need_float(c.in[0], "a"), need_type(c.in[1], c.in[0].dtype, "b");
    need_sum(c, c.in[0].dtype, 0, "the result", 2);
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
  Matmul(const Call& c, void* device) : chosen(choose(device, of(c), workspace(c))) {}
  void run(const Args& a, cudaStream_t stream) const {
    chosen.run({a.in<void>(0), a.in<void>(1), a.in<void>(2), nullptr, a.out<void>(0)}, a.workspace, stream);
  }
};

void need_mask(const eng_desc& mask, const eng_desc& y) {
  need_tensor(mask, ENG_U8, rows(y) * eng_relu_mask_bytes(columns(y)), "the mask");
}

// The library's epilogue, or the product and a pass over its result. What the library writes behind the last bit of a
// row is not documented, so rows of its masks are full.
struct LinearRelu {
  static constexpr const char* op = ENG_OP_LINEAR_RELU;
  std::shared_ptr<const library::Algorithm> fused;
  Chosen plain;
  static void check(const Call& c) { Linear::check(c, 2), need_mask(c.out[1], c.out[0]); }
  static uint64_t workspace(const Call& c) { return Linear::workspace(c); }
  LinearRelu(const Call& c, void* device) : plain{Linear::of(c), nullptr} {
    library::Product whole = plain.p;
    whole.epilogue = library::Epilogue::relu;
    if (whole.n == eng_relu_mask_bytes(whole.n) * 8) fused = library::prepare(device, whole, workspace(c));
    if (!fused) plain = choose(device, plain.p, workspace(c));
  }
  void run(const Args& a, cudaStream_t stream) const {
    uint8_t* const mask = a.out<uint8_t>(1);
    const library::Operands o{a.in<void>(0), a.in<void>(1), nullptr, a.in<void>(2), a.out<void>(0), mask};
    if (fused && fused->takes(o)) return fused->run(o, a.workspace, stream);
    plain.run({o.a, o.b, nullptr, o.bias, o.c}, a.workspace, stream);
    by_type(plain.p.type, [&]<class T>(T) { relu::run<false>(a.out<T>(0), mask, plain.p.m, plain.p.n, stream); });
  }
};

// The library gives dz and dbias, or dz alone, or the product alone.
struct MatmulReluGrad {
  static constexpr const char* op = ENG_OP_MATMUL_RELU_GRAD;
  std::shared_ptr<const library::Algorithm> fused;
  Chosen plain;
  bool fused_sums = false;
  static void check(const Call& c) {
    const size_t outputs = c.integer("sums") ? 2 : 1;
    need_counts(c, 3, 4, outputs, outputs), need_float(c.in[0], "dy"), need_type(c.in[1], c.in[0].dtype, "w");
    need(c.in[1].ndim == 2 && c.in[1].dims[0] == columns(c.in[0]), "w must be (N, K), N the last dimension of dy");
    need_tensor(c.out[0], c.in[0].dtype, rows(c.in[0]) * c.in[1].dims[1], "dz");
    need(columns(c.out[0]) == c.in[1].dims[1], "dz must be (..., K)"), need_mask(c.in[2], c.out[0]);
    need(outputs == 2 || !c.has(3), "acc is for sums");
    if (outputs == 2) need_size(c.out[1], c.in[1].dims[1], "dbias"), need_sum(c, c.in[0].dtype, 1, "dbias", 3);
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
  MatmulReluGrad(const Call& c, void* device) : plain{of(c), nullptr} {
    const uint64_t scratch = library::scratch(c, plain.p);
    library::Product whole = plain.p;
    whole.epilogue = library::Epilogue::relu_grad, whole.sums = c.has_out(1) && !c.has(3) ? c.out[1].dtype : 0;
    fused = library::prepare(device, whole, scratch);
    fused_sums = fused && whole.sums;
    if (!fused && whole.sums) whole.sums = 0, fused = library::prepare(device, whole, scratch);
    if (!fused) plain = choose(device, plain.p, scratch);
  }
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    uint8_t* const mask = const_cast<uint8_t*>(a.in<uint8_t>(2));  // it is read only
    const library::Operands o{a.in<void>(0), a.in<void>(1), nullptr, nullptr, a.out<void>(0), mask, a.out<void>(1)};
    const library::Product& p = plain.p;
    const bool by_library = fused && fused->takes(o);
    if (by_library) {
      fused->run(o, a.workspace, stream);
    } else {
      plain.run({o.a, o.b, nullptr, nullptr, o.c}, a.workspace, stream);
      by_type(p.type, [&]<class T>(T) { relu::run<true>(a.out<T>(0), mask, p.m, p.n, stream); });
    }
    if (!c.has_out(1) || (by_library && fused_sums)) return;
    by_types(p.type, c.out[1].dtype, [&]<class T, class S>(T, S) {
      column_sums::run(a.out<T>(0), p.m, p.n, a.in<S>(3), a.out<S>(1), a.scratch<float>(), stream);
    });
  }
};

struct SumRows {
  static constexpr const char* op = ENG_OP_SUM_ROWS;
  static void check(const Call& c) {
    need_counts(c, 1, 2, 1, 1), need_float(c.in[0], "x"), need_sum(c, c.in[0].dtype, 0, "the result", 1);
    need_size(c.out[0], columns(c.in[0]), "y");
  }
  static uint64_t workspace(const Call& c) { return column_sums::scratch(rows(c.in[0]), columns(c.in[0])); }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    by_types(c.in[0].dtype, c.out[0].dtype, [&]<class T, class S>(T, S) {
      column_sums::run(a.in<T>(0), rows(c.in[0]), columns(c.in[0]), a.in<S>(1), a.out<S>(0), a.scratch<float>(),
                       stream);
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
