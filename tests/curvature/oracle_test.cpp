// SPDX-License-Identifier: Apache-2.0
// The diagonal of tiny models by `engine analyse`, against second differences of the loss in f64 for every parameter.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "../cli/harness.hpp"
#include "core/execute/executor.hpp"
#include "core/program/program.hpp"
#include "core/trace/op.hpp"
#include "engine/ops.h"
#include "session/checkpoint/safetensors.hpp"
#include "session/config/schemas.hpp"
#include "session/data/data.hpp"
#include "session/plugins/search.hpp"

namespace curvature_oracle {

using namespace cli;

namespace {

constexpr int64_t windows = 2, length = 12;

eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file : {"cpu/cpu", "cpu/reference", "llama/llama", "opt/opt", "mamba/mamba", "optim/optim",
                             "precision/precision", "data/data", "curvature/curvature"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

// f64 everywhere, also where a model wants f32 at least.
eng::Precision all_f64() {
  eng_axis table{};
  table.struct_size = sizeof table;
  table.place = [](void*, const eng_unit*, int32_t, eng_view* io, eng_error*) -> eng_status {
    io->dtype = ENG_F64;
    return ENG_OK;
  };
  return {{"precision", "f64", table, std::make_shared<int>()}};
}

// The model's table, with every parameter in the type of compute: without the wish to stay f32.
eng_model declared_by;
const eng_build_api* built_by;
eng_status declare_f64(void* self, eng_build* b, eng_error* error) {
  eng_build_api api = *b->api;
  built_by = b->api;
  api.param = [](eng_build* build, const eng_param* given, eng_id* out, eng_error* e) {
    eng_param param = *given;
    param.flags &= ~ENG_PARAM_FP32;
    return built_by->param(build, &param, out, e);
  };
  b->api = &api;
  const eng_status status = declared_by.declare(self, b, error);
  b->api = built_by;
  return status;
}

std::string config_text(const std::string& model) {
  return fmt::format(
      "{}\n[data]\nplugin = 'text'\npaths = ['text.txt']\ntokenizer = 'bytes'\nvalidation = 0.2\n"
      "[train]\nsteps = 1\nmicro_batch = {}\nsequence_length = {}\nseed = 5\n"
      "[optimizer]\nplugin = 'adamw'\n[device]\nthreads = 1\n"
      "[job]\nplugin = 'curvature'\nwindows = {}\nmicro_batch = {}\nheld_windows = 2\ntrain_windows = 2\n"
      "noise_seeds = 0\nembedding = 'none'\nsave_every = 100000\n",
      model, windows, length, windows, windows);
}

// Values by parameter.
using ByName = std::map<std::string, std::vector<double>>;

// The model in a plan of one type, with the parameters of a run that begins.
struct Planned {
  Planned(const eng::Config& config, const std::string& device_name, int32_t dtype, eng::Precision policy)
      : kernels(registry(), device_name, config.section("device")),
        device(registry(), device_name, config.section("device")),
        precision(std::move(policy)),
        model(made(config, dtype)) {
    eng::PlanRequest request{model, precision, nullptr, device_name, {}};
    request.workspace = [this](const eng::Call& call) { return kernels.workspace(call); };
    request.seed = config.section("train").integer("seed");
    plan = eng::make_plan(request);
    executor = std::make_unique<eng::Executor>(plan, device, kernels);
    executor->run("init");
  }
  static eng::Model made(const eng::Config& config, int32_t dtype) {
    const std::string name = config.section("model").string("plugin");
    eng_model table = registry().table<eng_model>(ENG_MODEL_KIND, name);
    eng::load_ops(registry());
    if (dtype == ENG_F64) declared_by = table, table.declare = declare_f64;
    return eng::trace_model(name, table, config.section("model"), windows, length, dtype);
  }
  template <class F>
  void each_parameter(F&& f) {
    for (const eng::Tensor& t : plan.tensors)
      if (t.role == "parameter") f(t);
  }
  eng::Kernels kernels;
  eng::Device device;
  eng::Precision precision;
  eng::Model model;
  eng::Plan plan;
  std::unique_ptr<eng::Executor> executor;
};

// Second differences of the mean loss of the first windows, for every parameter; extrapolated from two steps, so that
// the error is of fourth order.
ByName second_differences(const eng::Config& config) {
  Planned single(
      config, "cpu", ENG_F32,
      eng::make_precision("fp32", registry().table<eng_axis>(ENG_PRECISION_KIND, "fp32"), config.section("precision")));
  Planned wide(config, "reference", ENG_F64, all_f64());
  ByName parameters;
  single.each_parameter([&](const eng::Tensor& t) {
    std::vector<float> values(size_t(eng::count(t.desc)));
    single.executor->download(values.data(), t.whole());
    parameters[t.name].assign(values.begin(), values.end());
  });
  eng::Data data(registry(), config, 256, wide.model.fields);
  eng::Batch batch;
  data.read(ENG_SPLIT_TRAIN, 0, windows, batch);
  wide.each_parameter([&](const eng::Tensor& t) { wide.executor->upload(t.whole(), parameters.at(t.name).data()); });
  wide.executor->upload(wide.plan.field("tokens"), batch.tokens.data());
  wide.executor->upload(wide.plan.field("labels"), batch.labels.data());
  const auto loss = [&] {
    double sum = 0;
    wide.executor->run("eval");
    wide.executor->download(&sum, wide.plan.losses, 0, sizeof sum);
    return sum / double(batch.valid);
  };
  const double middle = loss();
  ByName out;
  wide.each_parameter([&](const eng::Tensor& t) {
    const std::vector<double>& values = parameters.at(t.name);
    const auto at = [&](size_t e, double x) {
      wide.executor->upload(t.whole(), e * sizeof(double), &x, sizeof(double));
      return loss();
    };
    for (size_t e = 0; e < values.size(); ++e) {
      const double x = values[e], h = 2e-3;
      const double near = (at(e, x + h) + at(e, x - h) - 2 * middle) / (h * h);
      const double far = (at(e, x + 2 * h) + at(e, x - 2 * h) - 2 * middle) / (4 * h * h);
      out[t.name].push_back((4 * near - far) / 3);
      wide.executor->upload(t.whole(), e * sizeof(double), &x, sizeof(double));
    }
  });
  return out;
}

// States of the newest save of an analysis.
ByName kept(const fs::path& analysis, const std::string& state) {
  ByName out;
  const std::vector<std::string> saves = names(analysis / "checkpoints");
  for (const auto& file : fs::directory_iterator(analysis / "checkpoints" / saves.at(saves.size() - 1))) {
    if (file.path().extension() != ".safetensors") continue;
    const eng::SafetensorsFile tensors(file.path());
    for (const eng::StoredTensor& t : tensors.tensors()) {
      if (t.name.size() <= state.size() || t.name.substr(t.name.size() - state.size()) != state) continue;
      std::vector<float> values(t.count());
      tensors.read(t, 0, t.count(), values.data());
      out[t.name.substr(0, t.name.size() - state.size())].assign(values.begin(), values.end());
    }
  }
  return out;
}

struct Compared {
  double covered = 0, error = 0, size = 0;
  size_t elements = 0;
};
Compared compare(const fs::path& analysis, const ByName& truth, int probes, double t) {
  const ByName mean = kept(analysis, ".hessian"), m2 = kept(analysis, ".hessian_m2");
  REQUIRE(mean.size() == truth.size());
  Compared c;
  for (const auto& [name, wanted] : truth) {
    INFO(name);
    REQUIRE(mean.at(name).size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i, ++c.elements) {
      const double off = mean.at(name)[i] - wanted[i];
      const double half = t * std::sqrt(m2.at(name)[i] / (probes - 1) / probes);
      // A row of an embedding that no token of the windows uses has no gradient, and a difference of equal losses is 0.
      c.covered += std::fabs(off) <= half + 1e-7 ? 1 : 0;
      c.error += off * off, c.size += wanted[i] * wanted[i];
    }
  }
  c.covered /= double(c.elements), c.error = std::sqrt(c.error), c.size = std::sqrt(c.size);
  return c;
}

void check_model(const std::string& model) {
  Scratch scratch;
  const fs::path file = scratch.write("config.toml", config_text(model));
  const ByName truth = second_differences(
      eng::Config::parse(read(file), "config.toml", scratch.path(), {}, eng::schemas_of(registry())));
  const auto run = [&](int probes) {
    const std::string out = "probes" + std::to_string(probes);
    good(scratch, {"analyse", "config.toml", "--out", out, "job.probes=" + std::to_string(probes)});
    return scratch / out;
  };
  // Quantiles 0.975 of Student's t with 31, 127 and 511 degrees of freedom.
  const Compared few = compare(run(32), truth, 32, 2.039513), more = compare(run(128), truth, 128, 1.978820),
                 many = compare(run(512), truth, 512, 1.964625);
  WARN(
      fmt::format("{} parameters; intervals that contain the second difference: {:.2f} %, {:.2f} %, {:.2f} % of 32, "
                  "128, 512 probes; error / size {:.3f}, {:.3f}, {:.3f}",
                  few.elements, 100 * few.covered, 100 * more.covered, 100 * many.covered, few.error / few.size,
                  more.error / more.size, many.error / many.size));
  for (const Compared& c : {few, more, many}) {
    // Three standard deviations of a binomial of as many independent intervals as there are parameters. They are not
    // independent, so some percent more are allowed.
    const double spread = 3 * std::sqrt(0.95 * 0.05 / double(c.elements)) + 0.02;
    CHECK(c.covered > 0.95 - spread);
  }
  CHECK(few.error / more.error == Approx(2).epsilon(0.25));
  CHECK(more.error / many.error == Approx(2).epsilon(0.25));
  // The twin: the diagonal of another parameter is not in the interval.
  ByName shifted = truth;
  for (auto& [name, values] : shifted) std::rotate(values.begin(), values.begin() + 1, values.end());
  CHECK(compare(scratch / "probes512", shifted, 512, 1.964625).error > 3 * many.error);
}

}  // namespace

TEST_CASE("the diagonal of a tiny OPT is that of second differences in f64", "[.slow]") {
  check_model(
      "[model]\nplugin = 'opt'\nvocab_size = 256\nhidden_size = 8\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
      "ffn_dim = 16\nmax_position_embeddings = 16\ninit_std = 0.2\ndropout = 0.0\nactivation_function = 'gelu'\n");
}

TEST_CASE("the diagonal of a tiny LLaMA is that of second differences in f64", "[.slow]") {
  check_model(
      "[model]\nplugin = 'llama'\nvocab_size = 256\nhidden_size = 8\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
      "num_key_value_heads = 1\nintermediate_size = 16\n");
}

TEST_CASE("the diagonal of a tiny Mamba is that of second differences in f64", "[.slow]") {
  check_model("[model]\nplugin = 'mamba'\nvocab_size = 256\nhidden_size = 8\nnum_hidden_layers = 2\nstate_size = 4\n");
}

}  // namespace curvature_oracle
