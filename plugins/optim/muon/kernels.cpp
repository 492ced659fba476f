// SPDX-License-Identifier: Apache-2.0
// Muon's kernels. For the device `reference`: plain loops on one thread, f32 or f64. For `cpu`: f32 on all threads.
// Both do the same operations in the same order, so they give the same bits.
#include <cmath>
#include <type_traits>

#include "../../common/lanes.hpp"
#include "../../common/parallel.hpp"
#include "../../common/weight.hpp"
#include "neurons.hpp"

namespace muon {
namespace {

using common::Args;
using common::Call;
using common::elements;

constexpr int64_t chunk = 4096, lanes = 64;

void need(bool right, const char* text) {
  if (!right) throw common::Error{ENG_UNSUPPORTED, text};
}

// All tensors have one type: f32, or on the reference device also f64. Scalars are always f32. Of the outputs the first
// `outputs` count.
void check_types(const Call& c, bool fast, size_t scalars, size_t outputs = SIZE_MAX) {
  const int32_t type = c.in[0].dtype;
  need(type == ENG_F32 || (!fast && type == ENG_F64), fast ? "computes in f32" : "computes in f32 or f64");
  for (const auto* list : {&c.in, &c.out})
    for (size_t k = 0; k < list->size() && (list == &c.in || k < outputs); ++k) {
      const bool last = list == &c.in && k == scalars;
      need((*list)[k].dtype == (last ? ENG_F32 : type),
           last ? "scalars must be f32" : "all tensors must have one type");
    }
}

template <class F>
void by_type(int32_t dtype, F&& f) {
  if (dtype == ENG_F64)
    f(double{});
  else
    f(float{});
}

// Calls f(first, last) for disjoint ranges of n elements; each range starts at a cache line.
template <class F>
void shares(unsigned threads, int64_t n, F&& f) {
  if (n < 2 * chunk) return f(int64_t{0}, n);
  cpu::parallel_for(threads, [&](unsigned thread, unsigned all) {
    const cpu::Share share = cpu::share_of(n, thread, all, 64);
    if (share.first < share.last) f(share.first, share.last);
  });
}

// The threads of a kernel: the reference has one.
template <bool fast>
unsigned threads_of(const Call& c) {
  return fast ? c.parallel : 1;
}

template <bool fast>
struct Momentum {
  static constexpr const char* op = MUON_OP_MOMENTUM;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t type;
  int64_t n;
  unsigned threads;
  double momentum;
  bool nesterov;

  static void check(const Call& c) {
    check_types(c, fast, 2);
    c.real("momentum"), c.integer("nesterov");
  }
  explicit Momentum(const Call& c)
      : type(c.in[0].dtype),
        n(elements(c.in[0])),
        threads(threads_of<fast>(c)),
        momentum(c.real("momentum")),
        nesterov(c.integer("nesterov") != 0) {}
  void run(const Args& a) const {
    const float* scalars = a.in<float>(2);
    if (scalars[ENG_S_OK] == 0.0f) return;  // both are in place
    by_type(type, [&]<class T>(T) {
      const T clip = T(scalars[ENG_S_CLIP]), mu = T(momentum);
      T *const grad = a.out<T>(0), *const m = a.out<T>(1);
      shares(threads, n, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const T g = grad[i] * clip;
          const T sum = mu * m[i] + g;
          m[i] = sum;
          grad[i] = nesterov ? g + mu * sum : sum;
        }
      });
    });
  }
};

// The sum of squares of up to a chunk.
template <class T>
T sum_squares(const T* x, int64_t n) {
  T fold[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t j = 0; j < lanes; ++j) fold[j] = fold[j] + x[i + j] * x[i + j];
  for (int64_t j = 0; i + j < n; ++j) fold[j] = fold[j] + x[i + j] * x[i + j];
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) fold[j] = fold[j] + fold[j + half];
  return fold[0];
}

template <bool fast>
struct Normalize {
  static constexpr const char* op = MUON_OP_NORMALIZE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t type;
  int64_t n, chunks;
  unsigned threads;
  double eps;

  static int64_t chunks_of(const Call& c) { return (elements(c.in[0]) + chunk - 1) / chunk; }
  static void check(const Call& c) {
    check_types(c, fast, SIZE_MAX);
    c.real("eps");
  }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(chunks_of(c)); }
  explicit Normalize(const Call& c)
      : type(c.in[0].dtype),
        n(elements(c.in[0])),
        chunks(chunks_of(c)),
        threads(threads_of<fast>(c)),
        eps(c.real("eps")) {}
  void run(const Args& a) const {
    by_type(type, [&]<class T>(T) {
      const T* u = a.in<T>(0);
      T* x = a.out<T>(0);
      double* partial = a.scratch<double>();
      cpu::parallel_for(threads, [&](unsigned thread, unsigned all) {
        const cpu::Share share = cpu::share_of(chunks, thread, all);
        for (int64_t k = share.first; k < share.last; ++k)
          partial[k] = double(sum_squares(u + k * chunk, n - k * chunk < chunk ? n - k * chunk : chunk));
      });
      const double sum = common::sum_in_lanes(chunks, [&](int64_t k) { return partial[k]; });
      const T by = T(1.0 / (std::sqrt(sum) + eps));
      shares(threads, n, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) x[i] = by * u[i];
      });
    });
  }
};

template <bool fast>
struct Neurons {
  static constexpr const char* op = MUON_OP_NEURONS;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t type;
  int64_t rows, columns;
  unsigned threads;
  double beta2, eps, norm;

  static void check(const Call& c) {
    check_types(c, fast, 2);
    c.real("beta2"), c.real("eps"), c.real("norm");
  }
  static uint64_t workspace(const Call& c) { return 2 * sizeof(double) * static_cast<uint64_t>(c.in[0].dims[0]); }
  explicit Neurons(const Call& c)
      : type(c.in[0].dtype),
        rows(c.in[0].dims[0]),
        columns(c.in[0].dims[1]),
        threads(threads_of<fast>(c)),
        beta2(c.real("beta2")),
        eps(c.real("eps")),
        norm(c.real("norm")) {}
  void run(const Args& a) const {
    if (a.in<float>(2)[ENG_S_OK] == 0.0f) return;  // both are in place
    by_type(type, [&]<class T>(T) {
      T *const o = a.out<T>(0), *const v = a.out<T>(1);
      double *const squares = a.scratch<double>(), *const by = squares + rows;
      const auto each_row = [&](auto&& f) {
        cpu::parallel_for(threads, [&](unsigned thread, unsigned all) {
          const cpu::Share share = cpu::share_of(rows, thread, all);
          for (int64_t i = share.first; i < share.last; ++i) f(i, o + i * columns);
        });
      };
      each_row([&](int64_t i, const T* row) {
        double sum = 0;
        for (int64_t k = 0; k < columns; k += chunk)
          sum += double(sum_squares(row + k, columns - k < chunk ? columns - k : chunk));
        const T mean = T(sum / double(columns));
        const T before = T(beta2) * v[i], more = T(1 - beta2) * mean;
        v[i] = before + more;
        const T divisor = std::sqrt(v[i]) + T(eps);
        by[i] = double(T(1) / divisor), squares[i] = (by[i] * by[i]) * sum;
      });
      const double all = common::sum_in_lanes(rows, [&](int64_t k) { return squares[k]; });
      const double scale = all > 0 ? norm / std::sqrt(all) : 0;
      each_row([&](int64_t i, T* row) {
        const T factor = T(by[i] * scale);
        for (int64_t k = 0; k < columns; ++k) row[k] = factor * row[k];
      });
    });
  }
};

template <bool fast>
struct Apply {
  static constexpr const char* op = MUON_OP_APPLY;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t type;
  int64_t n;
  unsigned threads;
  int32_t weight;  // its type; 0: none
  double weight_decay;

  static void check(const Call& c) {
    check_types(c, fast, 2, 1);
    common::check_weight(c, 1);
    c.real("weight_decay");
  }
  explicit Apply(const Call& c)
      : type(c.in[0].dtype),
        n(elements(c.in[0])),
        threads(threads_of<fast>(c)),
        weight(common::has_weight(c, 1) ? c.out[1].dtype : 0),
        weight_decay(c.real("weight_decay")) {}
  void run(const Args& a) const {
    const float* scalars = a.in<float>(2);
    const bool counts = scalars[ENG_S_OK] != 0.0f;  // p is in place
    if (!counts && !weight) return;
    by_type(type, [&]<class T>(T) {
      const T lr = T(scalars[ENG_S_LR]), wd = T(weight_decay);
      const T* o = a.in<T>(1);
      T* const p = a.out<T>(0);
      shares(threads, n, [&](int64_t first, int64_t last) {
        for (int64_t at = first; at < last; at += chunk) {
          const int64_t end = last - at < chunk ? last : at + chunk;
          for (int64_t i = at; counts && i < end; ++i) {
            const T kept = weight_decay != 0 ? p[i] - lr * (wd * p[i]) : p[i];
            p[i] = kept - lr * o[i];
          }
          common::cast_weight(weight, a.out<float>(0), a.out<void>(1), at, end);
        }
      });
    });
  }
};

}  // namespace

const eng_kernels cpu_kernels = common::kernel_table<Momentum<true>, Normalize<true>, Apply<true>, Neurons<true>>;
const eng_kernels reference_kernels =
    common::kernel_table<Momentum<false>, Normalize<false>, Apply<false>, Neurons<false>>;

}  // namespace muon
