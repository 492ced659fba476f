// SPDX-License-Identifier: Apache-2.0
// Models whose curvature is known.
#pragma once

#include "toy_host.hpp"

namespace curvature_test {

// The tokens of a window: features and a label, by a fixed random number for each.
struct Sample {
  std::vector<double> x;
  size_t label;
};
inline Sample sample(uint32_t split, uint64_t window, int64_t token, size_t features, size_t labels) {
  Random random(split * 1000003 + window * 1009 + uint64_t(token));
  std::normal_distribution<double> normal;
  Sample s;
  for (size_t k = 0; k < features; ++k) s.x.push_back(normal(random));
  s.label = size_t(pick(random, 0, int64_t(labels) - 1));
  if (pick(random, 0, 1)) s.label = s.x[0] > 0 ? 0 : 1;  // something to learn
  return s;
}
inline Floats normals(uint64_t seed, int64_t n, double std) {
  Random random(seed);
  std::normal_distribution<double> normal(0.0, std);
  Floats out;
  for (int64_t i = 0; i < n; ++i) out.push_back(float(normal(random)));
  return out;
}
inline std::vector<double> softmax(std::vector<double> z, double& lse) {
  const double top = *std::max_element(z.begin(), z.end());
  double sum = 0;
  for (double& v : z) sum += v = std::exp(v - top);
  for (double& v : z) v /= sum;
  return lse = top + std::log(sum), z;
}

// -log softmax(W x + b)[label]. Its diagonal is the mean of p (1 - p) x^2, of b the mean of p (1 - p).
struct SoftmaxRegression : Toy {
  static constexpr size_t D = 12, C = 6;
  SoftmaxRegression() {
    parameters = {{"w", {int64_t(C), int64_t(D)}, 0, normals(1, C * D, 0.3)},
                  {"b", {int64_t(C)}, 0, normals(2, C, 0.3)}};
  }
  double window(const Tensors& with, uint32_t split, uint64_t number, std::vector<std::vector<double>>* grads,
                std::vector<Floats>*) const override {
    double loss = 0;
    for (int64_t t = 0; t < length; ++t) {
      const Sample s = sample(split, number, t, D, C);
      double lse = 0;
      const std::vector<double> z = logits(with, s), p = softmax(z, lse);
      loss += lse - z[s.label];
      for (size_t c = 0; grads && c < C; ++c) {
        const double d = p[c] - (c == s.label ? 1.0 : 0.0);
        for (size_t k = 0; k < D; ++k) (*grads)[0][c * D + k] += d * s.x[k];
        (*grads)[1][c] += d;
      }
    }
    return loss;
  }
  // The diagonal for windows 0 .. n - 1, for w and b.
  std::vector<std::vector<double>> diagonal(const Tensors& with, uint64_t n) const {
    std::vector<std::vector<double>> out = {std::vector<double>(C * D), std::vector<double>(C)};
    for (uint64_t w = 0; w < n; ++w)
      for (int64_t t = 0; t < length; ++t) {
        const Sample s = sample(ENG_JOB_TRAIN, w, t, D, C);
        double lse = 0;
        const std::vector<double> p = softmax(logits(with, s), lse);
        for (size_t c = 0; c < C; ++c) {
          const double h = p[c] * (1 - p[c]) / (double(n) * double(length));
          for (size_t k = 0; k < D; ++k) out[0][c * D + k] += h * s.x[k] * s.x[k];
          out[1][c] += h;
        }
      }
    return out;
  }
  static std::vector<double> logits(const Tensors& with, const Sample& s) {
    std::vector<double> z;
    for (size_t c = 0; c < C; ++c) {
      z.push_back(with[1].at(int64_t(c)));
      for (size_t k = 0; k < D; ++k) z[c] += with[0].at(int64_t(c * D + k)) * s.x[k];
    }
    return z;
  }
};

// logits = sum over blocks of out_k relu(in_k x + bias_k). Block 2 is dead: its units are never above 0. Block 3 is a
// copy of block 1.
struct Planted : Toy {
  static constexpr int64_t D = 8, U = 10, C = 4, blocks = 4;
  explicit Planted(double size = 0.5) {
    held = train = 40;
    for (uint32_t k = 0; k < blocks; ++k) {
      const uint64_t seed = k == 3 ? 1 : k;
      const std::string block = "layers." + std::to_string(k);
      Floats bias = normals(30 + seed, U, 0.1);
      if (k == 2) bias.assign(U, -100.0f);
      parameters.push_back({block + ".fc1.weight", {U, D}, k, normals(10 + seed, U * D, size)});
      parameters.push_back({block + ".fc1.bias", {U}, k, bias});
      parameters.push_back({block + ".fc2.weight", {C, U}, k, normals(20 + seed, C * U, size)});
      sites.push_back({"eng.activation/1", block, k, U, ENG_ACT_RELU});
    }
  }
  double window(const Tensors& with, uint32_t split, uint64_t number, std::vector<std::vector<double>>* grads,
                std::vector<Floats>* outputs) const override {
    double loss = 0;
    for (int64_t t = 0; t < length; ++t) {
      const Sample s = sample(split, number, t, D, C);
      std::vector<double> z(C, 0.0), h(blocks * U);
      for (int64_t k = 0; k < blocks; ++k)
        for (int64_t u = 0; u < U; ++u) {
          double a = with[size_t(3 * k + 1)].at(u);
          for (int64_t d = 0; d < D; ++d) a += with[size_t(3 * k)].at(u * D + d) * s.x[size_t(d)];
          h[size_t(k * U + u)] = a = std::max(a, 0.0);
          for (int64_t c = 0; c < C; ++c) z[size_t(c)] += with[size_t(3 * k + 2)].at(c * U + u) * a;
          if (outputs) (*outputs)[size_t(k)].push_back(float(a));
        }
      double lse = 0;
      const std::vector<double> p = softmax(z, lse);
      loss += lse - z[s.label];
      for (int64_t k = 0; grads && k < blocks; ++k)
        for (int64_t u = 0; u < U; ++u) {
          const double a = h[size_t(k * U + u)];
          double back = 0;
          for (int64_t c = 0; c < C; ++c) {
            const double d = p[size_t(c)] - (size_t(c) == s.label ? 1.0 : 0.0);
            (*grads)[size_t(3 * k + 2)][size_t(c * U + u)] += d * a;
            back += d * with[size_t(3 * k + 2)].at(c * U + u);
          }
          if (a <= 0) continue;
          (*grads)[size_t(3 * k + 1)][size_t(u)] += back;
          for (int64_t d = 0; d < D; ++d) (*grads)[size_t(3 * k)][size_t(u * D + d)] += back * s.x[size_t(d)];
        }
    }
    return loss;
  }
};

}  // namespace curvature_test
