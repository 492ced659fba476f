// SPDX-License-Identifier: Apache-2.0
// The mathematics the llama plugin emits, computed op by op in double, against Hugging Face transformers.
#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <random>
#include <set>

#include "golden.hpp"
#include "model_host.hpp"

using namespace models;

namespace {

const std::vector<std::string> variants = {"mha",     "gqa",  "head_dim",       "tied",          "bias",  "linear",
                                           "dynamic", "yarn", "longrope_short", "longrope_long", "llama3"};

constexpr double loss_limit = 2e-8;  // relative; rope tables rounded to fp32 leave up to 4e-9

Values options_of(const Golden& golden) {
  Values out;
  for (const auto& [key, value] : golden.about["options"].items()) {
    if (value.is_boolean())
      out[key] = value.get<bool>();
    else if (value.is_number_integer())
      out[key] = value.get<int64_t>();
    else if (value.is_number())
      out[key] = value.get<double>();
    else if (value.is_string())
      out[key] = value.get<std::string>();
    else
      out[key] = value.get<std::vector<double>>();
  }
  return out;
}

Value to_value(const GoldenTensor& tensor, int32_t dtype = ENG_F32) {
  Value out;
  out.desc.dtype = dtype;
  out.desc.ndim = static_cast<uint32_t>(tensor.dims.size());
  std::copy(tensor.dims.begin(), tensor.dims.end(), out.desc.dims);
  out.data = tensor.data;
  return out;
}

// A model of a golden's options, with its batch and parameters.
struct Case {
  Case(const std::string& variant, const Values& changed = {}, const std::string& fault = "")
      : golden(read_golden(variant)), b(fault), model(merged(options_of(golden), changed)) {
    model.declare(b);
    b.batch["tokens"] = to_value(golden.at("tokens"), ENG_I32);
    b.batch["labels"] = to_value(golden.at("labels"), ENG_I32);
    for (const auto& [name, tensor] : golden.tensors)
      if (name.rfind("param.", 0) == 0) params[name.substr(6)] = to_value(tensor);
  }
  static Values merged(Values base, const Values& changed) {
    for (const auto& [key, value] : changed) base[key] = value;
    return base;
  }
  double loss() { return model.loss(b, params); }
  double error() { return std::abs(loss() / golden.about["loss_sum"].get<double>() - 1.0); }

  Golden golden;
  FakeBuild b;
  Llama model;
  std::map<std::string, Value> params;
};

// The largest deviation of the emitted rope table, in units of what fp32 angles explain.
double rope_error(Case& c) {
  c.loss();
  const std::vector<double>& theirs = c.golden.at("rope").data;
  const Value& ours = c.b.value(c.b.constants.at(0));
  REQUIRE(ours.data.size() == theirs.size());
  const size_t d = static_cast<size_t>(ours.desc.dims[1]);
  double worst = 0.0;
  for (size_t i = 0; i < theirs.size(); ++i) {
    const double angle_error = 1e-7 * (2.0 + static_cast<double>(i / d));
    const bool first_sine = i / d == 1 && i % d >= d / 2;  // sin(frequency): relative, for the slow ones
    worst =
        std::max(worst, std::abs(ours.data[i] - theirs[i]) / (first_sine ? 5e-7 * std::abs(theirs[i]) : angle_error));
  }
  return worst;
}

}  // namespace

TEST_CASE("parameters have Hugging Face names and shapes") {
  for (const std::string& variant : variants) {
    Case c(variant);
    INFO(variant);
    std::map<std::string, std::vector<int64_t>> ours, theirs;
    for (const Param& p : c.b.params) ours[p.name] = p.dims;
    for (const auto& [name, tensor] : c.golden.tensors)
      if (name.rfind("param.", 0) == 0) theirs[name.substr(6)] = tensor.dims;
    CHECK(ours == theirs);
  }
}

TEST_CASE("the loss is that of transformers") {
  for (const std::string& variant : variants) {
    Case c(variant);
    INFO(variant);
    CHECK(c.error() < loss_limit);
  }
}

TEST_CASE("a planted fault moves the loss") {
  const std::pair<const char*, const char*> faults[] = {{"bias", "dropped bias"},       {"mha", "scale off by 1 %"},
                                                        {"mha", "no rotation"},         {"tied", "no eps"},
                                                        {"tied", "another activation"}, {"bias", "another activation"}};
  for (const auto& [variant, fault] : faults) {
    Case c(variant, {}, fault);
    INFO(variant << ", " << fault);
    CHECK(c.error() > 100.0 * loss_limit);
  }
  Case wrong_act("head_dim", {{"hidden_act", std::string("gelu_new")}});  // exact and tanh form are close
  CHECK(wrong_act.error() > 5.0 * loss_limit);
}

TEST_CASE("rope tables are those of transformers") {
  for (const std::string& variant : variants) {
    Case c(variant);
    INFO(variant);
    CHECK(rope_error(c) < 1.0);
  }
}

TEST_CASE("a rope parameter that is off by little shows in the table") {
  const std::pair<const char*, Values> faults[] = {
      {"linear", {{"rope_factor", 4.001}}},
      {"dynamic", {{"max_position_embeddings", int64_t{17}}}},
      {"yarn", {{"rope_factor", 4.001}}},
      {"yarn", {{"rope_beta_fast", 128.0}}},
      {"yarn", {{"rope_attention_factor", 1.0}}},
      {"longrope_short", {{"rope_original_max_position_embeddings", int64_t{23}}}},
      {"longrope_long", {{"rope_factor", 4.001}}},
      {"llama3", {{"rope_low_freq_factor", 1.001}}},
      {"llama3", {{"rope_factor", 8.01}}},
      {"gqa", {{"rope_theta", 500100.0}}}};
  for (const auto& [variant, changed] : faults) {
    Case c(variant, changed);
    INFO(variant << " with another " << changed.begin()->first);
    CHECK(rope_error(c) > 1.0);
  }
}

TEST_CASE("rope stays exact at far positions") {
  // Repeated complex multiplication in long double, restarted from nothing but theta.
  constexpr int64_t length = 4096, dim = 8;
  const Llama model({{"vocab_size", int64_t{4}},
                     {"hidden_size", dim},
                     {"intermediate_size", int64_t{2}},
                     {"num_hidden_layers", int64_t{1}},
                     {"num_attention_heads", int64_t{1}}});
  FakeBuild b;
  b.compute = false;
  model.declare(b);
  eng_id params[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, out[1] = {0};
  uint32_t n = 0;
  const eng_id h = b.add({{ENG_F32, 3, {1, length, dim}}, {}});
  REQUIRE(model.table().trace(model.self(), &b, 1, params, 9, &h, 1, out, 1, &n, nullptr) == ENG_OK);
  const Value& table = b.value(b.constants.at(0));
  for (int64_t j = 0; j < dim / 2; ++j) {
    const long double angle = std::pow(10000.0L, -2.0L * static_cast<long double>(j) / dim);
    const std::complex<long double> turn(std::cos(angle), std::sin(angle));
    std::complex<long double> z(1.0L, 0.0L);
    double worst = 0.0;
    for (int64_t t = 0; t < length; ++t, z *= turn) {
      const size_t at = static_cast<size_t>(t * dim + j);
      worst = std::max({worst, std::abs(table.data[at] - static_cast<double>(z.real())),
                        std::abs(table.data[at + dim / 2] - static_cast<double>(z.imag()))});
    }
    CHECK(worst < 1e-7);
  }
}

TEST_CASE("the gradients of the goldens are the slopes of the loss") {
  // One random direction per parameter, central differences.
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (const std::string& variant : variants) {
    Case c(variant);
    const double counted = c.golden.about["labels_counted"];
    for (auto& [name, value] : c.params) {
      const std::vector<double>& gradient = c.golden.at("grad." + name).data;
      const std::vector<double> middle = value.data;
      std::vector<double> direction(middle.size());
      double expected = 0.0, size = 0.0;
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] = normal(random);
        expected += direction[i] * gradient[i];
        size += gradient[i] * gradient[i];
      }
      auto loss_at = [&, &data = value.data](double step) {
        for (size_t i = 0; i < middle.size(); ++i) data[i] = middle[i] + step * direction[i];
        return c.loss() / counted;
      };
      constexpr double step = 1e-5;
      const double slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
      value.data = middle;
      INFO(variant << ": " << name);
      CHECK(std::abs(slope - expected) < 1e-5 * std::sqrt(size) + 1e-8);
      CHECK(size > 0.0);
    }
  }
}
