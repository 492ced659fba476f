// SPDX-License-Identifier: Apache-2.0
// Sizes, flags, initial values and refusals of the Mamba model, and what its layers keep for the backward.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "run.hpp"

using namespace mamba_test;
using Catch::Contains;

namespace {

eng::Model model_of(const std::string& options) {
  return Run::make_model(config_of("[model]\nplugin = 'mamba'\n" + options +
                                   "[train]\nmicro_batch = 1\nsequence_length = 8\nsteps = 1\n"));
}

const eng::Parameter& param(const eng::Model& model, const std::string& name) {
  for (const auto& p : model.params)
    if (p.name == name) return p;
  throw std::runtime_error("no parameter " + name);
}

std::vector<int64_t> dims(const eng::Model& model, const std::string& name) {
  const eng_desc& d = param(model, name).desc;
  return {d.dims, d.dims + d.ndim};
}

struct Moments {
  double mean = 0, std = 0, least = INFINITY, most = -INFINITY;
};
Moments moments(const std::vector<float>& values) {
  Moments m;
  for (double x : values) m.mean += x, m.least = std::min(m.least, x), m.most = std::max(m.most, x);
  m.mean /= static_cast<double>(values.size());
  for (double x : values) m.std += (x - m.mean) * (x - m.mean);
  m.std = std::sqrt(m.std / static_cast<double>(values.size()));
  return m;
}

// Uniform within +-limit, as far as so many values show it.
void check_uniform(const std::vector<float>& values, double limit) {
  const Moments m = moments(values);
  CHECK(m.most <= limit * 1.000001);
  CHECK(m.least >= -limit * 1.000001);
  CHECK(m.most > 0.95 * limit);
  CHECK(m.least < -0.95 * limit);
  CHECK(m.std == Approx(limit / std::sqrt(3.0)).epsilon(0.1));
  CHECK(std::abs(m.mean) < 0.15 * limit);
}

void check_normal(const std::vector<float>& values, double std) {
  const Moments m = moments(values);
  CHECK(m.std == Approx(std).epsilon(0.05));
  CHECK(std::abs(m.mean) < 0.05 * std);
  CHECK(m.most > 2.5 * std);
}

Run initial(const std::string& options) {
  return Run(config_of("[model]\nplugin = 'mamba'\nvocab_size = 300\nhidden_size = 96\nnum_hidden_layers = 4\n" +
                       options + "[train]\nmicro_batch = 1\nsequence_length = 4\nsteps = 1\nseed = 3\n"),
             Use::update);
}

const std::string mixer = "backbone.layers.2.mixer.";

}  // namespace

TEST_CASE("every preset of Mamba has its exact number of parameters") {
  const std::map<std::string, int64_t> counts = {
      {"tiny", 965760},         {"130m", 129135360},         {"370m", 371516416},      {"790m", 793204224},
      {"1.4b", 1372178432},     {"2.8b", 2768345600},        {"7b_mamba", 6922702592}, {"3b_mamba", 2768286720},
      {"1b_mamba", 1001947136}, {"3b_mamba_lite", 868858880}};
  for (const auto& [preset, count] : counts) {
    INFO(preset);
    CHECK(model_of("preset = '" + preset + "'\n").parameter_count() == count);
  }
  CHECK(registry().find(ENG_MODEL_KIND, "mamba")->schema.presets.size() == counts.size());
  CHECK(model_of("preset = '7b_mamba'\ntie_word_embeddings = false\n").parameter_count() == 7167152640);
  CHECK(model_of("preset = '7b_mamba'\nvocab_size = 50264\n").parameter_count() == 6922736640);
}

TEST_CASE("the parameters of Mamba have the names, shapes and flags of its files") {
  const eng::Model model = model_of(
      "hidden_size = 40\nnum_hidden_layers = 2\nexpand = 1.53\nstate_size = 8\nuse_bias = true\nvocab_size = 11\n");
  const int64_t E = 61, R = 3;  // 1.53 x 40 = 61.2 is cut off, 40 / 16 is rounded up
  const std::string layer = "backbone.layers.1.";
  const std::map<std::string, std::vector<int64_t>> shapes = {{"backbone.embeddings.weight", {11, 40}},
                                                              {"backbone.norm_f.weight", {40}},
                                                              {layer + "norm.weight", {40}},
                                                              {layer + "mixer.in_proj.weight", {2 * E, 40}},
                                                              {layer + "mixer.in_proj.bias", {2 * E}},
                                                              {layer + "mixer.conv1d.weight", {E, 1, 4}},
                                                              {layer + "mixer.conv1d.bias", {E}},
                                                              {layer + "mixer.x_proj.weight", {R + 16, E}},
                                                              {layer + "mixer.dt_proj.weight", {E, R}},
                                                              {layer + "mixer.dt_proj.bias", {E}},
                                                              {layer + "mixer.A_log", {E, 8}},
                                                              {layer + "mixer.D", {E}},
                                                              {layer + "mixer.out_proj.weight", {40, E}},
                                                              {layer + "mixer.out_proj.bias", {40}}};
  CHECK(model.params.size() == 2 + 2 * (shapes.size() - 2));
  for (const auto& [name, shape] : shapes) {
    INFO(name);
    CHECK(dims(model, name) == shape);
    const bool state = name.ends_with("A_log") || name.ends_with(".D") || name.ends_with("dt_proj.bias");
    CHECK(((param(model, name).flags & ENG_PARAM_FP32) != 0) == state);
    CHECK(((param(model, name).flags & ENG_PARAM_NO_DECAY) != 0) == (state || shape.size() == 1));
  }
  CHECK(dims(model_of("hidden_size = 32\nintermediate_size = 80\nexpand = 9.0\ntime_step_rank = 7\n"),
             "backbone.layers.0.mixer.dt_proj.weight") == std::vector<int64_t>{80, 7});
}

TEST_CASE("new parameters follow the rules of mamba_ssm") {
  Run run = initial("");
  const double E = 192, H = 96, R = 6, K = 4, L = 4;
  check_normal(run.parameter("backbone.embeddings.weight"), 0.02);
  check_uniform(run.parameter(mixer + "in_proj.weight"), 1 / std::sqrt(H));
  check_uniform(run.parameter(mixer + "x_proj.weight"), 1 / std::sqrt(E));
  check_uniform(run.parameter(mixer + "conv1d.weight"), 1 / std::sqrt(K));
  check_uniform(run.parameter(mixer + "conv1d.bias"), 1 / std::sqrt(K));
  check_uniform(run.parameter(mixer + "dt_proj.weight"), 1 / std::sqrt(R));
  check_uniform(run.parameter(mixer + "out_proj.weight"), 1 / std::sqrt(E) / std::sqrt(L));
  const auto a_log = run.parameter(mixer + "A_log");
  for (size_t i = 0; i < a_log.size(); ++i) CHECK(a_log[i] == static_cast<float>(std::log(1.0 + double(i % 16))));
  for (float x : run.parameter(mixer + "D")) CHECK(x == 1.0f);
  for (float x : run.parameter("backbone.norm_f.weight")) CHECK(x == 1.0f);
  std::vector<float> logs;  // of the time steps: uniform between ln 0.001 and ln 0.1
  for (float x : run.parameter(mixer + "dt_proj.bias"))
    logs.push_back(
        static_cast<float>(std::log(std::log1p(std::exp(double(x)))) - 0.5 * (std::log(1e-3) + std::log(0.1))));
  check_uniform(logs, 0.5 * std::log(100.0));
  CHECK(run.parameter(mixer + "dt_proj.bias") != run.parameter("backbone.layers.1.mixer.dt_proj.bias"));
}

TEST_CASE("new parameters follow the rules of transformers where that is asked for") {
  Run run = initial("init = 'huggingface'\ntime_step_floor = 0.01\ntime_step_init_scheme = 'constant'\n");
  check_normal(run.parameter("backbone.embeddings.weight"), 0.1);
  check_normal(run.parameter(mixer + "in_proj.weight"), 0.1);
  check_normal(run.parameter(mixer + "x_proj.weight"), 0.1);
  check_uniform(run.parameter(mixer + "conv1d.weight"), 0.5);
  check_uniform(run.parameter(mixer + "out_proj.weight"), 1 / std::sqrt(192.0));
  for (float x : run.parameter(mixer + "conv1d.bias")) CHECK(x == 0.0f);
  for (float x : run.parameter(mixer + "dt_proj.weight")) CHECK(x == static_cast<float>(1 / std::sqrt(6.0)));
  size_t at_floor = 0;
  for (float x : run.parameter(mixer + "dt_proj.bias")) {
    const double step = std::log1p(std::exp(double(x)));
    CHECK(step >= 0.01 * (1 - 1e-5));
    at_floor += step < 0.01 * (1 + 1e-5);
  }
  CHECK(at_floor > 60);  // about half of 192
}

TEST_CASE("Mamba refuses sizes that cannot be, naming the key") {
  for (const auto& [options, text] :
       std::map<std::string, std::string>{{"expand = 0.001\n", "expand gives 0 channels"},
                                          {"time_step_min = 0.2\n", "time_step_max must not be below time_step_min"},
                                          {"layer_norm_epsilon = 0.0\n", "layer_norm_epsilon must be above 0"},
                                          {"time_step_floor = 0.0\n", "time_step_floor must be above 0"}}) {
    try {
      model_of(options);
      FAIL("accepted " << options);
    } catch (const eng::Error& e) {
      CHECK(e.exit() == eng::Exit::usage);
      CHECK_THAT(e.what(), Contains(text));
    }
  }
}

TEST_CASE("a layer keeps three times its channels and its small projections for the backward") {
  const int64_t H = 96, E = 192, N = 16, R = 6, T = 128;
  const eng::Model model =
      Run::make_model(config_of("[model]\nplugin = 'mamba'\nvocab_size = 300\nhidden_size = 96\nnum_hidden_layers = 3\n"
                                "[train]\nmicro_batch = 1\nsequence_length = 128\nsteps = 1\n"));
  const eng::Template& t = model.templates.at(1);
  std::map<eng::Id, int64_t> kept;
  for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
    for (eng::Id id : t.graph.nodes[n].in)
      for (size_t f = 0; id && f < t.forward; ++f)
        if (std::count(t.graph.nodes[f].out.begin(), t.graph.nodes[f].out.end(), id))
          kept[id] = eng::count(t.graph.value(id).desc);
  int64_t all = 0;
  for (const auto& [id, n] : kept) all += n;
  const int64_t states = T / 64 * N * E, rstd = T;
  CHECK(all == T * (3 * E + R + 2 * N) + states + rstd);
  CHECK(t.graph.value(t.inputs[0]).desc.dims[2] == H);  // and the residual stream that comes in
}

TEST_CASE("engine plan says by how much a model differs from the size that people give it", "[.slow]") {
  const auto said = [](const std::string& preset) {
    const std::string file = std::string(P_tmpdir) + "/mamba-plan-" + std::to_string(getpid()) + ".toml";
    std::ofstream(file) << "[model]\nplugin = 'mamba'\npreset = '" << preset << "'\n";
    const std::string command = std::string(ENGINE_COMMAND) + " plan " + file + " train.micro_batch=1 2>&1";
    std::string out;
    FILE* pipe = popen(command.c_str(), "r");
    for (char line[512]; pipe && fgets(line, sizeof line, pipe);) out += line;
    pclose(pipe);
    std::remove(file.c_str());
    return out;
  };
  const std::string whole = said("7b_mamba");
  CHECK_THAT(whole, Contains("parameters        6922702592\n"));
  CHECK_THAT(whole, Contains("note              7b_mamba is called 6.89B; it has 6922702592 parameters, 0.5 % more\n"));
  CHECK_THAT(said("3b_mamba_lite"), Contains("is called 3B; it has 868858880 parameters, 71.0 % fewer"));
  CHECK_THAT(said("130m"), Contains("parameters        129135360\n"));
  CHECK_THAT(said("130m"), !Contains("is called"));
}
