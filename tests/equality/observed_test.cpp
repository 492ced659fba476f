// SPDX-License-Identifier: Apache-2.0
// A z loss over the strategies, and what the observer stats sees: it changes no bit, and its numbers are those of the
// tensors, whoever holds them.
#include <catch2/catch.hpp>

#include <cmath>

#include "all_equal.hpp"

using namespace equality;

namespace observed_test {
namespace {

double value(const Result& result, const std::string& name) {
  for (const eng::Named& one : result.observed)
    if (one.name == "stats." + name) return one.value;
  FAIL("nothing is observed as " + name);
  return 0;
}

// The root of the sum of squares of all numbers whose names begin so.
double norm(const Result& result, const std::string& prefix) {
  double sum = 0;
  for (const eng::Named& one : result.observed)
    if (one.name.rfind("stats." + prefix, 0) == 0) sum += one.value * one.value;
  return std::sqrt(sum);
}

double tensors(const Result& result, const std::string& role) {
  double sum = 0;
  for (const auto& [name, values] : result.tensors)
    if (name.rfind(role + " ", 0) == 0)
      for (float x : values) sum += double{x} * double{x};
  return std::sqrt(sum);
}

// Every draw gives the first one's bits, observed or not; returns the results that were observed.
std::vector<Result> train_all(const Group& group, const std::vector<Draw>& draws) {
  std::optional<Result> first;
  std::vector<Result> seen;
  uint64_t seed = 7;
  for (Draw draw : draws)
    for (const bool observe : {false, true}) {
      draw.observe = observe;
      INFO(describe(group) << "; " << describe(draw));
      const Planned planned = plan(group, draw);
      const Result result = train(group, planned, {++seed, seed % 2 == 0});
      if (!first) first = result;
      CHECK(difference(*first, result) == "");
      CHECK(planned.plans[0].observed.empty() != observe);
      if (observe) seen.push_back(result);
    }
  return seen;
}

const std::vector<Draw> draws = {
    {"none"},
    {"zero1", 65536},
    {"zero2", 65536, 1, true, 0, "every = 2"},
    {"zero3", 65536, 2, true, 0, "policy = 'full'"},
    {"two_level", 1},
    {"zero3", 65536, 1, true, 0, "", "optimizer = 'host'\ngradients = 'host'\n"},
    {"zero2", 65536, 1, true, 0, "blocks = 1", "optimizer = 'shelf'\ngradients = 'shelf'\n"}};

}  // namespace

TEST_CASE("a z loss gives the same bits with every strategy, recomputation and tier", "[.slow]") {
  for (const char* precision : {"fp32", "fp16", "bf16"}) {
    Group group;
    group.accumulate = 2, group.z_loss = 0.01, group.precision = precision;
    const std::vector<Result> seen = train_all(group, draws);
    // Two terms per micro-batch and rank; the z loss is seen in the loss.
    const std::vector<float>& losses = numbers(seen[0], "losses");
    CHECK(losses.size() == size_t{3} * (2 * 2 * 2 + 2 * 2 * 2 * 2));
    for (size_t k = 1; k < losses.size(); k += 2) CHECK(losses[k] > 1);
    Group without = group;
    without.z_loss = 0;
    const Result other = train(without, plan(without, {}), {3});
    CHECK(numbers(other, "parameter lm_head.weight") != numbers(seen[0], "parameter lm_head.weight"));
  }
}

TEST_CASE("a z loss of the other models gives the same bits with every strategy", "[.slow]") {
  for (const char* model : {"opt", "mamba", "llama-tied"}) {
    Group group;
    group.model = model, group.world = 3, group.accumulate = 2, group.z_loss = 0.01, group.reduce_per_step = true;
    train_all(group, {{"none"}, {"zero3", 1, 1, true, 0, "policy = 'full'"}});
  }
}

TEST_CASE("what is observed is what the tensors are, whoever holds them", "[.slow]") {
  for (const char* precision : {"fp32", "fp16", "bf16_sr"})
    for (const uint32_t world : {1u, 2u, 4u}) {
      Group group;
      group.world = world, group.precision = precision, group.accumulate = 2;
      // An update is the rate times the clipped gradient; bf16_sr rounds it.
      group.optimizer = "plugin = 'sgd'\nlearning_rate = 1e-2\nmomentum = 0\nweight_decay = 0\n";
      INFO(describe(group));
      const std::vector<Result> seen = train_all(group, world == 1 ? std::vector<Draw>{draws[0], draws[5]} : draws);
      for (const Result& result : seen) {
        const double gradient = numbers(result, "norms").back();
        CHECK(norm(result, "gradient_norm.") == Approx(gradient).epsilon(1e-5));
        CHECK(norm(result, "parameter_norm.") == Approx(tensors(result, "parameter")).epsilon(1e-6));
        const double clip = std::min(1.0, group.grad_clip / gradient);
        if (group.precision == "fp32")  // the rate of step k is 0.01 / k
          CHECK(norm(result, "update_norm.") == Approx(0.01 / group.steps * clip * gradient).epsilon(1e-3));
        CHECK(value(result, "gradient_max.layers.1") > 0);
        CHECK(value(result, "gradient_max.layers.1") < value(result, "gradient_norm.layers.1"));
        CHECK(value(result, "activation_max.embed") < value(result, "activation_norm.embed"));
        for (const eng::Named& one : seen[0].observed)  // the sums of parts differ in their last bits
          CHECK(value(result, one.name.substr(6)) == Approx(one.value).epsilon(1e-5));
      }
    }
}

TEST_CASE("a gradient that overflows is observed as such") {
  Group group;
  group.precision = "fp16", group.steps = 2, group.overflows = {{1, {1, 0}}};
  for (const char* strategy : {"none", "zero3"}) {
    Draw draw{strategy};
    draw.observe = true;
    const Result result = train(group, plan(group, draw), {5});
    CHECK(result.complaint == "");
    CHECK_FALSE(std::isfinite(norm(result, "gradient_norm.")));
    CHECK(norm(result, "update_norm.") == 0.0);  // and nothing is updated
  }
}

}  // namespace observed_test
