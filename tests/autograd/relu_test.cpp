// SPDX-License-Identifier: Apache-2.0
// The backward of eng.linear_relu/1: which op masks, and which sums the gradient of the bias.
#include <catch2/catch.hpp>

#include "tests/trace/gradient_check.hpp"

namespace relus {

using namespace sketch;

namespace {

constexpr int64_t B = 2, T = 3, H = 4, F = 9, V = 5;

// A lookup, a body of the parameters up (F, H), its bias (F), another bias (F), down (H, F) and again (H, F), and a
// loss of the sum of what it gives.
using Feed = std::function<std::vector<eng_id>(eng_build*, const eng_id* p, eng_id x)>;

Sketch sketch_of(const Feed& body, int blocks = 1) {
  Sketch s;
  const uint32_t table = s.param("table", {V, H});
  s.blocks.push_back({"embed", 0, {table}});
  const std::vector<uint32_t> p = {s.param("up", {F, H}), s.param("bias", {F}), s.param("other", {F}),
                                   s.param("down", {H, F}), s.param("again", {H, F})};
  for (int k = 0; k < blocks; ++k) s.blocks.push_back({"body." + std::to_string(k), 1, p});
  s.blocks.push_back({"head", 2, {s.param("head", {V, H})}});
  s.trace = [body](eng_build* b, uint32_t tmpl, const eng_id* params, const std::vector<eng_id>& in) {
    if (tmpl == 0) return std::vector<eng_id>{eng_embedding(b, batch(b, "tokens"), params[0])};
    if (tmpl == 1) return body(b, params, in[0]);
    return std::vector<eng_id>{eng_cross_entropy(b, in[0], params[0], batch(b, "labels"))};
  };
  return s;
}

struct Count {
  long products, slopes, sums;  // eng.matmul_relu_grad/1, eng.activation_grad/1, eng.sum_rows/1
  bool operator==(const Count&) const = default;
};

Count count_of(const eng::Model& model) {
  const eng::Template& t = model.templates.at(1);
  const auto of = [&](const std::string& op) {
    return std::count_if(t.graph.nodes.begin() + static_cast<std::ptrdiff_t>(t.forward), t.graph.nodes.end(),
                         [&](const eng::Node& node) { return op == node.op->id; });
  };
  return {of(ENG_OP_MATMUL_RELU_GRAD), of(ENG_OP_ACTIVATION_GRAD), of(ENG_OP_SUM_ROWS)};
}

// Checks the gradients; returns what makes them.
Count checked(const Feed& body, int blocks = 1) {
  Count made{};
  Checked run(sketch_of(body, blocks), B, T, V, 1, [&](const eng::Model& model) { made = count_of(model); });
  std::string worst;
  const double error = distance(run.gradients(), run.differences(), &worst);
  INFO("worst: " << worst);
  CHECK(error < 1e-6);
  return made;
}

}  // namespace

TEST_CASE("the product behind a relu masks, and sums the gradient of the bias") {
  const Feed plain = [](auto* b, auto* p, auto x) {
    return std::vector<eng_id>{eng_linear(b, eng_linear_relu(b, x, p[0], p[1]), p[3], 0)};
  };
  CHECK(checked(plain) == Count{1, 0, 0});
  CHECK(checked(plain, 2) == Count{1, 0, 0});  // the second block adds to the gradients of the first
  CHECK(checked([](auto* b, auto* p, auto x) {
          return std::vector<eng_id>{eng_linear(b, eng_linear_relu(b, x, p[0], 0), p[3], 0)};
        }) == Count{1, 0, 0});
  // The first of two products in the backward masks, the rule of linear_relu the sum of both.
  CHECK(checked([](auto* b, auto* p, auto x) {
          const eng_id y = eng_linear_relu(b, x, p[0], p[1]);
          return std::vector<eng_id>{eng_add(b, eng_linear(b, y, p[3], 0), eng_linear(b, y, p[4], 0))};
        }) == Count{1, 1, 1});
  // Another op reads y first in the backward.
  CHECK(checked([](auto* b, auto* p, auto x) {
          const eng_id y = eng_linear_relu(b, x, p[0], p[1]);
          const eng_id z = eng_linear(b, y, p[3], 0);
          return std::vector<eng_id>{eng_add(b, z, eng_linear(b, eng_scale(b, y, 0.5), p[4], 0))};
        }) == Count{0, 1, 1});
  // No product reads y.
  CHECK(checked([](auto* b, auto* p, auto x) {
          const eng_id y = eng_linear_relu(b, x, p[0], p[1]);
          return std::vector<eng_id>{eng_linear(b, eng_scale(b, y, 0.5), p[3], 0)};
        }) == Count{0, 1, 1});
}

TEST_CASE("a bias that two relus read gets both gradients") {
  const auto two = [](uint32_t second) -> Feed {
    return [second](auto* b, auto* p, auto x) {
      const eng_id y = eng_linear(b, eng_linear_relu(b, x, p[0], p[1]), p[3], 0);
      return std::vector<eng_id>{eng_linear(b, eng_linear_relu(b, y, p[0], p[second]), p[4], 0)};
    };
  };
  CHECK(checked(two(2)) == Count{2, 0, 0});
  CHECK(checked(two(1)) == Count{2, 0, 1});
}

TEST_CASE("a relu whose output leaves the block masks what comes back") {
  // (B, T, F): the next block has to be as wide.
  Sketch s;
  s.blocks.push_back({"embed", 0, {s.param("table", {V, H})}});
  s.blocks.push_back({"body", 1, {s.param("up", {F, H}), s.param("bias", {F})}});
  s.blocks.push_back({"head", 2, {s.param("head", {V, F})}});
  s.trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl == 0) return std::vector<eng_id>{eng_embedding(b, batch(b, "tokens"), p[0])};
    if (tmpl == 1) return std::vector<eng_id>{eng_linear_relu(b, in[0], p[0], p[1])};
    return std::vector<eng_id>{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
  };
  Checked run(s, B, T, V);
  CHECK(distance(run.gradients(), run.differences()) < 1e-6);
}

TEST_CASE("a mask of the wrong product is seen") {
  const Sketch s = sketch_of([](auto* b, auto* p, auto x) {
    const eng_id y = eng_linear_relu(b, x, p[0], p[1]);
    return std::vector<eng_id>{eng_linear(b, eng_linear_relu(b, eng_linear(b, y, p[3], 0), p[0], p[2]), p[4], 0)};
  });
  Checked run(s, B, T, V, 1, [](eng::Model& model) {
    eng::Template& t = model.templates.at(1);
    std::vector<eng::Node*> all;
    for (eng::Node& node : t.graph.nodes)
      if (node.op->id == std::string(ENG_OP_MATMUL_RELU_GRAD)) all.push_back(&node);
    REQUIRE(all.size() == 2);
    all[0]->in[2] = all[1]->in[2];
  });
  CHECK(distance(run.gradients(), run.differences()) > 1e-6);
}

}  // namespace relus
