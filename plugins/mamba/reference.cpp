// SPDX-License-Identifier: Apache-2.0
// Kernels for the device `reference`: the formulas of ops.hpp as plain loops on one thread, every sum in f64, f32 and
// f64 tensors alike. What other kernels are compared with.
#include <cmath>
#include <cstring>

#include "kernels.hpp"
#include "ops.hpp"

namespace mamba {
namespace {

using cpu::Args;
using cpu::Call;
using cpu::columns;
using cpu::elements;
using cpu::rows;

// Elements of a tensor of f32 or f64, read as f64 and rounded once when written.
struct Reals {
  void* at;
  bool is_double;
  Reals(const Call& c, const Args& a, size_t k)
      : at(a.data[k]), is_double((k < a.n_in ? c.in[k] : c.out[k - a.n_in]).dtype == ENG_F64) {}
  double operator[](int64_t i) const { return is_double ? static_cast<double*>(at)[i] : static_cast<float*>(at)[i]; }
  void set(int64_t i, double x) const {
    if (is_double)
      static_cast<double*>(at)[i] = x;
    else
      static_cast<float*>(at)[i] = static_cast<float>(x);
  }
};

void expect_reals(const Call& c) {
  for (const auto* list : {&c.in, &c.out})
    for (const eng_desc& d : *list)
      if (d.dtype && d.dtype != ENG_F32 && d.dtype != ENG_F64)
        throw cpu::Error{ENG_UNSUPPORTED, "computes in f32 or f64"};
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double softplus(double x) {
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

// Of whole sequences, or the next tokens of running ones.
template <bool step>
struct Conv {
  static constexpr const char* op = step ? MAMBA_OP_CONV_STEP : MAMBA_OP_CONV;
  static constexpr size_t bias = step ? 3 : 2;
  Call c;
  explicit Conv(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), w(c, a, 1), y(c, a, a.n_in), last(c, a, step ? a.n_in + 1 : 0);
    const int64_t B = c.in[0].dims[0], T = c.in[0].dims[1], G = c.in[0].dims[2], E = c.in[1].dims[0],
                  K = c.in[1].dims[2];
    for (int64_t b = 0; b < B; ++b)
      for (int64_t e = 0; e < E; ++e) {
        const auto kept = [&](int64_t t) { return (b * (K - 1) + K - 1 + t) * E + e; };  // t from 1 - K to -1
        const auto at = [&](int64_t t) { return t >= 0 ? x[(b * T + t) * G + e] : step ? last[kept(t)] : 0.0; };
        for (int64_t t = 0; t < T; ++t) {
          double pre = c.has(bias) ? Reals(c, a, bias)[e] : 0.0;
          for (int64_t k = 0; k < K; ++k) pre += w[e * K + k] * at(t - K + 1 + k);
          y.set((b * T + t) * E + e, pre * sigmoid(pre));
        }
        for (int64_t t = 1 - K; step && t < 0; ++t) last.set(kept(t), at(T + t));
      }
  }
};

struct ConvGrad {
  static constexpr const char* op = MAMBA_OP_CONV_GRAD;
  Call c;
  explicit ConvGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c); }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(c.in[1].dims[1]); }
  void run(const Args& a) const {
    const Reals dy(c, a, 0), x(c, a, 1), w(c, a, 2), dx(c, a, a.n_in), dw(c, a, a.n_in + 1);
    const int64_t B = c.in[1].dims[0], T = c.in[1].dims[1], G = c.in[1].dims[2], E = c.in[2].dims[0],
                  K = c.in[2].dims[2];
    double* dpre = a.scratch<double>();  // (T)
    if (!c.has(4))
      for (int64_t i = 0; i < B * T * G; ++i) dx.set(i, 0.0);
    for (int64_t e = 0; e < E; ++e) {
      double taps[4] = {}, bias = 0;
      for (int64_t b = 0; b < B; ++b) {
        for (int64_t t = 0; t < T; ++t) {
          double pre = c.has(3) ? Reals(c, a, 3)[e] : 0.0;
          for (int64_t k = 0; k < K; ++k)
            if (const int64_t s = t - K + 1 + k; s >= 0) pre += w[e * K + k] * x[(b * T + s) * G + e];
          const double s = sigmoid(pre);
          dpre[t] = dy[(b * T + t) * E + e] * s * (1.0 + pre * (1.0 - s));
          bias += dpre[t];
        }
        for (int64_t t = 0; t < T; ++t) {
          double sum = dx[(b * T + t) * G + e];
          for (int64_t k = 0; k < K; ++k)
            if (const int64_t s = t + K - 1 - k; s < T) {
              sum += w[e * K + k] * dpre[s];
              taps[k] += dpre[s] * x[(b * T + t) * G + e];
            }
          dx.set((b * T + t) * G + e, sum);
        }
      }
      for (int64_t k = 0; k < K; ++k) dw.set(e * K + k, taps[k]);
      if (c.has(3)) Reals(c, a, a.n_in + 2).set(e, bias);
    }
  }
};

template <bool step>
struct Scan {
  static constexpr const char* op = step ? MAMBA_OP_SCAN_STEP : MAMBA_OP_SCAN;
  Call c;
  explicit Scan(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c); }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(columns(c.in[2])); }
  void run(const Args& a) const {
    const Reals u(c, a, 0), delta(c, a, 1), a_log(c, a, 2), bc(c, a, 3), d(c, a, 4), bias(c, a, 5), gate(c, a, 6),
        y(c, a, a.n_in), states(c, a, a.n_in + 1);
    const int64_t B = c.in[0].dims[0], T = c.in[0].dims[1], E = c.in[0].dims[2], N = columns(c.in[2]),
                  G = columns(c.in[6]);
    double* h = a.scratch<double>();  // (N)
    for (int64_t b = 0; b < B; ++b)
      for (int64_t e = 0; e < E; ++e) {
        for (int64_t n = 0; n < N; ++n) h[n] = step ? states[(b * N + n) * E + e] : 0.0;
        for (int64_t t = 0; t < T; ++t) {
          const int64_t row = b * T + t;
          for (int64_t n = 0; !step && t % chunk == 0 && n < N; ++n)
            states.set(((b * chunks(T) + t / chunk) * N + n) * E + e, h[n]);
          const double s = softplus(delta[row * E + e] + bias[e]), z = gate[row * G + G - E + e], x = u[row * E + e];
          double sum = d[e] * x;
          for (int64_t n = 0; n < N; ++n) {
            h[n] = std::exp(-s * std::exp(a_log[e * N + n])) * h[n] + s * x * bc[row * 2 * N + n];
            sum += bc[row * 2 * N + N + n] * h[n];
          }
          y.set(row * E + e, sum * z * sigmoid(z));
        }
        for (int64_t n = 0; step && n < N; ++n) states.set((b * N + n) * E + e, h[n]);
      }
  }
};

struct ScanGrad {
  static constexpr const char* op = MAMBA_OP_SCAN_GRAD;
  Call c;
  explicit ScanGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c); }
  static uint64_t workspace(const Call& c) {
    const int64_t T = c.in[1].dims[1], E = c.in[1].dims[2], N = columns(c.in[3]);
    return sizeof(double) * static_cast<uint64_t>(6 * T + c.in[1].dims[0] * T * 2 * N + E * N + 2 * E);
  }
  void run(const Args& a) const {
    const Reals grad(c, a, 0), u(c, a, 1), delta(c, a, 2), a_log(c, a, 3), bc(c, a, 4), d(c, a, 5), bias(c, a, 6),
        gate(c, a, 7);
    const Reals du(c, a, a.n_in), ddelta(c, a, a.n_in + 1), da_log(c, a, a.n_in + 2), dbc(c, a, a.n_in + 3),
        dd(c, a, a.n_in + 4), dbias(c, a, a.n_in + 5), dgate(c, a, a.n_in + 6);
    const int64_t B = c.in[1].dims[0], T = c.in[1].dims[1], E = c.in[1].dims[2], N = columns(c.in[3]),
                  G = columns(c.in[7]);
    double *s = a.scratch<double>(), *h = s + T, *y = h + T, *dy = y + T, *x_sum = dy + T, *s_sum = x_sum + T;  // (T)
    double *bc_sum = s_sum + T, *a_sum = bc_sum + B * T * 2 * N;  // (B, T, 2N), (E, N)
    double *d_sum = a_sum + E * N, *bias_sum = d_sum + E;         // (E)
    std::memset(bc_sum, 0, sizeof(double) * static_cast<size_t>(B * T * 2 * N + E * N + 2 * E));
    for (int64_t i = 0; i < B * T * G; ++i) dgate.set(i, 0.0);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t e = 0; e < E; ++e) {
        const int64_t first = b * T;
        for (int64_t t = 0; t < T; ++t) {
          s[t] = softplus(delta[(first + t) * E + e] + bias[e]);
          y[t] = d[e] * u[(first + t) * E + e];
        }
        // h of one state, after each token.
        const auto walk = [&](int64_t n) {
          const double rate = -std::exp(a_log[e * N + n]);
          for (int64_t t = 0; t < T; ++t)
            h[t] = std::exp(s[t] * rate) * (t ? h[t - 1] : 0.0) +
                   s[t] * u[(first + t) * E + e] * bc[(first + t) * 2 * N + n];
          return rate;
        };
        for (int64_t n = 0; n < N; ++n) {
          walk(n);
          for (int64_t t = 0; t < T; ++t) y[t] += bc[(first + t) * 2 * N + N + n] * h[t];
        }
        for (int64_t t = 0; t < T; ++t) {
          const double z = gate[(first + t) * G + G - E + e], p = sigmoid(z), in = grad[(first + t) * E + e];
          dy[t] = in * z * p;
          dgate.set((first + t) * G + G - E + e, in * y[t] * p * (1.0 + z * (1.0 - p)));
          d_sum[e] += dy[t] * u[(first + t) * E + e];
          x_sum[t] = d[e] * dy[t], s_sum[t] = 0;
        }
        for (int64_t n = 0; n < N; ++n) {
          const double rate = walk(n);
          double g = 0;  // gradient of h[t], then times exp(s[t] rate) that of h[t - 1]
          for (int64_t t = T; t-- > 0;) {
            const int64_t row = first + t;
            const double x = u[row * E + e], B_t = bc[row * 2 * N + n], decay = std::exp(s[t] * rate);
            g += bc[row * 2 * N + N + n] * dy[t];
            bc_sum[row * 2 * N + N + n] += dy[t] * h[t];
            bc_sum[row * 2 * N + n] += g * s[t] * x;
            x_sum[t] += g * s[t] * B_t;
            const double kept = t ? decay * h[t - 1] : 0.0;
            s_sum[t] += g * (B_t * x + rate * kept);
            a_sum[e * N + n] += g * s[t] * kept * rate;
            g *= decay;
          }
        }
        for (int64_t t = 0; t < T; ++t) {
          const int64_t i = (first + t) * E + e;
          const double raw = delta[i] + bias[e], slope = s_sum[t] * (raw > 20.0 ? 1.0 : sigmoid(raw));
          bias_sum[e] += slope;
          du.set(i, x_sum[t]), ddelta.set(i, slope);
        }
      }
    for (int64_t i = 0; i < B * T * 2 * N; ++i) dbc.set(i, bc_sum[i]);
    for (int64_t i = 0; i < E * N; ++i) da_log.set(i, a_sum[i]);
    for (int64_t e = 0; e < E; ++e) dd.set(e, d_sum[e]), dbias.set(e, bias_sum[e]);
  }
};

const eng_kernel* const list[] = {
    &cpu::kernel<Conv<false>>, &cpu::kernel<Conv<true>>, &cpu::kernel<ConvGrad>, &cpu::kernel<Scan<false>>,
    &cpu::kernel<Scan<true>>,  &cpu::kernel<ScanGrad>,   &split_kernel,          &join_kernel,
    &init_a_log_kernel,        &init_dt_bias_kernel};

}  // namespace

extern const eng_kernels reference_kernels = {sizeof(eng_kernels), sizeof list / sizeof *list, list};

}  // namespace mamba
