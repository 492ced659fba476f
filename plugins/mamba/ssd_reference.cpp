// SPDX-License-Identifier: Apache-2.0
// Kernels for the device `reference`: the formulas of ssd.hpp token by token on one thread. Every sum is in f64.
//
// Shapes in comments: B sequences, T tokens, E channels, H heads, P channels of a head, N states, G groups.
#include "ssd.hpp"

#include <algorithm>
#include <vector>

#include "kernels.hpp"
#include "reference_shared.hpp"

namespace mamba {
namespace {

// Sizes, and where things lie in a row of xbc or dt. `first` is the input xbc.
struct SsdShape {
  int64_t batch, tokens, heads, states, groups, width, row, dt_row;
  double low, high;
  SsdShape(const Call& c, size_t first)
      : batch(c.in[first].dims[0]),
        tokens(c.in[first].dims[1]),
        heads(c.in[first + 2].dims[0]),
        states(c.integer("states")),
        groups(c.integer("groups")),
        width((columns(c.in[first]) - 2 * groups * states) / heads),
        row(columns(c.in[first])),
        dt_row(columns(c.in[first + 1])),
        low(c.real("low")),
        high(c.real("high")) {}
  int64_t x_at(int64_t token, int64_t head) const { return token * row + head * width; }
  int64_t b_at(int64_t token, int64_t head) const {
    return token * row + heads * width + head / (heads / groups) * states;
  }
  int64_t c_at(int64_t token, int64_t head) const { return b_at(token, head) + groups * states; }
  int64_t dt_at(int64_t token, int64_t head) const { return token * dt_row + dt_row - heads + head; }
  int64_t y_at(int64_t token, int64_t head) const { return (token * heads + head) * width; }
  // NaN stays.
  double limited(double step) const { return step < low ? low : step > high ? high : step; }
  double step(double raw) const { return limited(softplus(raw)); }
  double slope(double raw) const {
    const double s = softplus(raw);
    return s < low || s > high ? 0.0 : raw > 20.0 ? 1.0 : sigmoid(raw);
  }
};

template <bool step>
struct Ssd {
  static constexpr const char* op = step ? MAMBA_OP_SSD_STEP : MAMBA_OP_SSD;
  static constexpr size_t segments = step ? SIZE_MAX : 5;
  Call c;
  explicit Ssd(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, segments), cpu::need_numbers(c, segments, c.in[0], "segments"); }
  static uint64_t workspace(const Call& c) {
    const SsdShape s(c, 0);
    return sizeof(double) * static_cast<uint64_t>(s.states * s.width);
  }
  void run(const Args& a) const {
    const SsdShape s(c, 0);
    const Reals xbc(c, a, 0), dt(c, a, 1), a_log(c, a, 2), d(c, a, 3), bias(c, a, 4), y(c, a, a.n_in),
        kept(c, a, a.n_in + 1);
    double* h = a.scratch<double>();  // (N, P)
    const int64_t size = s.states * s.width;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t j = 0; j < s.heads; ++j) {
        for (int64_t i = 0; i < size; ++i) h[i] = step ? kept[(b * s.heads + j) * size + i] : 0.0;
        for (int64_t t = 0; t < s.tokens; ++t) {
          const int64_t token = b * s.tokens + t;
          if (cpu::begins_document(cpu::segments_of(a, segments, b, s.tokens), t)) std::fill(h, h + size, 0.0);
          const double by = s.step(dt[s.dt_at(token, j)] + bias[j]), decay = std::exp(-by * std::exp(a_log[j]));
          for (int64_t p = 0; p < s.width; ++p) {
            const double x = xbc[s.x_at(token, j) + p];
            double sum = d[j] * x;
            for (int64_t n = 0; n < s.states; ++n) {
              double& state = h[n * s.width + p];
              state = decay * state + by * x * xbc[s.b_at(token, j) + n];
              sum += xbc[s.c_at(token, j) + n] * state;
            }
            y.set(s.y_at(token, j) + p, sum);
          }
        }
        for (int64_t i = 0; step && i < size; ++i) kept.set((b * s.heads + j) * size + i, h[i]);
      }
  }
};

struct SsdGrad {
  static constexpr const char* op = MAMBA_OP_SSD_GRAD;
  Call c;
  explicit SsdGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, 6), cpu::need_numbers(c, 6, c.in[1], "segments"); }
  // Doubles: h after each token of one head (T, N, P), its gradient (N, P), the sums for dxbc (B, T, E + 2 G N) and for
  // a_log, d and dt_bias (3, H).
  static uint64_t workspace(const Call& c) {
    const SsdShape s(c, 1);
    return sizeof(double) *
           static_cast<uint64_t>((s.tokens + 1) * s.states * s.width + elements(c.in[1]) + 3 * s.heads);
  }
  void run(const Args& a) const {
    const SsdShape s(c, 1);
    const Reals dy(c, a, 0), xbc(c, a, 1), dt(c, a, 2), a_log(c, a, 3), d(c, a, 4), bias(c, a, 5);
    const Reals dxbc(c, a, a.n_in), ddt(c, a, a.n_in + 1);
    const int64_t size = s.states * s.width;
    double *h = a.scratch<double>(), *g = h + s.tokens * size, *sums = g + size, *vectors = sums + elements(c.in[1]);
    std::fill(sums, vectors + 3 * s.heads, 0.0);
    for (int64_t i = 0; i < elements(c.in[2]); ++i) ddt.set(i, 0.0);
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t j = 0; j < s.heads; ++j) {
        const int32_t* segments = cpu::segments_of(a, 6, b, s.tokens);
        const auto goes_on = [&](int64_t t) { return t > 0 && !cpu::begins_document(segments, t); };
        const double rate = -std::exp(a_log[j]);
        for (int64_t t = 0; t < s.tokens; ++t) {
          const int64_t token = b * s.tokens + t;
          const double by = s.step(dt[s.dt_at(token, j)] + bias[j]), decay = std::exp(by * rate);
          for (int64_t n = 0; n < s.states; ++n)
            for (int64_t p = 0; p < s.width; ++p) {
              const int64_t i = n * s.width + p;
              h[t * size + i] = (goes_on(t) ? decay * h[(t - 1) * size + i] : 0.0) +
                                by * xbc[s.x_at(token, j) + p] * xbc[s.b_at(token, j) + n];
            }
        }
        std::fill(g, g + size, 0.0);  // the gradient of h that comes from later tokens
        for (int64_t t = s.tokens; t-- > 0;) {
          const int64_t token = b * s.tokens + t;
          const double raw = dt[s.dt_at(token, j)] + bias[j], by = s.step(raw), decay = std::exp(by * rate);
          double of_step = 0, of_exponent = 0;
          for (int64_t p = 0; p < s.width; ++p) {
            const double x = xbc[s.x_at(token, j) + p], out = dy[s.y_at(token, j) + p];
            sums[s.x_at(token, j) + p] += d[j] * out;
            vectors[s.heads + j] += out * x;
            for (int64_t n = 0; n < s.states; ++n) {
              const int64_t i = n * s.width + p;
              const double b_n = xbc[s.b_at(token, j) + n];
              g[i] += xbc[s.c_at(token, j) + n] * out;
              sums[s.c_at(token, j) + n] += out * h[t * size + i];
              sums[s.b_at(token, j) + n] += g[i] * by * x;
              sums[s.x_at(token, j) + p] += g[i] * by * b_n;
              of_step += g[i] * x * b_n;
              if (goes_on(t)) of_exponent += g[i] * decay * h[(t - 1) * size + i];
              g[i] = goes_on(t) ? g[i] * decay : 0.0;
            }
          }
          const double slope = (of_step + rate * of_exponent) * s.slope(raw);
          vectors[j] += by * rate * of_exponent;
          vectors[2 * s.heads + j] += slope;
          ddt.set(s.dt_at(token, j), slope);
        }
      }
    for (int64_t i = 0; i < elements(c.in[1]); ++i) dxbc.set(i, sums[i]);
    for (size_t k = 0; k < 3; ++k)
      for (int64_t j = 0; j < s.heads; ++j)
        Reals(c, a, a.n_in + 2 + k).set(j, vectors[static_cast<int64_t>(k) * s.heads + j]);
  }
};

struct GatedNorm {
  static constexpr const char* op = MAMBA_OP_GATED_NORM;
  Call c;
  explicit GatedNorm(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, SIZE_MAX); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), z(c, a, 1), w(c, a, 2), y(c, a, a.n_in);
    const int64_t all = columns(c.in[0]), part = all / c.integer("groups");
    for (int64_t first = 0; first < elements(c.in[0]); first += part) {
      double sum = 0;
      const auto gated = [&](int64_t i) { return x[first + i] * z[first + i] * sigmoid(z[first + i]); };
      for (int64_t i = 0; i < part; ++i) sum += gated(i) * gated(i);
      const double scale = 1.0 / std::sqrt(sum / static_cast<double>(part) + c.real("eps"));
      for (int64_t i = 0; i < part; ++i) y.set(first + i, w[(first + i) % all] * gated(i) * scale);
    }
  }
};

struct GatedNormGrad {
  static constexpr const char* op = MAMBA_OP_GATED_NORM_GRAD;
  Call c;
  explicit GatedNormGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_reals(c, SIZE_MAX), cpu::need_sums(c, c.in[3].dtype, {}, {2}); }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(columns(c.in[1])); }
  void run(const Args& a) const {
    const Reals dy(c, a, 0), x(c, a, 1), z(c, a, 2), w(c, a, 3), dx(c, a, a.n_in), dz(c, a, a.n_in + 1),
        dw(c, a, a.n_in + 2);
    const int64_t all = columns(c.in[1]), part = all / c.integer("groups");
    double* sums = a.scratch<double>();
    std::fill(sums, sums + all, 0.0);
    for (int64_t first = 0; first < elements(c.in[1]); first += part) {
      double square = 0, dot = 0;
      for (int64_t i = first; i < first + part; ++i) {
        const double gated = x[i] * z[i] * sigmoid(z[i]);
        square += gated * gated, dot += dy[i] * w[i % all] * gated;
      }
      const double n = static_cast<double>(part), scale = 1.0 / std::sqrt(square / n + c.real("eps"));
      for (int64_t i = first; i < first + part; ++i) {
        const double gate = z[i], p = sigmoid(gate), value = x[i], gated = value * gate * p, out = dy[i];
        const double g = scale * (out * w[i % all] - gated * scale * scale * dot / n);
        sums[i % all] += out * gated * scale;
        dx.set(i, g * gate * p);
        dz.set(i, g * value * p * (1.0 + gate * (1.0 - p)));
      }
    }
    for (int64_t i = 0; i < all; ++i) dw.set(i, sums[i]);
  }
};

}  // namespace

extern const eng_kernel ssd_reference_kernels[] = {common::kernel<Ssd<false>>, common::kernel<Ssd<true>>,
                                                   common::kernel<SsdGrad>, common::kernel<GatedNorm>,
                                                   common::kernel<GatedNormGrad>};

}  // namespace mamba
