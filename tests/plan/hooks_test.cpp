// SPDX-License-Identifier: Apache-2.0
// Activations that a plan keeps: one copy after the op, in the last micro-batch, whatever runs twice.
#include <catch2/catch.hpp>

#include "core/plan/plan.hpp"
#include "session/model/activations.hpp"
#include "sketch.hpp"

using namespace sketch;
using Catch::Contains;

namespace hooks_test {
namespace {

struct Chain : Sketch {
  Chain() {
    param("table", {8, 4}), param("a", {4, 4}), param("b", {4, 4}), param("head", {8, 4});
    blocks = {{"embed", 0, {0}}, {"layers.0", 1, {1}}, {"layers.1", 1, {2}}, {"head", 2, {3}}};
    trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
      if (tmpl == 1) return std::vector{eng_activation(b, eng_linear(b, in[0], p[0], 0), ENG_ACT_RELU)};
      return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
    };
  }
};

struct Asked {
  std::vector<std::string> names;
  uint32_t accumulate = 1;
  bool again = false;  // the backward runs both layers again
};

eng::Plan plan(const Asked& asked) {
  const Chain chain;
  eng::Model model = chain.model(2, 3, ENG_F32);
  if (asked.again) model.blocks[1].recomputed = true;
  const eng::Precision precision = OneDtype{ENG_F32}.policy();
  eng::PlanRequest request{model, precision, nullptr, "cpu", {}};
  request.accumulate = asked.accumulate;
  request.activations = eng::select_activations(model, asked.names);
  return eng::make_plan(request);
}

// The ops of a segment; "copy NAME" for one into a tensor that is kept.
std::vector<std::string> ops(const eng::Plan& plan, const eng::Segment& segment) {
  std::vector<std::string> out;
  for (const auto& action : segment.actions) {
    out.push_back(plan.calls[action.call].op->id);
    for (const eng::Tensor& t : plan.tensors)
      if (t.role == "activation" && action.out[0].buffer == t.ranges[0].view.buffer) out.back() = "copy " + t.name;
  }
  return out;
}

std::vector<std::string> without_copies(std::vector<std::string> ops) {
  std::erase_if(ops, [](const std::string& op) { return op.starts_with("copy "); });
  return ops;
}

std::string fault(const Asked& asked) {
  try {
    plan(asked);
    return "";
  } catch (const eng::Error& e) {
    return std::string(e.what()) + "; " + e.help();
  }
}

}  // namespace

TEST_CASE("activations have the names of their block and op, and of the block's outputs") {
  const Chain chain;
  std::vector<std::string> names;
  for (const eng::Activation& one : eng::activations_of(chain.model(2, 3, ENG_F32)))
    names.insert(names.end(), one.names.begin(), one.names.end());
  // The loss is computed with its gradient.
  CHECK(names == std::vector<std::string>{"embed.embedding.0", "embed.output", "layers.0.linear.0",
                                          "layers.0.activation.0", "layers.0.output", "layers.1.linear.0",
                                          "layers.1.activation.0", "layers.1.output"});
}

TEST_CASE("an activation is copied once, right after its op") {
  for (const bool again : {false, true}) {
    INFO("again " << again);
    const eng::Plan made = plan({{"layers.*.linear.0"}, 1, again}), plain = plan({{}, 1, again});
    REQUIRE(made.sites.size() == 2);
    const eng::Tensor* kept = made.find("layers.1.linear.0", "activation");
    REQUIRE(kept);
    CHECK(eng::describe(kept->desc) == "f32 (2, 3, 4)");
    CHECK(made.buffer(kept->whole().buffer).persistent);
    CHECK(made.buffer(kept->whole().buffer).line == eng::Line::activations);
    const std::vector<std::string> train = ops(made, made.program("train").segments[0]);
    for (const char* copy : {"copy layers.0.linear.0", "copy layers.1.linear.0"}) {
      REQUIRE(std::count(train.begin(), train.end(), copy) == 1);
      CHECK(*(std::find(train.begin(), train.end(), copy) - 1) == ENG_OP_LINEAR);
    }
    CHECK(without_copies(train) == ops(plain, plain.program("train").segments[0]));
    // Evaluations keep them by a program of their own.
    const auto eval = [](const eng::Plan& of, const char* name) { return ops(of, of.program(name).segments[0]); };
    CHECK(eval(made, "eval") == eval(plain, "eval"));
    CHECK(without_copies(eval(made, eng::eval_with_sites)) == eval(plain, "eval"));
    CHECK(eval(made, eng::eval_with_sites).size() == eval(plain, "eval").size() + 2);
    CHECK_THROWS(plain.program(eng::eval_with_sites));
  }
}

TEST_CASE("of several micro-batches the last one is kept") {
  const eng::Plan made = plan({{"layers.0.output"}, 3});
  const auto& segments = made.program("train").segments;
  REQUIRE(segments.size() >= 2);
  const auto copies = [&](size_t k) {
    const auto all = ops(made, segments[k]);
    return std::count(all.begin(), all.end(), "copy layers.0.output");
  };
  CHECK((copies(0) == 0 && copies(1) == 1));
}

TEST_CASE("two names of one value are one tensor in memory") {
  const eng::Plan made = plan({{"layers.0.*"}});
  CHECK(made.sites.size() == 2);
  REQUIRE(made.find("layers.0.output", "activation"));
  CHECK(made.find("layers.0.output", "activation")->whole().buffer ==
        made.find("layers.0.activation.0", "activation")->whole().buffer);
  CHECK_FALSE(made.find("layers.1.output", "activation"));
}

TEST_CASE("a name that is no activation is refused with the nearest ones") {
  CHECK(fault({{"*"}}) == "");
  CHECK_THAT(fault({{"embed.output", "layers.*.linaer.0"}}),
             Contains("`layers.*.linaer.0` matches no activation of sketch") && Contains("layers.0.linear.0"));
  CHECK_THAT(fault({{""}}), Contains("matches no activation"));
  CHECK_THAT(fault({{"head.cross_entropy.0"}}), Contains("is computed with its gradient"));
}

}  // namespace hooks_test
