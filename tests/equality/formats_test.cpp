// SPDX-License-Identifier: Apache-2.0
// The formats bf16, bf16_sr and fp16: one result for every strategy; what moves between ranks and what is summed; and
// the dynamic loss scale, with overflows where they are wanted.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "draw.hpp"
#include "engine/ops.h"
#include "tests/sanitized.hpp"

using namespace equality;

namespace {

const std::vector<float>& tensor(const Result& r, const std::string& name) {
  const auto at = std::find_if(r.tensors.begin(), r.tensors.end(), [&](const auto& t) { return t.first == name; });
  REQUIRE(at != r.tensors.end());
  return at->second;
}

// One number of each step, which all ranks have.
std::vector<float> of_steps(const Result& r, const std::string& name, const Group& g) {
  std::vector<float> out;
  const std::vector<float>& all = tensor(r, name);
  for (size_t k = 0; k < all.size(); ++k) {
    if (k % g.world == 0) out.push_back(all[k]);
    CHECK((all[k] == out.back() || (std::isnan(all[k]) && std::isnan(out.back()))));
  }
  return out;
}

// The scales of all steps, by the state machine as DeepSpeed states it.
struct Scaler {
  double scale;
  int window, hysteresis;
  bool consecutive = false;
  double minimum = 1;
  std::vector<float> of(int steps, const std::set<int>& overflows) const {
    std::vector<float> out;
    double now = scale;
    int left = hysteresis, last = -1;
    for (int it = 0; it < steps; ++it) {
      out.push_back(static_cast<float>(now));
      if (overflows.count(it)) {
        if (hysteresis == 1 || left == 1)
          now = std::max(now / 2, minimum);
        else
          --left;
        last = it;
        continue;
      }
      if (consecutive) left = hysteresis;
      const int n = it - last - 1;
      if (n > 0 && n % window == 0) {
        if (!consecutive) left = hysteresis;
        now *= 2;
      }
    }
    return out;
  }
};

}  // namespace

namespace {

// Precision and model.
void one_result(const std::vector<std::pair<const char*, const char*>>& list) {
  uint64_t seed = 11;
  for (const auto& [precision, model] : list) {
    Group g;
    g.precision = precision, g.model = model, g.accumulate = 2;
    const Result first = train(g, plan(g, {}), {1, false});
    REQUIRE(first.complaint == "");
    for (const char* strategy : {"zero1", "zero2", "zero3", "two_level"}) {
      Draw d;
      d.strategy = strategy, d.bucket = 1, d.recompute = seed % 2 ? "policy = 'full'" : "";
      INFO(describe(g) << "; " << describe(d));
      CHECK(difference(first, train(g, plan(g, d), {++seed, seed % 2 == 0})) == "");
    }
    Group wide = g;
    wide.precision = "fp32";
    CHECK(difference(first, train(wide, plan(wide, {}), {1, false})) != "");
  }
}

}  // namespace

TEST_CASE("16-bit formats: one result for every strategy, and not that of fp32", "[.slow]") {
  one_result({{"bf16", "mamba"}, {"bf16_sr", "mamba"}, {"fp16", "mamba"}, {"bf16", "mamba2"}});
#ifndef SANITIZED
  one_result({{"bf16", "llama-tied"}, {"fp16", "opt"}});
#endif
}

TEST_CASE("16-bit formats: one result for every strategy and model", "[.slow]") {
  for (const char* precision : {"bf16", "bf16_sr", "fp16"})
    one_result({{precision, "llama"}, {precision, "llama-tied"}, {precision, "opt"}});
}

TEST_CASE("summands are narrow, sums are f32") {
  const std::pair<int32_t, int32_t> same{ENG_BF16, ENG_BF16}, widen{ENG_BF16, ENG_F32}, f32{ENG_F32, ENG_F32};
  for (const char* model : {"llama", "mamba"})
    for (uint32_t world : {1u, 2u}) {
      Group g;
      g.precision = "bf16", g.model = model, g.world = world, g.accumulate = 2;
      const eng::Plan p = plan(g, {}).plans[0];
      INFO(describe(g));
      // Mamba has parameters that stay f32.
      const bool keeps = std::string(model) == "mamba";
      if (world == 2) {
        CHECK(types(p, ENG_OP_ALL_TO_ALL, eng::Phase::reduce) == (keeps ? Types{same, f32} : Types{same}));
        CHECK(types(p, ENG_OP_FOLD, eng::Phase::reduce) == (keeps ? Types{widen, f32} : Types{widen}));
      }
      CHECK(types(p, ENG_OP_CAST, eng::Phase::reduce).empty());
      // With one rank, products write the gradients of weights in f32; those of activations have 16 bits.
      CHECK(types(p, ENG_OP_MATMUL, eng::Phase::backward) == (world == 1 ? Types{same, widen} : Types{same}));
    }
}

TEST_CASE("a residual stream in f32 is kept as such, and normed into 16 bits") {
  Group g;
  g.precision = "bf16", g.model = "mamba", g.world = 1;
  const eng::Plan p = plan(g, {}).plans[0];
  CHECK(types(p, ENG_OP_RMS_NORM, eng::Phase::forward) == Types{{ENG_F32, ENG_BF16}});
  CHECK(types(p, ENG_OP_ADD, eng::Phase::forward) == Types{{ENG_BF16, ENG_F32}});
}

TEST_CASE("overflows: the loss scale follows the table, and nothing is updated", "[.slow]") {
  struct Row {
    const char* options;
    Scaler scaler;
    std::vector<int> overflows;
  };
  const Row rows[] = {
      {"initial_scale_power = 8\nloss_scale_window = 2", {256, 2, 2}, {1, 2, 5}},
      {"initial_scale_power = 8\nloss_scale_window = 3\nhysteresis = 1", {256, 3, 1}, {0, 4}},
      {"initial_scale_power = 2\nloss_scale_window = 1\nhysteresis = 3\nconsecutive_hysteresis = true\n"
       "min_loss_scale = 2.0",
       {4, 1, 3, true, 2},
       {0, 1, 3, 4, 5}},
  };
  uint64_t seed = 5;
  for (const Row& row : rows) {
    Group g;
    g.precision = std::string("fp16\n") + row.options, g.accumulate = 2, g.steps = 9;
    for (int k : row.overflows) g.overflows[k] = {static_cast<uint32_t>(k) % 2, k % 3 % 2};
    const Result first = train(g, plan(g, {}), {1, false});
    REQUIRE(first.complaint == "");
    CHECK(of_steps(first, "scales", g) == row.scaler.of(g.steps, {row.overflows.begin(), row.overflows.end()}));
    const std::vector<float> norms = of_steps(first, "norms", g);
    for (int k = 0; k < g.steps; ++k)
      CHECK(std::isfinite(norms[static_cast<size_t>(k)]) == (g.overflows.count(k) == 0));
    CHECK(tensor(first, "policy precision.fp16.scaler")[3] == static_cast<float>(row.overflows.size()));
    for (const char* strategy : {"zero1", "zero2", "zero3"}) {
      Draw d;
      d.strategy = strategy;
      INFO(describe(g) << "; " << describe(d));
      CHECK(difference(first, train(g, plan(g, d), {++seed, seed % 2 == 0})) == "");
    }
  }
}

TEST_CASE("a step that overflows leaves everything but the scaler as it was") {
  for (uint32_t world : {1u, 2u}) {
    Group g;
    g.precision = "fp16\ninitial_scale_power = 8", g.world = world, g.steps = 3;
    const Result before = train(g, plan(g, {}), {1, false});
    g.steps = 4, g.overflows[3] = {world - 1, 0};
    const Result after = train(g, plan(g, {}), {1, false});
    REQUIRE(before.complaint + after.complaint == "");
    int compared = 0;
    for (const auto& [name, values] : before.tensors) {
      if (name == "norms" || name == "scales" || name == "losses" || name.starts_with("policy")) continue;
      INFO(name);
      CHECK(tensor(after, name) == values);
      ++compared;
    }
    CHECK(compared > 10);
  }
}

TEST_CASE("the loss scale changes gradients only by their rounding") {
  // Powers of two are exact, so in the absence of subnormal and infinite values nothing changes at all.
  Group g;
  g.precision = "fp16\nloss_scale = 256.0", g.world = 1, g.model = "opt";
  Group other = g;
  other.precision = "fp16\nloss_scale = 1024.0";
  const Result a = train(g, plan(g, {}), {1, false}), b = train(other, plan(other, {}), {1, false});
  REQUIRE(a.complaint + b.complaint == "");
  const std::vector<float> x = of_steps(a, "norms", g), y = of_steps(b, "norms", g);
  for (size_t k = 0; k < x.size(); ++k) CHECK(std::fabs(x[k] - y[k]) < 1e-3f * x[k]);
  // A fixed scale neither grows nor shrinks.
  CHECK(of_steps(b, "scales", g) == std::vector<float>(3, 1024.0f));
}

TEST_CASE("a loss scale that is never taken out is seen in the norm, and in the weights of SGD without clipping") {
  Group g;
  g.precision = "fp16\nloss_scale = 256.0", g.grad_clip = 0;
  g.optimizer = "plugin = 'sgd'\nlearning_rate = 1e-2\n";
  const Planned planned = plan(g, {});
  const Result right = train(g, planned, {1, false});
  Fault fault;
  fault.keeps_scale = true;
  const Result wrong = train(g, planned, {1, false}, fault);
  REQUIRE(right.complaint + wrong.complaint == "");
  const float norm = tensor(right, "norms")[0], scaled = tensor(wrong, "norms")[0];
  CHECK(std::fabs(scaled / norm - 256) < 1e-3f);
  const std::string name = "parameter model.embed_tokens.weight";
  const std::vector<float>&a = tensor(right, name), &b = tensor(wrong, name);
  double apart = 0;
  for (size_t k = 0; k < a.size(); ++k) apart = std::max(apart, std::abs(double(a[k]) - double(b[k])));
  CHECK(apart > 0.1);
}
