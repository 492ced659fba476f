// SPDX-License-Identifier: Apache-2.0
// Strategies with groups of ranks, sums of gradients in 16 or 8 bits, gathers of weights in 8 bits: equal bits where
// they are promised, and what is lost where they are not.
#include <catch2/catch.hpp>

#include <cmath>

#include "all_equal.hpp"
#include "core/base/error.hpp"
#include "engine/ops.h"

using namespace equality;

namespace {

Draw with(const std::string& strategy, const std::string& zero = "", uint64_t bucket = 1) {
  Draw d;
  d.strategy = strategy, d.zero = zero, d.bucket = bucket;
  return d;
}

Result trained_narrow(const Group& g, const Draw& d, uint64_t seed = 3) {
  INFO(describe(g) << "; " << describe(d));
  Result result = train(g, plan(g, d), {seed, seed % 2 == 0});
  REQUIRE(result.complaint == "");
  return result;
}

// All values of the tensors whose name contains this.
std::vector<float> all_of(const Result& result, const std::string& part) {
  std::vector<float> out;
  for (const auto& [name, values] : result.tensors)
    if (name.find(part) != std::string::npos) out.insert(out.end(), values.begin(), values.end());
  return out;
}

double largest(const std::vector<float>& values) {
  double out = 0;
  for (const float v : values) out = std::max(out, std::fabs(double(v)));
  return out;
}

std::string group(uint32_t n) {
  return "group = " + std::to_string(n) + "\n";
}

}  // namespace

TEST_CASE("groups of 2, 4 or all ranks, or of one, give the bits of the strategies without groups",
          "[compressed][.slow]") {
  for (const uint32_t world : {2u, 4u})
    for (const char* precision : {"fp32", "bf16"}) {
      Group g;
      g.world = world, g.accumulate = 2, g.precision = precision;
      std::vector<Draw> draws = {with("none"), with("zero3")};
      for (uint32_t n = 1; n <= world; n *= 2)
        for (const char* strategy : {"hpz", "mics"}) draws.push_back(with(strategy, group(n), n % 2 ? 1 : 1 << 20));
      all_equal(g, draws);
    }
}

TEST_CASE("strategies with groups give the bits of all others", "[compressed]") {
  Group g;
  g.world = 4;
  all_equal(g, {with("zero2"), with("hpz", group(2)), with("mics", group(2))});
}

TEST_CASE("groups of three are summed first, so that the order is another one, and fixed", "[compressed][.slow]") {
  Group g;
  g.world = 6;
  const Result first = all_equal(g, {with("hpz", group(3)), with("mics", group(3)), with("mics", group(3), 1 << 20)});
  CHECK(difference(first, trained_narrow(g, with("zero3"))) != "");
  // Within one group, or with groups of one, there is no other order.
  all_equal(g, {with("zero3"), with("hpz", group(6)), with("mics", group(6)), with("mics", group(1))});
}

TEST_CASE("narrow sums are the same for every strategy, bucket and order of the queues", "[compressed]") {
  for (const char* sum : {"sum = 'int8'\n", "sum = 'bf16'\n"}) {
    Group g;
    g.world = 2, g.accumulate = 2;
    const Result first =
        all_equal(g, {with("none", sum), with("zero1", sum, 1 << 20), with("zero2", sum), with("zero3", sum)});
    CHECK(largest(all_of(first, "zero.residual.2.")) > 0);
    CHECK(difference(first, trained_narrow(g, with("zero2"))) != "");
  }
}

TEST_CASE("between groups, narrow sums are the same for both strategies", "[compressed][.slow]") {
  for (const char* sum : {"sum = 'int8'\n", "sum = 'bf16'\n"})
    for (const char* precision : {"fp32", "bf16"}) {
      Group g;
      g.world = 4, g.accumulate = 2, g.precision = precision;
      const Result first = all_equal(
          g, {with("hpz", group(2) + sum), with("mics", group(2) + sum), with("mics", group(2) + sum, 1 << 20)});
      CHECK(largest(all_of(first, "zero.residual.2.")) > 0);
      // In one group nothing crosses.
      all_equal(g, {with("zero3"), with("hpz", group(4) + sum), with("mics", group(4) + sum)});
    }
}

TEST_CASE("what a narrow sum leaves out is what its residuals have", "[compressed]") {
  // After one step of SGD the momentum is the sum of the micro-batches' gradients.
  for (const char* sum : {"sum = 'int8'\n", "sum = 'bf16'\n"})
    for (const auto& [strategy, zero, world, tensor, pipeline] : {std::tuple{"zero2", std::string(), 2u, 1u, 1u},
                                                                  {"zero3", "", 3u, 1u, 1u},
                                                                  {"hpz", group(2), 4u, 1u, 1u},
                                                                  {"mics", group(2), 4u, 1u, 1u},
                                                                  {"zero2", "", 4u, 2u, 1u},
                                                                  {"zero3", "", 4u, 1u, 2u}}) {
      Group g;
      g.world = world, g.accumulate = 3, g.steps = 1, g.grad_clip = 0, g.tensor = tensor, g.pipeline = pipeline;
      if (pipeline > 1) g.model = "llama-tied";  // two stages have gradients of its head
      g.optimizer = "plugin = 'sgd'\nlearning_rate = 1e-2\nmomentum = 0.9\nweight_decay = 0.0\n";
      const Result exact = trained_narrow(g, with(strategy, zero)),
                   narrow = trained_narrow(g, with(strategy, zero + sum));
      const Planned planned = plan(g, with(strategy, zero + sum));
      size_t compared = 0;
      double lost = 0;
      for (const auto& [name, left] : narrow.tensors) {
        const size_t at = name.find("zero.residual.");
        if (at == std::string::npos) continue;
        const std::string parameter = name.substr(name.find('.', at + 14) + 1);
        const std::vector<float>&a = numbers(exact, "momentum_buffer " + parameter),
              &b = numbers(narrow, "momentum_buffer " + parameter);
        const double top = largest(a);
        // Ranks that divide a tensor have rows of what each has; of others they have the same.
        const eng::Tensor& whole = *planned.plans[0].find(parameter, "momentum_buffer");
        eng::Parameter own;
        own.desc = whole.desc, own.cut = whole.cut, own.desc.dims[own.cut.dim] /= own.cut.count;
        const size_t n = a.size() / own.cut.count, rows = left.size() / n / g.tensor;
        for (size_t e = 0; e < a.size(); ++e) {
          own.cut.index = static_cast<uint32_t>(e / n);
          const size_t k = own.cut.count > 1 ? own.place(e % n).first : e;
          double residual = 0;
          for (size_t row = 0; row < rows; ++row) residual += left[(e / n * rows + row) * n + e % n];
          lost = std::max(lost, std::fabs(double(a[k]) - b[k]) / top);
          if (!(std::fabs(a[k] - (b[k] + residual)) <= 1e-6 * top)) {
            INFO(describe(g) << ", " << strategy << ", " << name << " [" << k << "]: " << a[k] << ", " << b[k] << " + "
                             << residual);
            CHECK(false);
            return;
          }
          ++compared;
        }
      }
      CHECK(compared > 10000);
      CHECK(lost > 1e-4);  // without the residuals it is told apart
    }
}

TEST_CASE("weights in 8 bits are the same for every strategy that gathers them", "[compressed]") {
  for (const char* precision : {"fp32", "bf16"}) {
    Group g;
    g.world = 4, g.precision = precision, g.steps = 2;
    const std::string gather = "gather = 'int8'\n";
    const Result first =
        all_equal(g, {with("zero3", gather), with("hpz", group(2) + gather, 1 << 20), with("mics", group(2) + gather)});
    const Result exact = trained_narrow(g, with("zero3"));
    CHECK(difference(first, exact) != "");
    const std::vector<float>&a = numbers(first, "losses"), &b = numbers(exact, "losses");
    for (size_t k = 0; k < a.size(); ++k) CHECK(std::fabs(a[k] / b[k] - 1) < 0.01);
    // The masters begin alike, and are never rounded.
    const Planned planned = plan(g, with("zero3", gather));
    CHECK(types(planned.plans[0], ENG_OP_ALL_GATHER, eng::Phase::gather) == Types{{ENG_U8, ENG_U8}});
  }
}

TEST_CASE("narrow sums and gathers move as many bytes as they say", "[compressed]") {
  Group g;
  g.world = 2, g.steps = 1;
  const auto sent = [&](const std::string& strategy, const std::string& zero) {
    return static_cast<double>(trained_narrow(g, with(strategy, zero, 1 << 20)).sent[0]);
  };
  const double exact = sent("zero3", ""), int8 = sent("zero3", "sum = 'int8'\n"),
               bf16 = sent("zero3", "sum = 'bf16'\n"), both = sent("zero3", "sum = 'int8'\ngather = 'int8'\n");
  // The pass of the sums, among up to three over all parameters: 17/64 and 1/2 of its bytes are left.
  const double sums = (exact - bf16) * 2;
  CHECK(std::fabs((exact - int8) / sums - (1 - 17.0 / 64)) < 1e-3);
  CHECK(std::fabs(both / exact - 17.0 / 64) < 0.01);
}

TEST_CASE("narrow sums are refused with a loss scale, and with sums of the communicator", "[compressed]") {
  Group g;
  g.precision = "fp16";
  CHECK_THROWS_WITH(plan(g, with("zero2", "sum = 'int8'\n")), Catch::Contains("scales the loss"));
  g.precision = "bf16";
  CHECK_THROWS_WITH(plan(g, with("zero2", "sum = 'bf16'\n")), Catch::Contains("are made in bf16"));
  g.precision = "fp32", g.world = 4;
  CHECK_THROWS_WITH(plan(g, with("mics", group(3))), Catch::Contains("4 ranks are no multiple of zero.group = 3"));
}
