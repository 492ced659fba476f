// SPDX-License-Identifier: Apache-2.0
// Trains a small model on a language of its own, and says where its loss has come to.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "core/execute/executor.hpp"
#include "engine/ops.h"
#include "session/config/schemas.hpp"
#include "session/planning/setup.hpp"

namespace models {

struct Course {
  std::string optimizer = "plugin = 'adamw'\n";
  std::string model = "llama", precision = "fp32";
  bool forget = false;   // the optimizer's states are set back to zero before every step
  uint64_t perturb = 0;  // seed: half of the parameters begin one unit in the last place beside their value; 0: none
  // The part of a value that is kept after each update, and before the first one (update 0). `value`: 0 for a
  // parameter, then the optimizer's states. The parameter is counted from 0.
  struct At {
    int64_t update, parameter, element;
    int value;
  };
  std::function<float(float, const At&)> keep = {};
};

namespace course {

constexpr int64_t rows = 8, length = 32, vocabulary = 96;
constexpr int steps = 200;

inline std::string model_text(const std::string& model) {
  if (model == "opt")
    return "plugin = 'opt'\nhidden_size = 64\nffn_dim = 160\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
           "max_position_embeddings = 32\ndropout = 0.0\n";
  if (model == "mamba") return "plugin = 'mamba'\nhidden_size = 64\nnum_hidden_layers = 2\nstate_size = 8\n";
  return "plugin = 'llama'\nhidden_size = 64\nintermediate_size = 160\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
         "num_key_value_heads = 4\n";
}

inline eng::Config config(eng::Registry& plugins, const Course& c) {
  return eng::Config::parse("[model]\n" + model_text(c.model) + "vocab_size = " + std::to_string(vocabulary) +
                                "\n[device]\nplugin = 'cpu'\nthreads = 1\n[train]\nsteps = " + std::to_string(steps) +
                                "\nmicro_batch = " + std::to_string(rows) +
                                "\nsequence_length = " + std::to_string(length) + "\n[precision]\nplugin = '" +
                                c.precision + "'\n[optimizer]\nlearning_rate = 3e-4\n" + c.optimizer,
                            "test.toml", ".", {}, schemas_of(plugins));
}

inline void perturb(const eng::Plan& plan, eng::Executor& executor, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const eng::Tensor& tensor : plan.tensors) {
    if (tensor.role != "parameter") continue;
    std::vector<float> values(static_cast<size_t>(eng::count(tensor.desc)));
    executor.download(values.data(), tensor.whole());
    for (float& v : values)
      if (random() % 2) v = std::nextafterf(v, random() % 2 ? INFINITY : -INFINITY);
    executor.upload(tensor.whole(), values.data());
  }
  executor.run("publish");
}

inline void keep(const eng::Plan& plan, eng::Executor& executor, const Course& c, int64_t update) {
  Course::At at{update, -1, 0, 0};
  for (const eng::Tensor& tensor : plan.tensors) {
    if (tensor.role == "policy") continue;
    tensor.role == "parameter" ? (++at.parameter, at.value = 0) : ++at.value;
    const auto n = static_cast<size_t>(eng::count(tensor.desc));
    const bool narrow = tensor.desc.dtype == ENG_BF16;
    std::vector<float> values(n);
    std::vector<uint16_t> patterns(n);
    executor.download(narrow ? static_cast<void*>(patterns.data()) : values.data(), tensor.whole());
    for (size_t k = 0; narrow && k < n; ++k) values[k] = std::bit_cast<float>(uint32_t{patterns[k]} << 16);
    for (at.element = 0; at.element < static_cast<int64_t>(values.size()); ++at.element) {
      float& x = values[static_cast<size_t>(at.element)];
      x = c.keep(x, at);
    }
    for (size_t k = 0; narrow && k < n; ++k) patterns[k] = uint16_t(std::bit_cast<uint32_t>(values[k]) >> 16);
    executor.upload(tensor.whole(), narrow ? static_cast<const void*>(patterns.data()) : values.data());
  }
  executor.run("publish");
}

}  // namespace course

// The mean loss of steps 151 to 200.
inline double end_of(eng::Registry& plugins, const Course& c) {
  using namespace course;
  const eng::Config parsed = config(plugins, c);
  eng::Setup setup = eng::make_setup(parsed, plugins);
  eng::Device device(plugins, "cpu", parsed.section("device"));
  eng::Executor executor(setup.plan, device, *setup.kernels);
  executor.run("init");
  if (c.perturb) course::perturb(setup.plan, executor, c.perturb);
  if (c.keep) course::keep(setup.plan, executor, c, 0);
  const int64_t counters[ENG_C_COUNT] = {};
  executor.upload(setup.plan.counters, counters);
  std::vector<float> table;
  for (uint64_t k = 1; k <= steps; ++k) {
    table.push_back(3e-4f);
    for (float x : setup.optimizer.scalars(k)) table.push_back(x);
  }
  executor.upload(setup.plan.table, table.data());
  // Each token follows from the one before it, but for one in eight.
  std::mt19937_64 random(5);
  double sum = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<int32_t> tokens, labels;
    for (int64_t r = 0; r < rows; ++r) {
      auto token = static_cast<int64_t>(random() % vocabulary);
      for (int64_t t = 0; t < length; ++t) {
        tokens.push_back(static_cast<int32_t>(token));
        token = random() % 8 ? (token * 7 + 1) % vocabulary : static_cast<int64_t>(random() % vocabulary);
        labels.push_back(static_cast<int32_t>(token));
      }
    }
    const float inputs[8] = {1.0f / (rows * length)};
    executor.upload(setup.plan.field("tokens"), tokens.data());
    executor.upload(setup.plan.field("labels"), labels.data());
    executor.upload(setup.plan.inputs, inputs);
    for (const eng::Tensor& tensor : setup.plan.tensors)
      if (c.forget && tensor.role != "parameter" && tensor.role != "policy") {
        const std::vector<uint8_t> zeros(eng::bytes(tensor.desc));
        executor.upload(tensor.whole(), zeros.data());
      }
    executor.run("train");
    if (c.keep) course::keep(setup.plan, executor, c, step + 1);
    float loss = 0;
    executor.download(&loss, setup.plan.losses);
    if (step >= 150) sum += static_cast<double>(loss) / (rows * length);
  }
  return sum / 50;
}

}  // namespace models
