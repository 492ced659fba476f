// SPDX-License-Identifier: Apache-2.0
// Dropout in a program: one mask forward and backward, another one per use, none outside of training.
#include <catch2/catch.hpp>
#include <set>

#include "gradient_check.hpp"
#include "session/model/recompute.hpp"

using namespace sketch;

namespace dropout_test {
namespace {

constexpr int64_t B = 2, T = 3, H = 4, V = 5;
constexpr double limit = 1e-6;

// Two layers of one template, each with two dropouts: the first in the memory of its input, the second of a value that
// is used again.
Sketch sketch_of(double p) {
  Sketch s;
  const uint32_t table = s.param("table", {V, H});
  s.blocks.push_back({"embed", 0, {table}});
  for (int k = 0; k < 2; ++k) {
    const uint32_t w = s.param("w" + std::to_string(k), {H, H});
    s.blocks.push_back({"body." + std::to_string(k), 1, {w}});
  }
  s.blocks.push_back({"head", 2, {table, s.param("norm", {H})}});
  s.trace = [p](eng_build* b, uint32_t tmpl, const eng_id* params, const std::vector<eng_id>& in) {
    if (tmpl == 0) return std::vector<eng_id>{eng_embedding(b, batch(b, "tokens"), params[0])};
    if (tmpl == 1) {
      const eng_id x = eng_dropout(b, eng_linear(b, in[0], params[0], 0), p);
      return std::vector<eng_id>{eng_add(b, eng_activation(b, eng_dropout(b, x, p), ENG_ACT_GELU), x)};
    }
    return std::vector<eng_id>{
        eng_cross_entropy(b, eng_layer_norm(b, in[0], params[1], 0, 1e-3), params[0], batch(b, "labels"))};
  };
  return s;
}

// The streams of the dropouts of a program, in its order.
std::vector<int64_t> streams(const eng::Plan& plan, const std::string& program) {
  std::vector<int64_t> out;
  for (const eng::Segment& segment : plan.program(program).segments)
    for (const eng::Action& action : segment.actions) {
      const eng::Call& call = plan.calls[action.call];
      if (std::string(call.op->id) == ENG_OP_DROPOUT) out.push_back(call.attrs.i("stream"));
    }
  return out;
}

}  // namespace

TEST_CASE("the backward of dropout uses the mask of the forward") {
  Checked checked(sketch_of(0.3), B, T, V);
  std::string worst;
  const Values ours = checked.gradients();
  const Values theirs = checked.differences(5e-4, [&] { return checked.training_loss(); });
  const double error = distance(ours, theirs, &worst);
  INFO("worst: " << worst);
  CHECK(error < limit);
  CHECK(ours == checked.gradients());
  // A backward with another mask is seen.
  Checked faulty(sketch_of(0.3), B, T, V, 1, [](eng::Model& m) {
    eng::Template& t = m.templates[1];
    for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
      for (auto& a : t.graph.nodes[n].attrs.list)
        if (a.key == "site") a.i += 20;
  });
  CHECK(faulty.training_loss() == checked.training_loss());
  CHECK(distance(faulty.gradients(), theirs) > 1e-2);
}

TEST_CASE("a value made again in the backward has the mask it had") {
  using Kind = eng::Recompute::Kind;
  Checked plain(sketch_of(0.3), B, T, V, 2);
  const Values gradients = plain.gradients();
  for (const eng::Recompute& how :
       {eng::Recompute{Kind::full}, {Kind::every, 2}, {Kind::blocks, 1}, {Kind::blocks, 2}}) {
    Checked again(sketch_of(0.3), B, T, V, 2, [&](eng::Model& m) { eng::recompute(m, how); });
    CHECK((again.gradients() == gradients));
    CHECK(streams(again.plan(), "train").size() > streams(plain.plan(), "train").size());
    // Another mask would be seen.
    Checked faulty(sketch_of(0.3), B, T, V, 2, [&](eng::Model& m) {
      eng::recompute(m, how);
      eng::Template& t = m.templates.rbegin()->second;
      for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
        for (auto& a : t.graph.nodes[n].attrs.list)
          if (a.key == "site") a.i += 20;
    });
    CHECK((faulty.gradients() != gradients));
  }
}

TEST_CASE("every use of dropout has a stream of its own") {
  const Checked checked(sketch_of(0.3), B, T, V);
  const std::vector<int64_t> all = streams(checked.plan(), "train");
  REQUIRE(all.size() == 8);
  CHECK(std::set<int64_t>(all.begin(), all.begin() + 4).size() == 4);
  CHECK(std::vector<int64_t>(all.rbegin(), all.rbegin() + 4) == std::vector<int64_t>(all.begin(), all.begin() + 4));
}

TEST_CASE("dropout is left out of evaluation, and of training where p is 0") {
  Checked with(sketch_of(0.3), B, T, V), without(sketch_of(0.0), B, T, V);
  CHECK(streams(with.plan(), "eval").empty());
  CHECK(streams(without.plan(), "train").empty());
  CHECK(with.loss() == without.loss());
  CHECK(without.training_loss() == without.loss());
  CHECK(with.training_loss() != with.loss());
}

TEST_CASE("dropout does not change with the cut of the batch") {
  Checked whole(sketch_of(0.3), 8, T, V, 1), parts(sketch_of(0.3), 2, T, V, 4);
  REQUIRE(whole.tokens() == parts.tokens());
  double loss = 0, loss_of_parts = 0;
  const Values gradients = whole.gradients(&loss), of_parts = parts.gradients(&loss_of_parts);
  CHECK(loss_of_parts == Approx(loss).epsilon(1e-12));
  CHECK(distance(of_parts, gradients) < 1e-12);
}

TEST_CASE("a random op beyond the numbers that tell a block's ops apart is refused") {
  Sketch s = sketch_of(0.3);
  const auto trace = s.trace;
  s.trace = [trace](eng_build* b, uint32_t tmpl, const eng_id* params, const std::vector<eng_id>& in) {
    std::vector<eng_id> x = in;
    if (tmpl == 1)
      for (int k = 0; k < 4096; ++k) x[0] = eng_scale(b, x[0], 1.0);
    return trace(b, tmpl, params, x);
  };
  CHECK_THROWS_WITH(s.model(B, T, ENG_F64), Catch::Contains("random ops must be among the first 4096 ops of a block"));
}

TEST_CASE("a p that means nothing is refused") {
  for (double p : {1.0, -0.5, std::nan("")})
    CHECK_THROWS_WITH(sketch_of(p).model(B, T, ENG_F64), Catch::Contains("p must be at least 0 and below 1"));
}

}  // namespace dropout_test
