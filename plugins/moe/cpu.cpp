// SPDX-License-Identifier: Apache-2.0
// The kernels for the device `cpu`, and which loops they use.
#include <cstring>

#include "cpu_route.hpp"
#include "product.hpp"

namespace moe {
namespace {

using cpu::Stored;

const Isa* find_isa(const char* name) {
  static const Isa portable = {"portable", &loops_portable, &tiles_portable};
#ifdef MOE_X86
  static const Isa avx2 = {"avx2", &loops_avx2, &tiles_avx2}, avx512 = {"avx512", &loops_avx512, &tiles_avx512};
  const bool plain = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (std::strcmp(name, "avx512") == 0) return plain && __builtin_cpu_supports("avx512f") ? &avx512 : nullptr;
  if (std::strcmp(name, "avx2") == 0) return plain ? &avx2 : nullptr;
#endif
  return std::strcmp(name, "portable") == 0 ? &portable : nullptr;
}
const Isa& best_isa() {
  static const Isa* const best = [] {
    for (const char* name : {"avx512", "avx2"})
      if (const Isa* found = find_isa(name)) return found;
    return find_isa("portable");
  }();
  return *best;
}
const Isa& portable() {
  return *find_isa("portable");
}
#ifdef MOE_X86
const Isa& avx2() {
  return *find_isa("avx2");
}
const Isa& avx512() {
  return *find_isa("avx512");
}
#endif
Stored stored_of(const eng_desc& d) {
  return d.dtype == ENG_BF16 ? cpu::stored_bf16 : d.dtype == ENG_F16 ? cpu::stored_f16 : cpu::stored_f32;
}
// y[r] = the row of x of the token of pair order[r]; n pairs, rows of `bytes`.
void gather_rows(unsigned threads, const char* x, const int32_t* order, int64_t n, int64_t k, size_t bytes, char* y) {
  each_row(threads, n, [&](int64_t r) {
    std::memcpy(y + static_cast<size_t>(r) * bytes, x + static_cast<size_t>(order[r] / k) * bytes, bytes);
  });
}

// Products of rows with the weights of their experts: `forward` with w[e]^T, otherwise with w[e].
template <Choose isa, bool forward>
struct Linear {
  static constexpr const char* op = forward ? MOE_OP_LINEAR : MOE_OP_LINEAR_INPUT_GRAD;
  Call c;
  ProductShape shape;
  Product product;

  static int64_t depth(const Call& c) { return c.in[1].dims[forward ? 2 : 1]; }
  static ProductShape shape_of(const Call& c) {
    const Stored s = stored_of(c.in[0]);
    const int64_t width = c.in[1].dims[2];
    return {c.in[1].dims[0],     rows(c.out[0]),     columns(c.out[0]), s, s, s, depth(c), 1,
            forward ? 1 : width, forward ? width : 1};
  }
  static uint64_t gathered(const Call& c) {
    const uint64_t bytes = static_cast<uint64_t>(rows(c.out[0]) * depth(c)) * common::dtype_size(c.in[0].dtype);
    return c.has(3) ? (bytes + 63) / 64 * 64 : 0;
  }
  static void check(const Call& c) {
    cpu::need_float(c.in[0], "rows"), cpu::need_same_type(c.in[0], c.in[1], "rows and weights");
    cpu::need_same_type(c.in[0], c.out[0], "rows and products");
  }
  static uint64_t workspace(const Call& c) { return gathered(c) + Product::scratch(shape_of(c), c.parallel); }
  explicit Linear(const Call& call) : c(call), shape(shape_of(c)), product(shape, *isa().tiles, c.parallel) {}

  void run(const Args& a) const {
    const auto* x = a.in<char>(0);
    char* const room = a.scratch<char>();
    const int64_t size = common::dtype_size(c.in[0].dtype), width = depth(c) * size;
    if (c.has(3)) {
      gather_rows(c.parallel, x, a.in<int32_t>(3), elements(c.in[3]), c.in[3].dims[2], static_cast<size_t>(width),
                  room);
      x = room;
    }
    void* const scratch = room + gathered(c);
    Part* const parts = product.parts(scratch);
    const int32_t* const offsets = a.in<int32_t>(2);
    for (int64_t e = 0; e < shape.experts; ++e)
      parts[e] = {x + offsets[e] * width,
                  a.in<char>(1) + e * c.in[1].dims[1] * c.in[1].dims[2] * size,
                  nullptr,
                  a.out<char>(0) + offsets[e] * shape.columns * size,
                  int64_t{offsets[e + 1]} - offsets[e],
                  depth(c)};
    product.run(scratch);
  }
};

template <Choose isa>
struct LinearWeightGrad {
  static constexpr const char* op = MOE_OP_LINEAR_WEIGHT_GRAD;
  Call c;
  ProductShape shape;
  Product product;

  static ProductShape shape_of(const Call& c) {
    const Stored in = stored_of(c.in[0]), out = stored_of(c.out[0]);
    const int64_t n = columns(c.in[0]), width = columns(c.in[1]);
    return {c.out[0].dims[0], n, width, in, out, out, 1, n, width, 1};
  }
  static void check(const Call& c) {
    cpu::need_float(c.in[0], "dy"), cpu::need_same_type(c.in[0], c.in[1], "dy and x");
    cpu::need_sums(c, c.in[0].dtype, {3}, {0});
  }
  static uint64_t workspace(const Call& c) { return Product::scratch(shape_of(c), c.parallel); }
  explicit LinearWeightGrad(const Call& call) : c(call), shape(shape_of(c)), product(shape, *isa().tiles, c.parallel) {}

  void run(const Args& a) const {
    Part* const parts = product.parts(a.workspace);
    const int32_t* const offsets = a.in<int32_t>(2);
    const int64_t n = columns(c.in[0]), width = columns(c.in[1]), size = common::dtype_size(c.in[0].dtype),
                  each = n * width * common::dtype_size(c.out[0].dtype);
    for (int64_t e = 0; e < shape.experts; ++e) {
      const char* const acc = a.in<char>(3);
      parts[e] = {a.in<char>(0) + offsets[e] * n * size,
                  a.in<char>(1) + offsets[e] * width * size,
                  acc ? acc + e * each : nullptr,
                  a.out<char>(0) + e * each,
                  n,
                  int64_t{offsets[e + 1]} - offsets[e]};
    }
    product.run(a.workspace);
  }
};

template <Choose isa>
struct Gated {
  static constexpr const char* op = MOE_OP_GATED;
  int32_t type;
  int64_t n_rows, n;
  size_t act;
  unsigned threads;
  const Loops& loops;

  static void check(const Call& c) {
    cpu::need_float(c.in[0], "x"), cpu::need_same_type(c.in[0], c.out[0], "x and y"), need_wide(c, {1}, {}, "weights");
    activation_of(c);
  }
  explicit Gated(const Call& c)
      : type(c.in[0].dtype),
        n_rows(rows(c.out[0])),
        n(columns(c.out[0])),
        act(activation_of(c)),
        threads(c.parallel),
        loops(*isa().loops) {}
  void run(const Args& a) const {
    cpu::by_type(type, [&]<class T>(T) {
      each_row(threads, n_rows, [&](int64_t r) {
        const T* const x = a.in<T>(0) + 2 * r * n;
        loops.of<T>().gated[act](x, x + n, a.in<float>(1)[a.in<int32_t>(2)[r]], a.out<T>(0) + r * n, n);
      });
    });
  }
};

template <Choose isa>
struct GatedGrad {
  static constexpr const char* op = MOE_OP_GATED_GRAD;
  int32_t type;
  int64_t n_rows, n;
  size_t act;
  unsigned threads;
  const Loops& loops;

  static void check(const Call& c) {
    cpu::need_float(c.in[0], "dy"), cpu::need_same_type(c.in[0], c.in[1], "dy and x");
    cpu::need_same_type(c.in[0], c.out[0], "dy and dx"), need_wide(c, {2}, {1}, "weights"), activation_of(c);
  }
  explicit GatedGrad(const Call& c)
      : type(c.in[0].dtype),
        n_rows(rows(c.in[0])),
        n(columns(c.in[0])),
        act(activation_of(c)),
        threads(c.parallel),
        loops(*isa().loops) {}
  void run(const Args& a) const {
    cpu::by_type(type, [&]<class T>(T) {
      each_row(threads, n_rows, [&](int64_t r) {
        const T* const x = a.in<T>(1) + 2 * r * n;
        T* const dx = a.out<T>(0) + 2 * r * n;
        const int32_t pair = a.in<int32_t>(3)[r];
        a.out<float>(1)[pair] =
            loops.of<T>().gated_grad[act](a.in<T>(0) + r * n, x, x + n, a.in<float>(2)[pair], dx, dx + n, n);
      });
    });
  }
};

template <Choose isa>
struct Combine {
  static constexpr const char* op = MOE_OP_COMBINE;
  int32_t type;
  int64_t tokens, n, k;
  unsigned threads;
  const Loops& loops;

  static void check(const Call& c) { cpu::need_float(c.in[0], "x"), cpu::need_same_type(c.in[0], c.out[0], "x and y"); }
  explicit Combine(const Call& c)
      : type(c.in[0].dtype),
        tokens(rows(c.out[0])),
        n(columns(c.out[0])),
        k(c.in[1].dims[2]),
        threads(c.parallel),
        loops(*isa().loops) {}
  void run(const Args& a) const {
    cpu::by_type(type, [&]<class T>(T) {
      each_row(threads, tokens, [&](int64_t t) {
        loops.of<T>().sum_rows(a.in<T>(0), a.in<int32_t>(1) + t * k, k, a.out<T>(0) + t * n, n);
      });
    });
  }
};

struct Gather {
  static constexpr const char* op = MOE_OP_GATHER;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t pairs, k;
  size_t bytes;
  unsigned threads;

  explicit Gather(const Call& c)
      : pairs(elements(c.in[1])),
        k(c.in[1].dims[2]),
        bytes(static_cast<size_t>(columns(c.in[0])) * common::dtype_size(c.in[0].dtype)),
        threads(c.parallel) {}
  void run(const Args& a) const {
    gather_rows(threads, a.in<char>(0), a.in<int32_t>(1), pairs, k, bytes, a.out<char>(0));
  }
};

template <Choose isa>
const eng_kernels* kernels_of() {
  static const eng_kernel* const list[] = {&common::kernel<Route<isa>>,
                                           &common::kernel<RouteGrad<isa>>,
                                           &common::kernel<Linear<isa, true>>,
                                           &common::kernel<Linear<isa, false>>,
                                           &common::kernel<LinearWeightGrad<isa>>,
                                           &common::kernel<Gated<isa>>,
                                           &common::kernel<GatedGrad<isa>>,
                                           &common::kernel<Combine<isa>>,
                                           &common::kernel<Gather>,
                                           &balance_kernel,
                                           &balance_grad_kernel,
                                           &route_sigmoid_kernel,
                                           &route_sigmoid_grad_kernel};
  static const eng_kernels table = {
      .struct_size = sizeof(eng_kernels), .count = sizeof list / sizeof *list, .kernels = list};
  return &table;
}

}  // namespace

const eng_kernels* cpu_kernels() {
  return kernels_of<best_isa>();
}

const eng_kernels* isa_kernels(const char* name) {
  const Isa* const found = find_isa(name);
#ifdef MOE_X86
  if (found && std::strcmp(name, "avx512") == 0) return kernels_of<avx512>();
  if (found && std::strcmp(name, "avx2") == 0) return kernels_of<avx2>();
#endif
  return found ? kernels_of<portable>() : nullptr;
}

}  // namespace moe
