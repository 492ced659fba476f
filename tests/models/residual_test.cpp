// SPDX-License-Identifier: Apache-2.0
// precision.residual = "f32": what layers add to has f32 where compute has 16 bits. The gradients of all models are
// then nearer to those of fp32 with the same weights.
#include <bit>
#include <cmath>
#include <map>
#include <random>

#include "from.hpp"

using namespace models;

namespace {

constexpr int64_t length = 16, rows = 2;

eng::Config config_of(const std::string& model, const std::string& precision) {
  return eng::Config::parse(
      "[model]\n" + model + "\n[precision]\n" + precision +
          "\n[data]\nplugin = 'text'\npaths = ['none']\n[train]\nmicro_batch = 2\nsequence_length = 16\nsteps = 1\n"
          "[optimizer]\nplugin = 'sgd'\nlearning_rate = 1e-3\n[device]\nthreads = 1\n",
      "residual.toml", "/", {}, schemas_of(plugins()));
}

eng::Readable with_gradients() {
  eng::Readable out;
  out.gradients = true;
  return out;
}

using Tensors = std::map<std::string, std::vector<float>>;

struct Trained {
  eng::Config config;
  eng::Setup setup;
  eng::Device device;
  eng::Executor executor;

  Trained(const std::string& model, const std::string& precision)
      : config(config_of(model, precision)),
        setup(eng::make_setup(config, plugins(), 0, {}, nullptr, with_gradients())),
        device(plugins(), "cpu", config.section("device")),
        executor(setup.plan, device, *setup.kernels) {
    executor.run("init");
  }

  // The gradients, with these weights cut to bf16.
  Tensors gradients(const Tensors& weights) {
    for (const eng::Tensor& t : setup.plan.tensors) {
      if (t.role != "parameter") continue;
      std::vector<float> values = weights.at(t.name);
      for (float& x : values) x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000U);  // exact in bf16
      executor.upload(t.whole(), values.data());
    }
    executor.run("publish");
    const int64_t counters[ENG_C_COUNT] = {};
    executor.upload(setup.plan.counters, counters);
    std::mt19937 random(3);
    std::vector<int32_t> tokens(rows * length), labels(rows * length);
    for (size_t k = 0; k < tokens.size(); ++k) tokens[k] = int32_t(random() % 256), labels[k] = int32_t(random() % 256);
    const float inputs[8] = {1.0F / static_cast<float>(labels.size())};
    executor.upload(setup.plan.field("tokens"), tokens.data());
    executor.upload(setup.plan.field("labels"), labels.data());
    executor.upload(setup.plan.inputs, inputs);
    executor.run("train");
    return of("gradient");
  }

  Tensors of(const std::string& role) {
    Tensors out;
    for (const eng::Tensor& t : setup.plan.tensors) {
      if (t.role != role) continue;
      out[t.name].resize(static_cast<size_t>(eng::count(t.desc)));
      executor.download(out[t.name].data(), t.whole());
    }
    REQUIRE(out.size() > 5);
    return out;
  }
};

// |a - b| / |b|, the mean over tensors. A number that is added to all keys changes no attention, so the gradient of
// their bias is nothing but rounding.
double apart_of(const Tensors& a, const Tensors& b) {
  double sum = 0, tensors = 0;
  for (const auto& [name, values] : b) {
    if (name.ends_with("k_proj.bias")) continue;
    double apart = 0, size = 0;
    for (size_t k = 0; k < values.size(); ++k)
      apart += std::pow(double{a.at(name)[k]} - values[k], 2), size += std::pow(double{values[k]}, 2);
    sum += std::sqrt(apart / size), ++tensors;
  }
  return sum / tensors;
}

}  // namespace

TEST_CASE("with a residual stream in f32 the gradients of every family are nearer to those of fp32",
          "[residual][.slow]") {
  const auto [model, most] = GENERATE(table<std::string, double>({
      {"plugin = 'llama'\npreset = 'tiny'\nnum_hidden_layers = 12", 0.75},
      {"plugin = 'opt'\npreset = 'tiny'\nnum_hidden_layers = 12\ndropout = 0.0", 0.85},
      {"plugin = 'gemma2'\npreset = 'tiny'", 1.0},
      {"plugin = 'olmo2'\npreset = 'tiny'", 1.0},
      {"plugin = 'gpt_neox'\npreset = 'tiny'", 1.0},
      {"plugin = 'mixtral'\npreset = 'tiny'", 1.0},
      {"plugin = 'bamba'\npreset = 'tiny'", 1.0},
      {"plugin = 'mamba'\npreset = 'tiny'\nresidual_in_fp32 = false", 1.0},
  }));
  CAPTURE(model);
  Trained exact(model, "plugin = 'fp32'");
  const Tensors weights = exact.of("parameter"), truth = exact.gradients(weights);
  const double narrow = apart_of(Trained(model, "plugin = 'bf16'").gradients(weights), truth);
  const double wide = apart_of(Trained(model, "plugin = 'bf16'\nresidual = 'f32'").gradients(weights), truth);
  CAPTURE(narrow, wide);
  CHECK(wide < most * narrow);
}

TEST_CASE("a stream that the model itself keeps in f32 has the same bits", "[residual]") {
  const std::string model = "plugin = 'mamba'\npreset = 'tiny'\nresidual_in_fp32 = ";
  Trained own(model + "true", "plugin = 'bf16'"), given(model + "false", "plugin = 'bf16'\nresidual = 'f32'");
  const Tensors weights = own.of("parameter");
  CHECK(own.gradients(weights) == given.gradients(weights));
}

TEST_CASE("layers whose norms are behind their sums have no stream to widen", "[residual]") {
  const std::string model = "plugin = 'opt'\npreset = 'tiny'\ndo_layer_norm_before = false";
  CHECK_THAT(eng::test::refusal(eng::Exit::usage, [&] { Trained(model, "plugin = 'bf16'\nresidual = 'f32'"); }),
             Catch::Contains("precision.residual = \"f32\"") && Catch::Contains("leave it out"));
}
