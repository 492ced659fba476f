// SPDX-License-Identifier: Apache-2.0
// Kernels for the device `reference`: the formulas of ops.hpp as plain loops on one thread. Every sum is in f64,
// whatever the type of a tensor. Other kernels are compared with these.
//
// Shapes in comments: B sequences, T tokens, E channels, N states of a channel.
#include <cstring>

#include "kernels.hpp"
#include "ops.hpp"
#include "reference_shared.hpp"

namespace mamba {
namespace {

// Computes whole sequences, or (step) the next tokens of running ones.
template <bool step>
struct Conv {
  static constexpr const char* op = step ? MAMBA_OP_CONV_STEP : MAMBA_OP_CONV;
  static constexpr size_t bias = step ? 3 : 2, segments = step ? SIZE_MAX : 3;
  Call c;
  explicit Conv(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, segments), cpu::need_numbers(c, segments, c.in[0], "segments"); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), w(c, a, 1), y(c, a, a.n_in), last(c, a, step ? a.n_in + 1 : 0);
    const int64_t batch = c.in[0].dims[0], tokens = c.in[0].dims[1], stride = c.in[0].dims[2],
                  channels = c.in[1].dims[0], taps = c.in[1].dims[2];
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t e = 0; e < channels; ++e) {
        // The index in the state of the x of token t, from 1 - taps to -1: the tokens before this call.
        const auto kept = [&](int64_t t) { return (b * (taps - 1) + taps - 1 + t) * channels + e; };
        const auto at = [&](int64_t t) {
          return t >= 0 ? x[(b * tokens + t) * stride + e] : step ? last[kept(t)] : 0.0;
        };
        cpu::each_document(cpu::segments_of(a, segments, b, tokens), tokens, [&](int64_t first, int64_t length) {
          for (int64_t t = first; t < first + length; ++t) {
            double pre = c.has(bias) ? Reals(c, a, bias)[e] : 0.0;
            for (int64_t k = 0; k < taps; ++k)
              if (const int64_t s = t - taps + 1 + k; s >= first || first == 0) pre += w[e * taps + k] * at(s);
            y.set((b * tokens + t) * channels + e, pre * sigmoid(pre));
          }
        });
        for (int64_t t = 1 - taps; step && t < 0; ++t) last.set(kept(t), at(tokens + t));
      }
  }
};

struct ConvGrad {
  static constexpr const char* op = MAMBA_OP_CONV_GRAD;
  Call c;
  explicit ConvGrad(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_reals(c, 5), cpu::need_sums(c, c.in[2].dtype, {}, {1, 2}), cpu::need_numbers(c, 5, c.in[1], "segments");
  }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(c.in[1].dims[1]); }
  void run(const Args& a) const {
    const Reals dy(c, a, 0), x(c, a, 1), w(c, a, 2), dx(c, a, a.n_in), dw(c, a, a.n_in + 1);
    const int64_t batch = c.in[1].dims[0], tokens = c.in[1].dims[1], stride = c.in[1].dims[2],
                  channels = c.in[2].dims[0], taps = c.in[2].dims[2];
    double* dpre = a.scratch<double>();  // (T): the gradient before the activation
    if (!c.has(4))
      for (int64_t i = 0; i < batch * tokens * stride; ++i) dx.set(i, 0.0);
    for (int64_t e = 0; e < channels; ++e) {
      double dtaps[4] = {}, dbias = 0;
      const auto document = [&](int64_t b, int64_t first, int64_t end) {
        for (int64_t t = first; t < end; ++t) {
          double pre = c.has(3) ? Reals(c, a, 3)[e] : 0.0;
          for (int64_t k = 0; k < taps; ++k)
            if (const int64_t s = t - taps + 1 + k; s >= first)
              pre += w[e * taps + k] * x[(b * tokens + s) * stride + e];
          const double s = sigmoid(pre);
          dpre[t] = dy[(b * tokens + t) * channels + e] * s * (1.0 + pre * (1.0 - s));
          dbias += dpre[t];
        }
        for (int64_t t = first; t < end; ++t) {
          double sum = dx[(b * tokens + t) * stride + e];
          for (int64_t k = 0; k < taps; ++k)
            if (const int64_t s = t + taps - 1 - k; s < end) {
              sum += w[e * taps + k] * dpre[s];
              dtaps[k] += dpre[s] * x[(b * tokens + t) * stride + e];
            }
          dx.set((b * tokens + t) * stride + e, sum);
        }
      };
      for (int64_t b = 0; b < batch; ++b)
        cpu::each_document(cpu::segments_of(a, 5, b, tokens), tokens,
                           [&](int64_t first, int64_t length) { document(b, first, first + length); });
      for (int64_t k = 0; k < taps; ++k) dw.set(e * taps + k, dtaps[k]);
      if (c.has(3)) Reals(c, a, a.n_in + 2).set(e, dbias);
    }
  }
};

template <bool step>
struct Scan {
  static constexpr const char* op = step ? MAMBA_OP_SCAN_STEP : MAMBA_OP_SCAN;
  static constexpr size_t segments = step ? SIZE_MAX : 9;
  Call c;
  explicit Scan(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, segments), cpu::need_numbers(c, segments, c.in[0], "segments"); }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(columns(c.in[2])); }
  void run(const Args& a) const {
    const Reals u(c, a, 0), delta(c, a, 1), a_log(c, a, 2), bc(c, a, 3), d(c, a, 4), bias(c, a, 5), gate(c, a, 6),
        y(c, a, a.n_in), kept(c, a, a.n_in + 1);
    const int64_t batch = c.in[0].dims[0], tokens = c.in[0].dims[1], channels = c.in[0].dims[2],
                  states = columns(c.in[2]), stride = columns(c.in[6]);
    double* h = a.scratch<double>();  // (N)
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t e = 0; e < channels; ++e) {
        for (int64_t n = 0; n < states; ++n) h[n] = step ? kept[(b * states + n) * channels + e] : 0.0;
        for (int64_t t = 0; t < tokens; ++t) {
          const int64_t row = b * tokens + t;
          if (cpu::begins_document(cpu::segments_of(a, segments, b, tokens), t)) std::fill(h, h + states, 0.0);
          for (int64_t n = 0; !step && t % chunk == 0 && n < states; ++n)
            kept.set(((b * chunks(tokens) + t / chunk) * states + n) * channels + e, h[n]);
          const double s = softplus(delta[row * channels + e] + bias[e]),
                       z = gate[row * stride + (stride - channels) + e], x = u[row * channels + e];
          double sum = d[e] * x;
          for (int64_t n = 0; n < states; ++n) {
            h[n] = std::exp(-s * std::exp(a_log[e * states + n])) * h[n] + s * x * bc[row * 2 * states + n];
            sum += bc[row * 2 * states + states + n] * h[n];
          }
          y.set(row * channels + e, sum * z * sigmoid(z));
        }
        for (int64_t n = 0; step && n < states; ++n) kept.set((b * states + n) * channels + e, h[n]);
      }
  }
};

struct ScanGrad {
  static constexpr const char* op = MAMBA_OP_SCAN_GRAD;
  Call c;
  explicit ScanGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, 9), cpu::need_numbers(c, 9, c.in[1], "segments"); }
  static uint64_t workspace(const Call& c) {
    const int64_t tokens = c.in[1].dims[1], channels = c.in[1].dims[2], states = columns(c.in[3]);
    return sizeof(double) *
           static_cast<uint64_t>(6 * tokens + c.in[1].dims[0] * tokens * 2 * states + channels * states + 2 * channels);
  }
  void run(const Args& a) const {
    const Reals grad(c, a, 0), u(c, a, 1), delta(c, a, 2), a_log(c, a, 3), bc(c, a, 4), d(c, a, 5), bias(c, a, 6),
        gate(c, a, 7);
    const Reals du(c, a, a.n_in), ddelta(c, a, a.n_in + 1), da_log(c, a, a.n_in + 2), dbc(c, a, a.n_in + 3),
        dd(c, a, a.n_in + 4), dbias(c, a, a.n_in + 5), dgate(c, a, a.n_in + 6);
    const int64_t batch = c.in[1].dims[0], tokens = c.in[1].dims[1], channels = c.in[1].dims[2],
                  states = columns(c.in[3]), stride = columns(c.in[7]);
    double *s = a.scratch<double>(), *h = s + tokens, *y = h + tokens, *dy = y + tokens, *x_sum = dy + tokens,
           *s_sum = x_sum + tokens;                                                  // (T)
    double *bc_sum = s_sum + tokens, *a_sum = bc_sum + batch * tokens * 2 * states;  // (B, T, 2N), (E, N)
    double *d_sum = a_sum + channels * states, *bias_sum = d_sum + channels;         // (E)
    std::memset(bc_sum, 0,
                sizeof(double) * static_cast<size_t>(batch * tokens * 2 * states + channels * states + 2 * channels));
    for (int64_t i = 0; i < batch * tokens * stride; ++i) dgate.set(i, 0.0);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t e = 0; e < channels; ++e) {
        const int64_t first = b * tokens;
        for (int64_t t = 0; t < tokens; ++t) {
          s[t] = softplus(delta[(first + t) * channels + e] + bias[e]);
          y[t] = d[e] * u[(first + t) * channels + e];
        }
        const int32_t* segments = cpu::segments_of(a, 9, b, tokens);
        // True if h of the token before counts.
        const auto goes_on = [&](int64_t t) { return t > 0 && !cpu::begins_document(segments, t); };
        // h of state n after each token; returns its A.
        const auto walk = [&](int64_t n) {
          const double rate = -std::exp(a_log[e * states + n]);
          for (int64_t t = 0; t < tokens; ++t)
            h[t] = std::exp(s[t] * rate) * (goes_on(t) ? h[t - 1] : 0.0) +
                   s[t] * u[(first + t) * channels + e] * bc[(first + t) * 2 * states + n];
          return rate;
        };
        // y before the gate.
        for (int64_t n = 0; n < states; ++n) {
          walk(n);
          for (int64_t t = 0; t < tokens; ++t) y[t] += bc[(first + t) * 2 * states + states + n] * h[t];
        }
        // The gate: z silu-activated; dy is the gradient before it.
        for (int64_t t = 0; t < tokens; ++t) {
          const double z = gate[(first + t) * stride + (stride - channels) + e], p = sigmoid(z),
                       in = grad[(first + t) * channels + e];
          dy[t] = in * z * p;
          dgate.set((first + t) * stride + (stride - channels) + e, in * y[t] * p * (1.0 + z * (1.0 - p)));
          d_sum[e] += dy[t] * u[(first + t) * channels + e];
          x_sum[t] = d[e] * dy[t], s_sum[t] = 0;
        }
        // Each state once more, from the last token to the first.
        for (int64_t n = 0; n < states; ++n) {
          const double rate = walk(n);
          double g = 0;  // the gradient of h[t]; times exp(s[t] rate) it is the share of h[t - 1]
          for (int64_t t = tokens; t-- > 0;) {
            const int64_t row = first + t;
            const double x = u[row * channels + e], b_t = bc[row * 2 * states + n], decay = std::exp(s[t] * rate);
            g += bc[row * 2 * states + states + n] * dy[t];
            bc_sum[row * 2 * states + states + n] += dy[t] * h[t];
            bc_sum[row * 2 * states + n] += g * s[t] * x;
            x_sum[t] += g * s[t] * b_t;
            const double kept = goes_on(t) ? decay * h[t - 1] : 0.0;
            s_sum[t] += g * (b_t * x + rate * kept);
            a_sum[e * states + n] += g * s[t] * kept * rate;
            g = goes_on(t) ? g * decay : 0.0;
          }
        }
        for (int64_t t = 0; t < tokens; ++t) {
          const int64_t i = (first + t) * channels + e;
          const double raw = delta[i] + bias[e], slope = s_sum[t] * (raw > 20.0 ? 1.0 : sigmoid(raw));
          bias_sum[e] += slope;
          du.set(i, x_sum[t]), ddelta.set(i, slope);
        }
      }
    for (int64_t i = 0; i < batch * tokens * 2 * states; ++i) dbc.set(i, bc_sum[i]);
    for (int64_t i = 0; i < channels * states; ++i) da_log.set(i, a_sum[i]);
    for (int64_t e = 0; e < channels; ++e) dd.set(e, d_sum[e]), dbias.set(e, bias_sum[e]);
  }
};

const eng_kernel* const list[] = {&common::kernel<Conv<false>>,
                                  &common::kernel<Conv<true>>,
                                  &common::kernel<ConvGrad>,
                                  &common::kernel<Scan<false>>,
                                  &common::kernel<Scan<true>>,
                                  &common::kernel<ScanGrad>,
                                  &ssd_reference_kernels[0],
                                  &ssd_reference_kernels[1],
                                  &ssd_reference_kernels[2],
                                  &ssd_reference_kernels[3],
                                  &ssd_reference_kernels[4],
                                  &norm_part_reference_kernels[0],
                                  &norm_part_reference_kernels[1],
                                  &norm_part_reference_kernels[2],
                                  &norm_part_reference_kernels[3],
                                  &split_kernel,
                                  &join_kernel,
                                  &init_a_log_kernel,
                                  &init_dt_bias_kernel,
                                  &init_log_uniform_kernel};

}  // namespace

extern const eng_kernels reference_kernels = {
    .struct_size = sizeof(eng_kernels), .count = sizeof list / sizeof *list, .kernels = list};

}  // namespace mamba
