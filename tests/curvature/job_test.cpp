// SPDX-License-Identifier: Apache-2.0
// The whole job on models whose curvature is known, without the engine.
#include <catch2/catch.hpp>

#include "toys.hpp"

using namespace curvature_test;

namespace {

constexpr uint32_t mean_state = 2, m2_state = 3;

const Given small = {{"probes", int64_t{8}},       {"windows", int64_t{4}},
                     {"held_windows", int64_t{8}}, {"train_windows", int64_t{8}},
                     {"noise_seeds", int64_t{2}},  {"noise", std::vector<double>{0, 0.1}}};

Given with(Given base, const Given& more) {
  for (const auto& [key, value] : more) base[key] = value;
  return base;
}
const Given no_noise = {{"noise_seeds", int64_t{0}}, {"embedding", std::string("none")}};

// A run that must succeed.
std::unique_ptr<ToyHost> ran(const Toy& toy, const Given& given, int64_t part = 1 << 20) {
  auto host = std::make_unique<ToyHost>(toy, given, Kept{}, part);
  const eng_status status = host->run();
  INFO(host->error_text);
  REQUIRE(status == ENG_OK);
  return host;
}
std::string failure(const Toy& toy, const Given& given) {
  try {
    ToyHost host(toy, given);
    if (host.run() == ENG_OK) return "it ran";
    return host.error_text;
  } catch (const Failure& e) {
    return e.what();
  }
}

// Compares the diagonal with the true one: the share of intervals that contain it, and the root mean square error.
struct Compared {
  double covered = 0, error = 0, bias = 0;
};
Compared compare(const ToyHost& host, const std::vector<std::vector<double>>& truth, int probes, double t) {
  Compared c;
  double n = 0;
  for (uint32_t p = 0; p < truth.size(); ++p)
    for (size_t i = 0; i < truth[p].size(); ++i, ++n) {
      const double h = host.state(mean_state, p).at(int64_t(i)), m2 = host.state(m2_state, p).at(int64_t(i));
      const double off = h - truth[p][i], half = t * std::sqrt(m2 / (probes - 1) / probes);
      c.covered += std::fabs(off) <= half ? 1 : 0, c.error += off * off, c.bias += off;
    }
  return {c.covered / n, std::sqrt(c.error / n), c.bias / n};
}

}  // namespace

TEST_CASE("the diagonal of a softmax regression is the one in closed form", "[.slow]") {
  const SoftmaxRegression toy;
  const auto run = [&](int64_t probes, int64_t seed) {
    return ran(toy, with(no_noise, {{"probes", probes}, {"seed", seed}, {"save_every", int64_t{1000}}}));
  };
  const auto truth = toy.diagonal(run(2, 1)->masters, 8);
  double covered = 0, errors[3] = {};
  constexpr int seeds = 8;
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    const double t[3] = {2.131450, 1.998341, 1.969422};  // quantiles 0.975 of Student's t with 15, 63, 255 degrees
    for (int k = 0; k < 3; ++k) {
      const int probes = 16 << 2 * k;
      const Compared c = compare(*run(probes, seed), truth, probes, t[k]);
      errors[k] += c.error * c.error / seeds;
      if (k == 1) covered += c.covered / seeds;
    }
  }
  // 8 * 78 intervals. Those of one run are not independent; if each run counted as 10 independent ones, the standard
  // deviation of the share is sqrt(0.95 * 0.05 / 80) = 0.024.
  CHECK(covered > 0.95 - 3 * 0.024);
  CHECK(covered < 0.995);
  // Four times the probes: half of the error. The error of 8 * 78 squares, as above, is known to 16 %.
  CHECK(std::sqrt(errors[0] / errors[1]) == Approx(2).epsilon(0.2));
  CHECK(std::sqrt(errors[1] / errors[2]) == Approx(2).epsilon(0.2));
}

TEST_CASE("the step of the differences is neither too small for f32 nor too large for the curvature") {
  // The estimate with one set of directions: what differs between steps is rounding or curvature of the gradient.
  const SoftmaxRegression toy;
  const auto run = [&](double step) {
    return ran(toy, with(no_noise, {{"step", step}, {"probes", int64_t{256}}, {"save_every", int64_t{1000}}}));
  };
  const auto chosen = run(5e-3), half = run(2.5e-3), tiny = run(1e-6), large = run(1.0);
  const auto distance = [&](const ToyHost& a, const ToyHost& b) {
    double most = 0, size = 0;
    for (int64_t i = 0; i < 72; ++i) {
      most = std::max(most, std::fabs(a.state(mean_state, 0).at(i) - b.state(mean_state, 0).at(i)));
      size = std::max(size, std::fabs(b.state(mean_state, 0).at(i)));
    }
    return most / size;
  };
  CHECK(distance(*chosen, *half) < 1e-4);
  CHECK(distance(*tiny, *half) > 10 * distance(*chosen, *half));
  CHECK(distance(*large, *half) > 10 * distance(*chosen, *half));
}

TEST_CASE("fisher is the mean of squared gradients") {
  const SoftmaxRegression toy;
  const auto host =
      ran(toy, with(no_noise, {{"method", std::string("fisher")}, {"probes", int64_t{10}}, {"windows", int64_t{2}}}));
  std::vector<double> want(72);
  for (uint64_t k = 0; k < 10; ++k) {
    std::vector<std::vector<double>> g = {std::vector<double>(72), std::vector<double>(6)};
    for (uint64_t w = 0; w < 2; ++w) toy.window(host->masters, ENG_JOB_TRAIN, 2 * k + w, &g, nullptr);
    for (size_t i = 0; i < 72; ++i) want[i] += g[0][i] * g[0][i] / 32 / 10;
  }
  for (size_t i = 0; i < 72; ++i) CHECK(host->state(mean_state, 0).at(int64_t(i)) == Approx(want[i]).epsilon(1e-4));
}

TEST_CASE("parameters after the job are those before it, and two runs are equal") {
  const Planted toy;
  const auto one = ran(toy, small), two = ran(toy, small);
  for (uint32_t p = 0; p < toy.parameters.size(); ++p) {
    CHECK(std::memcmp(one->masters[p].memory.data(), toy.parameters[p].values.data(), one->masters[p].memory.size()) ==
          0);
    CHECK(one->state(mean_state, p).same_bits(two->state(mean_state, p)));
  }
  CHECK(one->files == two->files);
  CHECK(one->gradients == 2 * 8 + 1);
  const auto other = ran(toy, with(small, {{"seed", int64_t{2}}}));  // the twin
  CHECK(!other->state(mean_state, 0).same_bits(one->state(mean_state, 0)));
}

TEST_CASE("a job that is stopped anywhere and goes on has the result of one that never was") {
  const Planted toy;
  const auto whole_run = ran(toy, small);
  for (int64_t every : {1, 3}) {
    const Given given = with(small, {{"save_every", every}});
    Kept kept;
    int parts = 0;
    for (bool done = false; !done && parts < 50; ++parts) {
      ToyHost host(toy, given, kept);
      host.stop_after_saves = 2;
      const eng_status status = host.run();
      REQUIRE((status == ENG_OK || status == ENG_UNAVAILABLE));
      done = status == ENG_OK, kept = host.saved.values.empty() ? kept : host.saved;
      if (!done) continue;
      for (uint32_t p = 0; p < toy.parameters.size(); ++p)
        CHECK(host.state(mean_state, p).same_bits(whole_run->state(mean_state, p)));
      if (every == 1) CHECK(host.files == whole_run->files);
    }
    CHECK(parts > 3);
  }
}

TEST_CASE("a sample is measured where it lies, the rest is not") {
  const SoftmaxRegression toy;
  const auto host = ran(toy, with(no_noise, {{"samples_per_tensor", int64_t{20}}, {"probes", int64_t{4}}}));
  int64_t measured = 0;
  for (int64_t i = 0; i < 72; ++i) measured += host->state(mean_state, 0).at(i) != 0 ? 1 : 0;
  CHECK(measured > 8);
  CHECK(measured < 36);
  const auto half = ran(toy, with(no_noise, {{"max_parameters", int64_t{20}}, {"probes", int64_t{4}}}));
  measured = 0;
  for (uint32_t p : {0, 1})
    for (int64_t i = 0; i < half->state(mean_state, p).size(); ++i) measured += half->state(mean_state, p).at(i) != 0;
  CHECK(measured > 8);
  CHECK(measured < 36);
}

TEST_CASE("input that the job cannot use is named with its key") {
  const SoftmaxRegression toy;
  const auto refused = [&](const Given& given, const std::string& text) {
    INFO(text);
    CHECK_THAT(failure(toy, given), Catch::Contains(text));
  };
  refused({{"h_functional", 1.5}}, "job.h_functional = 1.5 is out of range: give a number from 0 to 1");
  refused({{"sparsity_sensitive", -0.1}}, "job.sparsity_sensitive = -0.1 is out of range");
  refused({{"h_sensitive", 0.9}}, "job.h_sensitive = 0.9 is above job.h_functional = 0.5");
  refused({{"noise", std::vector<double>{0.0, -1.0}}}, "job.noise has -1");
  refused({{"held_windows", int64_t{100}}}, "job.held_windows = 100: the held-out text has only 64 windows");
  refused({{"train_windows", int64_t{100}}}, "job.train_windows = 100: the training text has only 64 windows");
  refused({{"windows", int64_t{100}}}, "job.windows = 100: the training text has only 64 windows");
  refused({{"windows", int64_t{3}}, {"micro_batch", int64_t{2}}}, "job.windows = 3 must be a multiple of");
  refused({{"method", std::string("fisher")}}, "job.probes * job.windows = 256: the training text has only 64");
  refused({{"method", std::string("fisher")}, {"max_parameters", int64_t{5}}}, "remove job.samples_per_tensor");
  refused({{"partition", std::string("row")}, {"max_rows", int64_t{3}}}, "raise job.max_rows");
  SoftmaxRegression bare;
  bare.held = 0;
  CHECK_THAT(failure(bare, {}), Catch::Contains("there is no held-out text; set data.validation"));
  Planted unknown;
  unknown.sites[1].act = 77;
  CHECK_THAT(failure(unknown, small), Catch::Contains("eng.activation/1 in block layers.1 has the activation 77"));
  CHECK(failure(unknown, with(small, {{"activations", std::vector<std::string>{"eng.gated/1"}}})) == "it ran");
}
