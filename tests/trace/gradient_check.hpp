// SPDX-License-Identifier: Apache-2.0
// Plans a sketch in f64, runs it on the reference device, and differentiates it by differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "../plan/sketch.hpp"
#include "core/execute/executor.hpp"

namespace sketch {

using Values = std::map<std::string, std::vector<double>>;  // by parameter

class Checked {
 public:
  static constexpr double loss_weight = 0.125;  // exact in f32

  Checked(const Sketch& sketch, int64_t b, int64_t t, int64_t vocabulary, uint32_t accumulate = 1,
          const std::function<void(eng::Model&)>& plant = {}, bool generate = false)
      : Checked(planted(sketch.model(b, t, ENG_F64), plant), vocabulary, accumulate, generate) {}

  // Checks a model of f64. Parameters that stay f32 have random values, too, but are not differentiated.
  Checked(eng::Model model, int64_t vocabulary, uint32_t accumulate = 1, bool generate = false)
      : kernels_(registry(), "reference", section("device")),
        device_(registry(), "reference", section("device")),
        model_(std::move(model)),
        precision_(OneDtype{ENG_F64}.policy()) {
    eng::PlanRequest request{model_, precision_, nullptr, "reference", {}};
    request.workspace = [this](const eng::Call& call) { return kernels_.workspace(call); };
    request.accumulate = accumulate;
    request.logits = request.generate = generate;
    plan_ = eng::make_plan(request);
    executor_ = std::make_unique<eng::Executor>(plan_, device_, kernels_);
    std::mt19937 random(7);
    std::uniform_real_distribution<double> uniform(-0.7, 0.7);
    for (const eng::Tensor& tensor : plan_.tensors) {
      if (tensor.role != "parameter") continue;
      auto& values = parameters_[tensor.name];
      values.resize(static_cast<size_t>(eng::count(tensor.desc)));
      for (double& v : values) v = uniform(random);
      if (tensor.desc.dtype == ENG_F64) executor_->upload(tensor.whole(), values.data());
      if (tensor.desc.dtype == ENG_F32)
        executor_->upload(tensor.whole(), std::vector<float>(values.begin(), values.end()).data());
    }
    tokens_.resize(static_cast<size_t>(accumulate * model_.micro_batch * model_.sequence_length));
    labels_.resize(tokens_.size());
    for (int32_t& x : tokens_) x = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
    for (int32_t& x : labels_) x = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
    labels_[labels_.size() / 2] = -100;
    upload_batch();
  }

  // The gradients of the train program; its losses, summed, go to `loss`.
  Values gradients(double* loss = nullptr) {
    const float inputs[8] = {static_cast<float>(loss_weight)};
    executor_->upload(plan_.inputs, inputs);
    const int64_t counters[ENG_C_COUNT] = {};
    executor_->upload(plan_.counters, counters);
    executor_->run("train");
    if (loss) *loss = sum_of_losses();
    Values out;
    for (const eng::Tensor& tensor : plan_.tensors) {
      if (tensor.role != "gradient" || tensor.desc.dtype != ENG_F64) continue;
      auto& values = out[tensor.name];
      values.resize(static_cast<size_t>(eng::count(tensor.desc)));
      executor_->download(values.data(), tensor.whole());
    }
    return out;
  }

  // The first position whose logits, computed one position after the other, are not those of the whole forward; T if
  // there is none.
  int64_t first_difference(double limit) {
    const int64_t b = model_.micro_batch, t = model_.sequence_length, v = plan_.logits.desc.dims[2];
    std::vector<double> all(static_cast<size_t>(b * t * v)), next(static_cast<size_t>(b * v));
    upload_batch();
    executor_->run("logits");
    executor_->download(all.data(), plan_.logits);
    executor_->run("reset");
    for (int64_t k = 0; k < t; ++k) {
      std::vector<int32_t> tokens;
      for (int64_t row = 0; row < b; ++row) tokens.push_back(tokens_[static_cast<size_t>(row * t + k)]);
      executor_->upload(plan_.field("tokens"), 0, tokens.data(), tokens.size() * sizeof(int32_t));
      int64_t counters[ENG_C_COUNT] = {};
      counters[ENG_C_POSITION] = k;
      executor_->upload(plan_.counters, counters);
      executor_->run("decode");
      executor_->download(next.data(), plan_.next_logits);
      for (int64_t row = 0; row < b; ++row)
        for (int64_t c = 0; c < v; ++c)
          if (!(std::abs(all[static_cast<size_t>((row * t + k) * v + c)] - next[static_cast<size_t>(row * v + c)]) <=
                limit))
            return k;
    }
    return t;
  }

  // The loss of the eval program, which takes the first rows of the batch, summed over all micro-batches.
  double loss() {
    const size_t rows = tokens_.size() / plan_.accumulate;
    double sum = 0;
    for (uint32_t k = 0; k < plan_.accumulate; ++k) {
      executor_->upload(plan_.field("tokens"), 0, tokens_.data() + k * rows, rows * sizeof(int32_t));
      executor_->upload(plan_.field("labels"), 0, labels_.data() + k * rows, rows * sizeof(int32_t));
      executor_->run("eval");
      std::vector<double> row(std::max<size_t>(plan_.terms.size(), 1));
      executor_->download(row.data(), plan_.losses, 0, row.size() * sizeof(double));
      sum += weighted(row.data());
    }
    if (plan_.accumulate > 1) upload_batch();
    return sum;
  }

  // The loss that the train program sees, with what is random in it.
  double training_loss() {
    double loss = 0;
    gradients(&loss);
    return loss;
  }

  // Central differences of a loss, times the weight that the train program puts on it.
  Values differences(double h = 5e-4) {
    return differences(h, [this] { return loss(); });
  }
  Values differences(double h, const std::function<double()>& loss) {
    Values out;
    for (const eng::Tensor& tensor : plan_.tensors) {
      if (tensor.role != "parameter" || tensor.desc.dtype != ENG_F64) continue;
      std::vector<double>& values = parameters_[tensor.name];
      auto at = [&](size_t e, double value) {
        executor_->upload(tensor.whole(), e * sizeof(double), &value, sizeof(double));
        return loss();
      };
      for (size_t e = 0; e < values.size(); ++e) {
        // Two step sizes, extrapolated: the error is of fourth order.
        const double x = values[e];
        const double near = (at(e, x + h) - at(e, x - h)) / (2 * h);
        const double far = (at(e, x + 2 * h) - at(e, x - 2 * h)) / (4 * h);
        out[tensor.name].push_back(loss_weight * (4 * near - far) / 3);
        executor_->upload(tensor.whole(), e * sizeof(double), &x, sizeof(double));
      }
    }
    return out;
  }

  std::vector<int32_t>& tokens() { return tokens_; }
  std::vector<int32_t>& labels() { return labels_; }
  void upload_batch() {
    executor_->upload(plan_.field("tokens"), tokens_.data());
    executor_->upload(plan_.field("labels"), labels_.data());
  }
  const eng::Plan& plan() const { return plan_; }
  // The results of the last train program, row by row.
  std::vector<double> results() {
    std::vector<double> all(size_t{plan_.accumulate} * plan_.row);
    executor_->download(all.data(), plan_.losses);
    return all;
  }
  const eng::Model& model() const { return model_; }

 private:
  static eng::Model planted(eng::Model model, const std::function<void(eng::Model&)>& plant) {
    if (plant) plant(model);
    return model;
  }
  double sum_of_losses() {
    std::vector<double> losses(size_t{plan_.accumulate} * plan_.row);
    executor_->download(losses.data(), plan_.losses);
    double sum = 0;
    for (size_t k = 0; k < losses.size(); k += plan_.row) sum += weighted(&losses[k]);
    return sum;
  }
  // The loss of a row of results.
  double weighted(const double* row) const {
    if (plan_.terms.empty()) return row[0];
    double sum = 0;
    for (size_t k = 0; k < plan_.terms.size(); ++k) {
      const uint32_t per = plan_.terms[k].per;
      const double divided = per ? per / static_cast<double>(model_.sequences) / loss_weight : 1;
      sum += plan_.terms[k].weight * row[k] * divided;
    }
    return sum;
  }

  eng::Kernels kernels_;
  eng::Device device_;
  eng::Model model_;
  eng::Precision precision_;
  eng::Plan plan_;
  std::unique_ptr<eng::Executor> executor_;
  Values parameters_;
  std::vector<int32_t> tokens_, labels_;
};

// The largest of max|a-b| / max|b| over all tensors; `worst` names it. Where b is all zero a must be, too. A tensor
// below `least` is measured against that: differences of a loss carry its rounding error, some 1e-12.
inline double distance(const Values& a, const Values& b, std::string* worst = nullptr, double least = 0.0) {
  double most = a.size() == b.size() ? 0.0 : INFINITY;
  for (const auto& [name, theirs] : b) {
    const auto found = a.find(name);
    double difference = found == a.end() || found->second.size() != theirs.size() ? INFINITY : 0.0, size = least;
    for (size_t e = 0; e < theirs.size() && difference < INFINITY; ++e) {
      const double d = std::abs(found->second[e] - theirs[e]);
      difference = d <= difference ? difference : d;  // a NaN stays
      size = std::max(size, std::abs(theirs[e]));
      if (std::isnan(d)) difference = INFINITY;
    }
    const double relative = size > 0 ? difference / size : difference;
    if (relative > most) {
      most = relative;
      if (worst) *worst = name;
    }
  }
  return most;
}

}  // namespace sketch
