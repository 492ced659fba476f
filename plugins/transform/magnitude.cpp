// SPDX-License-Identifier: Apache-2.0
// Shapes, gradients and kernels for host memory. An element is computed by one thread, so bits do not depend on
// threads.
#include "magnitude.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "../common/half.hpp"
#include "../common/kernel.hpp"
#include "../common/parallel.hpp"

namespace dora {
namespace {

using common::Args;
using common::Call;
using common::columns;
using common::rows;

void expect(bool right, const char* rule) {
  if (!right) throw common::Error{ENG_INVALID, rule};
}

bool is_real(const eng_desc& d) {
  return d.dtype == ENG_F32 || d.dtype == ENG_F64 || d.dtype == ENG_BF16 || d.dtype == ENG_F16;
}

int32_t wide(const eng_desc& d) {
  return d.dtype == ENG_F64 ? ENG_F64 : ENG_F32;
}

bool is_vector(const eng_desc& d, int64_t length, int32_t dtype) {
  return d.ndim == 1 && d.dims[0] == length && d.dtype == dtype;
}

void check_norm(const Call& c) {
  const eng_desc &w = c.in[0], &a = c.in[1], &b = c.in[2];
  expect(is_real(w) && w.ndim == 2, "w must be a matrix of real numbers");
  expect(a.ndim == 2 && a.dims[1] == w.dims[1] && is_real(a), "a must be (k, columns of w)");
  expect(b.ndim == 2 && b.dims[0] == w.dims[0] && b.dims[1] == a.dims[0] && b.dtype == a.dtype,
         "b must be (rows of w, k), of the type of a");
  expect((a.dtype == ENG_F64) == (w.dtype == ENG_F64), "a and b must be f64 where w is");
}

void check_magnitude(const Call& c) {
  const eng_desc& z = c.in[0];
  expect(is_real(z) && z.ndim >= 1, "z must have real numbers");
  expect(is_vector(c.in[1], columns(z), wide(z)) && is_vector(c.in[2], columns(z), wide(z)),
         "m and norm must be f32, one for each column of z (f64 where z is)");
  expect(!c.has(3) || is_vector(c.in[3], columns(z), z.dtype), "bias must have a number for each column of z");
}

void check_gradient(const Call& c) {
  const eng_desc &dy = c.in[0], &z = c.in[1];
  expect(is_real(dy) && dy.ndim >= 1 && dy.dtype == z.dtype && columns(dy) == columns(z) && rows(dy) == rows(z),
         "dy and z must agree");
  expect(is_vector(c.in[2], columns(z), wide(z)), "norm must have a number for each column of z");
}

template <void (*Check)(const Call&), class Output>
eng_status infer_one(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error, Output output) {
  return common::guarded(error, [&] {
    const Call c(*call);
    Check(c);
    expect(cap >= 1, "the host has no room for the output");
    out[0] = output(c);
    *n = 1;
  });
}

eng_desc vector_of(int64_t length, int32_t dtype) {
  eng_desc out{};
  out.dtype = dtype, out.ndim = 1, out.dims[0] = length;
  return out;
}

eng_status infer_norm(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return infer_one<check_norm>(call, out, cap, n, error,
                               [](const Call& c) { return vector_of(c.in[0].dims[0], wide(c.in[0])); });
}
eng_status infer_magnitude(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return infer_one<check_magnitude>(call, out, cap, n, error, [](const Call& c) { return c.in[0]; });
}
eng_status infer_gradient(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return infer_one<check_gradient>(call, out, cap, n, error, [](const Call& c) { return c.in[2]; });
}

double norm_flops(const eng_call* c) {
  return 2.0 * static_cast<double>(common::elements(c->in[0])) * static_cast<double>(c->in[1].dims[0] + 2);
}

// Its outputs are constants: see `constants` in the description.
eng_status no_gradient(eng_gradient* g, eng_error* error) {
  return g->api->status(g, error);
}

eng_status magnitude_gradient(eng_gradient* g, eng_error* error) {
  const eng_gradient_api& api = *g->api;
  const eng_id dy = api.d_out(g, 0);
  if (!dy) return api.status(g, error);
  const eng_id z = api.in(g, 0), m = api.in(g, 1), norm = api.in(g, 2);
  const eng_attr squares = {"squares", 1, 0};
  uint32_t n_attrs = 0;
  const eng_attr* const attrs = api.attrs(g, &n_attrs);
  const bool squared = std::any_of(attrs, attrs + n_attrs,
                                   [](const eng_attr& a) { return std::string_view(a.key) == "squares" && a.i; });
  const auto emit = [&](const char* op, std::initializer_list<eng_id> in, const eng_attr* attr = nullptr) {
    if (!attr && squared) attr = &squares;
    eng_id made = 0;
    api.emit(g, op, in.begin(), static_cast<uint32_t>(in.size()), &made, 1, attr, attr ? 1 : 0, nullptr);
    return made;
  };
  if (api.wants(g, 0)) api.give(g, 0, emit(DORA_OP_MAGNITUDE, {dy, m, norm}));
  const bool by_norm = api.wants(g, 2) && !squared;
  if (api.wants(g, 1) || by_norm) {
    const eng_id dm = emit(DORA_OP_MAGNITUDE_GRAD, {dy, z, norm});
    if (api.wants(g, 1)) api.give(g, 1, dm);
    const eng_attr minus = {"factor", 0, -1.0};
    if (by_norm) api.give(g, 2, emit(ENG_OP_SCALE, {emit(DORA_OP_MAGNITUDE, {dm, m, norm})}, &minus));
  }
  if (api.in(g, 3) && api.wants(g, 3)) api.give(g, 3, emit(ENG_OP_SUM_ROWS, {dy}));
  return api.status(g, error);
}

constexpr eng_in_place over_z[] = {{0, 0, 0, 0}};

constexpr eng_op make_op(const char* id, uint32_t flags, uint32_t most, decltype(eng_op::infer) infer) {
  eng_op op{};
  op.struct_size = sizeof op, op.flags = flags, op.id = id, op.min_in = 3, op.max_in = most, op.infer = infer;
  return op;
}
constexpr eng_op make_norm() {
  eng_op op = make_op(DORA_OP_ROW_NORM, ENG_OP_BY_POSITION, 3, infer_norm);
  op.flops = norm_flops, op.grad = no_gradient;
  return op;
}
constexpr eng_op make_magnitude() {
  eng_op op = make_op(DORA_OP_MAGNITUDE, ENG_OP_BY_POSITION, 4, infer_magnitude);
  op.grad = magnitude_gradient, op.in_place = over_z, op.n_in_place = 1;
  return op;
}
constexpr eng_op norm_op = make_norm(), magnitude_op = make_magnitude(),
                 gradient_op = make_op(DORA_OP_MAGNITUDE_GRAD, 0, 3, infer_gradient);
const eng_op* const op_list[] = {&norm_op, &magnitude_op, &gradient_op};

// use(a value of the type): the kernels are templates over it.
template <class Use>
void with_type(int32_t dtype, Use use) {
  if (dtype == ENG_F64)
    use(double{});
  else if (dtype == ENG_F32)
    use(float{});
  else if (dtype == ENG_BF16)
    use(common::Bf16{});
  else
    use(common::F16{});
}

template <class T>
double wide_of(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return double{common::to_f32(x)};
}

struct RowNorm {
  static constexpr const char* op = DORA_OP_ROW_NORM;
  static void check(const Call& c) { check_norm(c); }
  static uint64_t workspace(const Call& c) {  // a row of B A for each thread
    return sizeof(double) * c.parallel * static_cast<uint64_t>(c.in[0].dims[1]);
  }
  explicit RowNorm(const Call& c)
      : threads(c.parallel),
        type(c.in[0].dtype),
        path_type(c.in[1].dtype),
        height(c.in[0].dims[0]),
        width(c.in[0].dims[1]),
        rank(c.in[1].dims[0]),
        scale(c.real_or("scale", 1)),
        squares(c.integer_or("squares", 0) != 0) {}
  void run(const Args& args) const {
    with_type(type, [&](auto w) { with_type(path_type, [&](auto a) { typed<decltype(w), decltype(a)>(args); }); });
  }

 private:
  template <class W, class P>
  void typed(const Args& args) const {
    const W* const w = args.in<W>(0);
    const P *const a = args.in<P>(1), *const b = args.in<P>(2);
    double* const scratch = args.scratch<double>();
    cpu::parallel_tasks(threads, height, [&](unsigned thread, int64_t i) {
      double* const row = scratch + thread * width;
      std::fill(row, row + width, 0.0);
      for (int64_t k = 0; k < rank; ++k) {
        const double factor = wide_of(b[i * rank + k]);
        for (int64_t j = 0; j < width; ++j) row[j] += factor * wide_of(a[k * width + j]);
      }
      double sum = 0;
      for (int64_t j = 0; j < width; ++j) {
        const double value = wide_of(w[i * width + j]) + scale * row[j];
        sum += value * value;
      }
      const double out = squares ? sum : std::sqrt(sum);
      if constexpr (std::is_same_v<W, double>)
        args.out<double>(0)[i] = out;
      else
        args.out<float>(0)[i] = static_cast<float>(out);
    });
  }
  const unsigned threads;
  const int32_t type, path_type;
  const int64_t height, width, rank;
  const double scale;
  const bool squares;
};

// m / norm, 0 where the row has no direction.
template <class R>
R factor_of(R m, R norm, bool squares) {
  if (squares) norm = std::sqrt(norm);
  return norm > 0 || std::isnan(norm) ? m / norm : R{0};
}

struct Magnitude {
  static constexpr const char* op = DORA_OP_MAGNITUDE;
  static void check(const Call& c) { check_magnitude(c); }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(columns(c.in[0])); }
  explicit Magnitude(const Call& c)
      : threads(c.parallel),
        type(c.in[0].dtype),
        height(rows(c.in[0])),
        width(columns(c.in[0])),
        squares(c.integer_or("squares", 0) != 0) {}
  void run(const Args& args) const {
    with_type(type, [&](auto x) { typed<decltype(x)>(args); });
  }

 private:
  template <class T>
  void typed(const Args& args) const {
    using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const R *const m = args.in<R>(1), *const norm = args.in<R>(2);
    const T *const z = args.in<T>(0), *const bias = args.in<T>(3);
    R* const factor = args.scratch<R>();
    T* const y = args.out<T>(0);
    for (int64_t i = 0; i < width; ++i) factor[i] = factor_of(m[i], norm[i], squares);
    cpu::parallel_for(threads, [&](unsigned thread, unsigned many) {
      const cpu::Share mine = cpu::share_of(height, thread, many);
      for (int64_t t = mine.first; t < mine.last; ++t)
        for (int64_t i = 0; i < width; ++i) {
          R value = static_cast<R>(z[t * width + i]) * factor[i];
          if (bias) value += static_cast<R>(bias[i]);
          y[t * width + i] = T(value);
        }
    });
  }
  const unsigned threads;
  const int32_t type;
  const int64_t height, width;
  const bool squares;
};

struct MagnitudeGrad {
  static constexpr const char* op = DORA_OP_MAGNITUDE_GRAD;
  static constexpr int64_t tile = 64;  // columns that are summed together
  static void check(const Call& c) { check_gradient(c); }
  explicit MagnitudeGrad(const Call& c)
      : threads(c.parallel),
        type(c.in[0].dtype),
        height(rows(c.in[0])),
        width(columns(c.in[0])),
        squares(c.integer_or("squares", 0) != 0) {}
  void run(const Args& args) const {
    with_type(type, [&](auto x) { typed<decltype(x)>(args); });
  }

 private:
  template <class T>
  void typed(const Args& args) const {
    using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const T *const dy = args.in<T>(0), *const z = args.in<T>(1);
    const R* const norm = args.in<R>(2);
    R* const dm = args.out<R>(0);
    cpu::parallel_tasks(threads, (width + tile - 1) / tile, [&](unsigned, int64_t task) {
      const int64_t first = task * tile, n = std::min(tile, width - first);
      std::array<double, tile> sums{};
      for (int64_t t = 0; t < height; ++t)
        for (int64_t i = 0; i < n; ++i)
          sums[static_cast<size_t>(i)] +=
              wide_of(dy[t * width + first + i]) * wide_of(z[t * width + first + i]);  // exact products of f32
      for (int64_t i = 0; i < n; ++i)
        dm[first + i] = static_cast<R>(factor_of(sums[static_cast<size_t>(i)], double{norm[first + i]}, squares));
    });
  }
  const unsigned threads;
  const int32_t type;
  const int64_t height, width;
  const bool squares;
};

}  // namespace

const eng_ops ops = {.struct_size = sizeof(eng_ops), .count = 3, .ops = op_list};
const eng_kernels kernels = common::kernel_table<RowNorm, Magnitude, MagnitudeGrad>;

}  // namespace dora
