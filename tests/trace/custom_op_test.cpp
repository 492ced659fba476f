// SPDX-License-Identifier: Apache-2.0
// A plugin's own op is planned, differentiated and run like a standard one, and its faults are told.
#include <catch2/catch.hpp>
#include <set>

#include "core/trace/op.hpp"
#include "engine/op.h"
#include "gradient_check.hpp"

using namespace sketch;
using Catch::Contains;

namespace custom_op_test {
namespace {

constexpr int64_t B = 2, T = 3, H = 4, V = 8;

// The stranger's plugin in use, as a run's model would be.
const eng_ops& use_plugin() {
  static const eng_ops table = [] {
    const auto found = registry().table<eng_ops>("org.example.anchor/1", "cube");
    eng::load_ops(registry());
    eng::load_ops(registry());  // to load twice is to load once
    return found;
  }();
  return table;
}

struct Cubes : Sketch {
  std::string op = "org.example.cube.cube/1";
  eng_attr scale = {"scale", 0, 0.4};
  Cubes() {
    use_plugin();
    param("table", {V, H}), param("w", {H, H}), param("head", {V, H});
    blocks = {{"embed", 0, {0}}, {"cubes", 1, {1}}, {"head", 2, {2}}};
    trace = [this](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
      if (tmpl == 2) return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
      // One input with several gradients, and an output that the backward reads.
      const eng_id x = in[0], cubed = eng_emit1(b, op.c_str(), &x, 1, &scale, 1);
      return std::vector{eng_add(b, eng_add(b, eng_linear(b, cubed, p[0], 0), cubed), x)};
    };
  }
  Cubes(const Cubes&) = delete;
  std::string fault(const std::string& name) {
    op = "org.example.cube." + name + "/1";
    try {
      model(B, T, ENG_F64);
      return "";
    } catch (const eng::Error& e) {
      CHECK(e.exit() == eng::Exit::environment);
      return e.what();
    }
  }
};

size_t uses(const eng::Plan& plan, const std::string& program, const std::string& op) {
  size_t n = 0;
  for (const auto& p : plan.programs)
    if (p.name == program)
      for (const auto& s : p.segments)
        for (const auto& action : s.actions) n += plan.calls[action.call].op->id == op;
  return n;
}

}  // namespace

TEST_CASE("a stranger's op is differentiated and run") {
  Cubes cubes;
  Checked checked(cubes, B, T, V);
  const Values ours = checked.gradients(), theirs = checked.differences();
  CHECK(distance(ours, theirs) < 1e-6);
  Values wrong = ours;
  for (double& x : wrong.at("table")) x *= 1.01;
  CHECK(distance(wrong, theirs) > 1e-6);
  CHECK(uses(checked.plan(), "train", "org.example.cube.cube/1") == 2);  // cheap: run again in the backward
  CHECK(uses(checked.plan(), "eval", "org.example.cube.cube/1") == 1);
  for (const eng::Call& call : checked.plan().calls)
    if (std::string(call.op->id) == "org.example.cube.cube/1") CHECK(call.flops == 3.0 * B * T * H);
}

TEST_CASE("the faults of a stranger's op are told with its name") {
  Cubes cubes;
  CHECK(cubes.fault("cube") == "");
  CHECK_THAT(cubes.fault("absent"), Contains("block cubes: unknown op org.example.cube.absent/1"));
  CHECK_THAT(cubes.fault("no_gradient"), Contains("org.example.cube.no_gradient/1 has no gradient"));
  CHECK_THAT(cubes.fault("unknown"), Contains("plugin org.example.cube, op org.example.cube.unknown/1, gradient: "
                                              "unknown op org.example.cube.nothing/1"));
  CHECK_THAT(cubes.fault("misshapen"), Contains("the gradient of input 0 is f64 (4), but the input is f64 (2, 3, 4)"));
  CHECK_THAT(cubes.fault("refusing"), Contains("gradient: not on Sundays"));
  CHECK_THAT(cubes.fault("adrift"), Contains("org.example.cube.adrift/1: rebuild names what is not there"));
  CHECK_THAT(cubes.fault("swollen"), Contains("the output of a random op must have the shape of input 0"));
  cubes.trace = [](eng_build* b, uint32_t, const eng_id* p, const std::vector<eng_id>&) {
    return std::vector{eng_emit1(b, "org.example.cube.cube/1", p, 1, nullptr, 0)};
  };
  CHECK_THAT(cubes.fault("cube"), Contains("org.example.cube.cube/1: x must be (B, T, H) (inputs: f64 (8, 4))"));
}

TEST_CASE("a stranger's random op runs in training only, with a stream for each use") {
  Cubes cubes;
  const std::string jitter = "org.example.cube.jitter/1";
  cubes.trace = [jitter, before = cubes.trace](eng_build* b, uint32_t tmpl, const eng_id* p,
                                               const std::vector<eng_id>& in) {
    if (tmpl != 1) return before(b, tmpl, p, in);
    const eng_id once = eng_emit1(b, jitter.c_str(), in.data(), 1, nullptr, 0);
    const eng_id twice = eng_emit1(b, jitter.c_str(), &once, 1, nullptr, 0);
    return std::vector{eng_add(b, eng_linear(b, in[0], p[0], 0), twice)};
  };
  Checked checked(cubes, B, T, V);
  const Values ours = checked.gradients();
  const Values theirs = checked.differences(5e-4, [&] { return checked.training_loss(); });
  CHECK(distance(ours, theirs) < 1e-6);
  CHECK(checked.training_loss() != checked.loss());
  CHECK(uses(checked.plan(), "train", jitter) == 4);
  CHECK(uses(checked.plan(), "eval", jitter) == 0);
  std::set<int64_t> streams;
  for (const eng::Call& call : checked.plan().calls)
    if (call.op->id == jitter) streams.insert(call.attrs.i("stream"));
  REQUIRE(streams.size() == 2);
  CHECK(*streams.rbegin() - *streams.begin() == 3);  // counts_as
}

TEST_CASE("a stranger's op is made of others, and derived from them or by a rule of its own") {
  Cubes cubes;
  cubes.op = "org.example.cube.both/1";
  Checked checked(cubes, B, T, V, 2);
  const Values ours = checked.gradients(), theirs = checked.differences();
  CHECK(distance(ours, theirs) < 1e-6);
  CHECK(ours == checked.gradients());
  size_t by_rule = 0;
  for (const eng::Call& call : checked.plan().calls) {
    CHECK(!Contains("org.example.cube").match(call.op->id));
    by_rule += call.op->id == std::string(ENG_OP_SCALE) && call.attrs.f("factor") == 4;
  }
  CHECK(by_rule > 0);
  CHECK(Checked(cubes, B, T, V, 1, {}, true).first_difference(1e-11) == T);
}

TEST_CASE("the faults of ops that are made of others are told with their names") {
  Cubes cubes;
  CHECK(cubes.fault("swell") == "");
  CHECK(cubes.fault("straight") == "");
  CHECK_THAT(cubes.fault("endless"),
             Contains("org.example.cube.endless/1 is made of itself, or in more than 16 steps"));
  CHECK_THAT(cubes.fault("endless_node"),
             Contains("org.example.cube.endless_node/1 is made of itself, or of too many"));
  CHECK_THAT(cubes.fault("folded"), Contains("output 0 of expand is f64 (4), but infer says f64 (2, 3, 4)"));
  CHECK_THAT(cubes.fault("made_of_nothing"), Contains("output 0 of expand is no value of this block"));
  CHECK_THAT(cubes.fault("through"), Contains("org.example.cube.through/1: output 0 of expand must be made by one"));
}

TEST_CASE("the rows that a stranger's op reads limit the field of the batch that names them") {
  Cubes cubes;
  CHECK(cubes.model(B, T, ENG_F64).fields[0].limit == V);
  cubes.trace = [before = cubes.trace](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl != 1) return before(b, tmpl, p, in);
    const eng_id ids[2] = {batch(b, "tokens"), p[0]};
    return std::vector{eng_add(b, in[0], eng_emit1(b, "org.example.cube.pick/1", ids, 2, nullptr, 0))};
  };
  CHECK(cubes.model(B, T, ENG_F64).fields[0].limit == H);
}

TEST_CASE("a device without a kernel for a stranger's op says so") {
  Cubes cubes;
  const eng::Model model = cubes.model(B, T, ENG_F32);
  for (const auto& [device, text] :
       {std::pair{"cpu", "device cpu has no kernel for org.example.cube.cube/1"}, std::pair{"reference", "only f64"}}) {
    const eng::Kernels kernels(registry(), device, section("device"));
    const eng::Precision precision = OneDtype{ENG_F32}.policy();
    eng::PlanRequest request{model, precision, nullptr, device, {}};
    request.workspace = [&](const eng::Call& call) { return kernels.workspace(call); };
    CHECK_THROWS_WITH(eng::make_plan(request), Contains(text));
  }
}

}  // namespace custom_op_test
