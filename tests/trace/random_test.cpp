// SPDX-License-Identifier: Apache-2.0
// Gradients of random models: values, parameters and outputs are shared in every way that chance finds.
#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "gradient_check.hpp"
#include "session/model/recompute.hpp"

using namespace sketch;

namespace random_test {
namespace {

constexpr int64_t B = 1, T = 3, H = 4, V = 5;

// One op of a block; inputs count in the block's values, parameters in its list.
struct Step {
  enum Kind { linear, norm, sum_norm, add, gated, rope, attention, layer_norm, sum_layer_norm, activation, kinds } kind;
  size_t x, y, z;
  uint32_t p[2];
  int64_t act;
};

struct Plan {
  std::vector<Step> steps;
  std::vector<size_t> outputs;
};

Sketch random_sketch(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto below = [&](uint64_t n) { return random() % n; };
  Sketch s;
  const uint32_t table = s.param("table", {V, H});
  s.blocks.push_back({"embed", 0, {table}});
  std::vector<Plan> plans(1);
  std::vector<uint32_t> squares, vectors;  // shared by all blocks
  size_t inputs = 1;
  for (uint64_t k = 0, n = 1 + below(3); k < n; ++k) {
    Plan plan;
    Sketch::Block block{"body." + std::to_string(k), static_cast<uint32_t>(k + 1), {}};
    auto use = [&](std::vector<uint32_t>& pool, std::vector<int64_t> dims) {
      const bool fresh = pool.empty() || below(2);
      if (fresh) pool.push_back(s.param("p" + std::to_string(s.params.size()), std::move(dims)));
      const uint32_t p = fresh ? pool.back() : pool[below(pool.size())];
      const auto found = std::find(block.params.begin(), block.params.end(), p);
      if (found != block.params.end() && below(4)) return static_cast<uint32_t>(found - block.params.begin());
      block.params.push_back(p);
      return static_cast<uint32_t>(block.params.size() - 1);
    };
    size_t values = inputs;
    for (uint64_t m = 0, steps = 2 + below(5); m < steps; ++m) {
      // The newest value often, so that chains grow.
      auto some = [&] { return below(2) ? values - 1 : below(values); };
      Step step{static_cast<Step::Kind>(below(Step::kinds)), some(), some(), some(), {0, 0},
                1 + static_cast<int64_t>(below(3))};
      if (step.kind == Step::linear) {
        step.p[0] = use(squares, {H, H});
        step.p[1] = below(2) ? use(vectors, {H}) : UINT32_MAX;
      }
      if (step.kind == Step::norm || step.kind == Step::sum_norm) step.p[0] = use(vectors, {H});
      if (step.kind == Step::layer_norm || step.kind == Step::sum_layer_norm)
        for (uint32_t& p : step.p) p = below(2) ? use(vectors, {H}) : UINT32_MAX;
      values += step.kind == Step::sum_norm || step.kind == Step::sum_layer_norm ? 2 : 1;
      plan.steps.push_back(step);
    }
    for (uint64_t m = 1 + below(3); m > 0; --m)
      plan.outputs.push_back(below(3) ? values - 1 - below(std::min<size_t>(values, 3)) : below(values));
    inputs = plan.outputs.size();
    plans.push_back(plan);
    s.blocks.push_back(block);
  }
  s.blocks.push_back({"head", 99, {below(2) ? table : s.param("head", {V, H}), s.param("norm", {H})}});
  const uint64_t use = below(4);  // of the last body's outputs: their sum, or one of them
  s.trace = [plans, use](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl == 0) return std::vector<eng_id>{eng_embedding(b, batch(b, "tokens"), p[0])};
    if (tmpl == 99) {
      eng_id x = in[use % in.size()];
      if (use == 0)
        for (size_t k = 1; k < in.size(); ++k) x = eng_add(b, x, in[k]);
      return std::vector<eng_id>{eng_cross_entropy(b, eng_rms_norm(b, x, p[1], 1e-3), p[0], batch(b, "labels"))};
    }
    std::vector<eng_id> values = in, out;
    for (const Step& step : plans[tmpl].steps) {
      const eng_id x = values[step.x], y = values[step.y], z = values[step.z];
      const auto parameter = [&](int k) { return step.p[k] == UINT32_MAX ? 0 : p[step.p[k]]; };
      eng_id s = 0;
      switch (step.kind) {
        case Step::linear:
          values.push_back(eng_linear(b, x, parameter(0), parameter(1)));
          break;
        case Step::norm:
          values.push_back(eng_rms_norm(b, x, p[step.p[0]], 1e-3));
          break;
        case Step::sum_norm:
          values.push_back(eng_add_rms_norm(b, x, y, p[step.p[0]], 1e-3, &s));
          values.push_back(s);
          break;
        case Step::layer_norm:
          values.push_back(eng_layer_norm(b, x, parameter(0), parameter(0) ? parameter(1) : 0, 1e-2));
          break;
        case Step::sum_layer_norm:
          values.push_back(eng_add_layer_norm(b, x, y, parameter(0), parameter(0) ? parameter(1) : 0, 1e-2, &s));
          values.push_back(s);
          break;
        case Step::activation:
          values.push_back(eng_activation(b, x, step.act));
          break;
        case Step::add:
          values.push_back(eng_add(b, x, y));
          break;
        case Step::gated:
          values.push_back(eng_gated(b, x, y, step.act));
          break;
        case Step::rope: {
          std::vector<float> angles;
          for (int64_t t = 0; t < T; ++t)
            angles.insert(angles.end(),
                          {std::cos(0.5f * static_cast<float>(t)), std::sin(0.5f * static_cast<float>(t))});
          const eng_desc desc = {ENG_F32, 2, {T, 2}};
          eng_id table = 0;
          b->api->constant(b, &desc, angles.data(), &table, nullptr);
          values.push_back(eng_rope(b, x, table, 2));
          break;
        }
        default:
          values.push_back(eng_attention(b, x, y, z, 2, 2, 0.6));
          break;
      }
    }
    for (size_t k : plans[tmpl].outputs) out.push_back(values[k]);
    return out;
  };
  return s;
}

void check_seeds(uint64_t first, uint64_t last) {
  for (uint64_t seed = first; seed <= last; ++seed) {
    INFO("seed " << seed);
    Checked checked(random_sketch(seed), B, T, V);
    std::string worst;
    const Values ours = checked.gradients();
    double error = distance(ours, checked.differences(), &worst, 1e-5);
    // A loss that bends sharply needs smaller steps.
    if (!(error < 1e-6)) error = distance(ours, checked.differences(1e-4), &worst, 1e-5);
    INFO("worst: " << worst);
    CHECK(error < 1e-6);
    CHECK(ours == checked.gradients());  // a second step leaves nothing behind
  }
}

}  // namespace

TEST_CASE("gradients of random graphs are those of differences") {
  check_seeds(1, 100);
}

TEST_CASE("random graphs have the same gradients whatever the backward makes again", "[.slow]") {
  using Kind = eng::Recompute::Kind;
  size_t changed = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    double loss = 0;
    Checked plain(random_sketch(seed), B, T, V, 2);
    const Values gradients = plain.gradients(&loss);
    const size_t layers = plain.model().blocks.size() - 2;
    const uint64_t most = eng::kept(plain.model()).bytes;
    std::vector<eng::Recompute> all = {{Kind::full}, {Kind::every, 2}};
    for (uint64_t n = 1; n <= layers; ++n) all.push_back({Kind::blocks, n});
    for (uint64_t part : {2, 4, 6, 7, 8}) all.push_back({Kind::budget, most * part / 8});
    for (const eng::Recompute& how : all) {
      INFO("seed " << seed << ", kind " << static_cast<int>(how.kind) << ", n " << how.n);
      std::unique_ptr<Checked> again;
      try {
        again = std::make_unique<Checked>(random_sketch(seed), B, T, V, 2,
                                          [&](eng::Model& model) { eng::recompute(model, how); });
      } catch (const eng::Error& e) {
        CHECK((how.kind == Kind::budget && e.exit() == eng::Exit::usage));
        continue;
      }
      double same = 0;
      CHECK((again->gradients(&same) == gradients));
      CHECK(same == loss);
      CHECK((again->gradients() == gradients));
      const eng::Kept kept = eng::kept(again->model());
      if (how.kind == Kind::budget) CHECK(kept.bytes <= how.n);
      CHECK(again->plan().flops_per_step == plain.plan().flops_per_step + 2 * kept.again);
      changed += kept.again > 0;
    }
  }
  CHECK(changed > 300);
}

TEST_CASE("random graphs say the same one position after the other") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    CHECK(Checked(random_sketch(seed), 2, T, V, 1, {}, true).first_difference(1e-11) == T);
  }
}

TEST_CASE("gradients of many random graphs are those of differences", "[.slow]") {
  check_seeds(101, 2000);
}

}  // namespace random_test
