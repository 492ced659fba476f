// SPDX-License-Identifier: Apache-2.0
// Plugins that misbehave while a model is traced or planned are told what, where and why.
#include <catch2/catch.hpp>

#include "../plan/sketch.hpp"

using namespace sketch;
using Catch::Contains;

namespace errors_test {
namespace {

constexpr int64_t B = 2, T = 4, H = 8, V = 16;
using Outputs = std::vector<eng_id>;

// embed, two equal bodies, head; faults are put into `body` or into the lists.
struct Fixture : Sketch {
  std::function<Outputs(eng_build*, const eng_id* p, const Outputs& in)> body;
  std::function<Outputs(eng_build*, const eng_id* p, const Outputs& in)> head;
  Fixture() {
    param("table", {V, H}), param("w0", {H, H}), param("w1", {H, H}), param("head", {V, H});
    blocks = {{"embed", 0, {0}}, {"body.0", 1, {1}}, {"body.1", 1, {2}}, {"head", 2, {3}}};
    body = [](eng_build* b, const eng_id* p, const Outputs& in) { return Outputs{eng_linear(b, in[0], p[0], 0)}; };
    head = [](eng_build* b, const eng_id* p, const Outputs& in) {
      return Outputs{eng_cross_entropy(b, in[0], p[0], sketch::batch(b, "labels"))};
    };
    trace = [this](eng_build* b, uint32_t tmpl, const eng_id* p, const Outputs& in) {
      if (tmpl == 0) return Outputs{eng_embedding(b, sketch::batch(b, "tokens"), p[0])};
      return tmpl == 1 ? body(b, p, in) : head(b, p, in);
    };
  }
  Fixture(const Fixture&) = delete;
  // The error of tracing it; "" if nothing is wrong.
  std::string fault(int32_t dtype = ENG_F32) const {
    try {
      model(B, T, dtype);
      return "";
    } catch (const eng::Error& e) {
      return e.what();
    }
  }
};

eng_id emit(eng_build* b, const char* op, Outputs in, uint32_t n_out = 1, eng_id into = 0) {
  eng_id out[8] = {into};
  b->api->emit(b, op, in.data(), static_cast<uint32_t>(in.size()), out, n_out, nullptr, 0, nullptr);
  return out[0];
}

}  // namespace

TEST_CASE("the model without a fault is traced") {
  Fixture f;
  CHECK(f.fault() == "");
  const eng::Model model = f.model(B, T, ENG_F32);
  CHECK(model.templates.size() == 3);
  CHECK(model.blocks.size() == 4);
  CHECK(model.parameter_count() == 2 * V * H + 2 * H * H);
}

TEST_CASE("what a trace does wrong is named with its block and op") {
  Fixture f;
  SECTION("shapes that do not fit") {
    f.params[1].dims = {H, H + 1};
    CHECK_THAT(f.fault(), Contains("model sketch, block body.0") &&
                              Contains("eng.linear/1: x (..., K) needs w (N, K)") && Contains("(8, 9)"));
  }
  SECTION("an op that does not exist") {
    f.body = [](auto* b, auto*, auto& in) { return Outputs{emit(b, "org.example.scan/1", {in[0]})}; };
    CHECK_THAT(f.fault(), Contains("block body.0") && Contains("unknown op org.example.scan/1"));
  }
  SECTION("too few inputs, and a missing one") {
    f.body = [](auto* b, auto*, auto& in) { return Outputs{emit(b, ENG_OP_ADD, {in[0]})}; };
    CHECK_THAT(f.fault(), Contains("eng.add/1 takes 2 to 2 inputs, 1 given"));
    f.body = [](auto* b, auto*, auto& in) { return Outputs{emit(b, ENG_OP_ADD, {in[0], 0})}; };
    CHECK_THAT(f.fault(), Contains("eng.add/1: input 1 is missing"));
  }
  SECTION("more outputs than there are") {
    f.body = [](auto* b, auto*, auto& in) { return Outputs{emit(b, ENG_OP_ADD, {in[0], in[0]}, 3)}; };
    CHECK_THAT(f.fault(), Contains("eng.add/1 has 1 outputs for these inputs, 3 were asked for"));
  }
  SECTION("a value of another trace") {
    f.body = [](auto* b, auto*, auto&) { return Outputs{emit(b, ENG_OP_ADD, {1000, 1000})}; };
    CHECK_THAT(f.fault(), Contains("block body.0: no such value"));
    f.body = [](auto*, auto*, auto&) { return Outputs{1000}; };
    CHECK_THAT(f.fault(), Contains("block body.0: output 0 is not a value of this trace"));
  }
  SECTION("an op told where to write") {
    f.body = [](auto* b, auto*, auto& in) { return Outputs{emit(b, ENG_OP_ADD, {in[0], in[0]}, 1, in[0])}; };
    CHECK_THAT(f.fault(), Contains("eng.add/1: a model cannot choose where an op writes"));
  }
  SECTION("the first error stays, whatever comes after") {
    f.body = [](auto* b, auto* p, auto& in) {
      const eng_id bad = emit(b, "first/1", {in[0]});
      emit(b, "second/1", {bad});
      return Outputs{eng_linear(b, bad, p[0], 0)};
    };
    CHECK_THAT(f.fault(), Contains("first/1") && !Contains("second/1"));
  }
  SECTION("no output, and too many") {
    f.body = [](auto*, auto*, auto&) { return Outputs{}; };
    CHECK_THAT(f.fault(), Contains("block body.0: trace gave no output"));
    f.body = [](auto*, auto*, auto& in) { return Outputs(9, in[0]); };
    CHECK_THAT(f.fault(), Contains("block body.0") && Contains("9 outputs"));
  }
  SECTION("a batch part and a constant that do not exist") {
    f.body = [](auto* b, auto*, auto&) { return Outputs{sketch::batch(b, "weights")}; };
    CHECK_THAT(f.fault(), Contains("the batch has no `weights`"));
    f.body = [](auto* b, auto*, auto& in) {
      const eng_desc desc = {ENG_F64, 1, {1}};
      const double one = 1;
      eng_id id = 0;
      b->api->constant(b, &desc, &one, &id, nullptr);
      return Outputs{in[0]};
    };
    CHECK_THAT(f.fault(), Contains("constants are f32 or i32"));
  }
  SECTION("a parameter declared in trace") {
    f.body = [](auto* b, auto*, auto& in) {
      const int64_t n = 4;
      const eng_param p = {sizeof(eng_param), 0, "late", ENG_OP_INIT_CONSTANT, nullptr, &n, 0, 1};
      eng_id id = 0;
      b->api->param(b, &p, &id, nullptr);
      return Outputs{in[0]};
    };
    CHECK_THAT(f.fault(), Contains("block body.0") && Contains("declaring a parameter is not allowed in this phase"));
  }
  SECTION("the plugin's own refusal") {
    f.trace_status = ENG_INVALID;
    CHECK_THAT(f.fault(), Contains("model sketch, block embed: the sketch gave up"));
  }
}

TEST_CASE("a model whose parts do not fit together is refused") {
  Fixture f;
  SECTION("the last op is no loss") {
    f.head = [](auto* b, auto* p, auto& in) { return Outputs{eng_linear(b, in[0], p[0], 0)}; };
    CHECK_THAT(f.fault(), Contains("the model's last op must be eng.cross_entropy/1, not eng.linear/1"));
  }
  SECTION("the last block passes a loss on") {
    f.params[2].dims = {V, H};
    f.blocks[2].tmpl = 3;
    f.trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const Outputs& in) {
      if (tmpl == 0) return Outputs{eng_embedding(b, sketch::batch(b, "tokens"), p[0])};
      if (tmpl == 1) return Outputs{eng_linear(b, in[0], p[0], 0)};
      if (tmpl == 3) return Outputs{eng_cross_entropy(b, in[0], p[0], sketch::batch(b, "labels"))};
      return Outputs{in[0]};
    };
    CHECK_THAT(f.fault(), Contains("eng.cross_entropy/1"));
  }
  SECTION("a loss before the last block") {
    f.trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const Outputs& in) {
      if (tmpl == 0) return Outputs{eng_embedding(b, sketch::batch(b, "tokens"), p[0])};
      const eng_id loss = eng_cross_entropy(b, in[0], p[0], sketch::batch(b, "labels"));
      if (tmpl == 1) return Outputs{eng_linear(b, in[0], p[0], 0), loss};
      return Outputs{loss};
    };
    f.blocks.erase(f.blocks.begin() + 2);
    f.params.erase(f.params.begin() + 2);
    f.blocks.back().params = {2};
    CHECK_THAT(f.fault(), Contains("eng.cross_entropy/1") && Contains("body.0"));
  }
  SECTION("two outputs at the end") {
    f.head = [](auto* b, auto* p, auto& in) {
      const eng_id loss = eng_cross_entropy(b, in[0], p[0], sketch::batch(b, "labels"));
      return Outputs{loss, in[0]};
    };
    CHECK_THAT(f.fault(), Contains("the last block must output only the loss"));
  }
  SECTION("one template, other shapes") {
    f.params[2].dims = {H + 2, H};
    CHECK_THAT(f.fault(), Contains("block body.1 names template 1, but its shapes differ"));
  }
  SECTION("one template, other inputs") {
    f.params[1].dims = {2 * H, H}, f.params[2].dims = {2 * H, H};
    CHECK_THAT(f.fault(), Contains("block body.1 names template 1, but its shapes differ"));
  }
  SECTION("one template, another number of parameters") {
    f.blocks[2].params = {2, 1};
    CHECK_THAT(f.fault(), Contains("block body.1 names template 1, but its shapes differ"));
  }
  SECTION("one template, one of two parameters stays fp32") {
    f.params[2].flags = ENG_PARAM_FP32;
    CHECK_THAT(f.fault(ENG_F64), Contains("block body.1 names template 1, but its shapes differ"));
  }
  SECTION("parameters") {
    f.params[1].name = "table";
    CHECK_THAT(f.fault(), Contains("parameter table is declared twice"));
    f.params[1].name = "";
    CHECK_THAT(f.fault(), Contains("the name of a parameter is empty"));
    f.params[1].name = "w0", f.params[1].dims = {};
    CHECK_THAT(f.fault(), Contains("parameter w0 has no dimensions"));
    f.params[1].dims = {int64_t{1} << 40, int64_t{1} << 40};
    CHECK_THAT(f.fault(), Contains("more than 2^63 elements"));
    // One without elements may be declared, but nothing can be computed with it.
    f.params[1].dims = f.params[2].dims = {0, H};
    CHECK_THAT(f.fault(), Contains("block body.0: eng.linear/1: input 1 has no elements"));
    f.params[1].dims = f.params[2].dims = {H, H}, f.params[1].init = "org.example.fill/1";
    CHECK_THAT(f.fault(), Contains("parameter w0 has an unknown init op: org.example.fill/1"));
  }
  SECTION("no blocks") {
    f.blocks.clear();
    CHECK_THAT(f.fault(), Contains("declares no blocks"));
  }
}

namespace {

// An optimizer with one fault.
struct Faulty {
  enum Fault { none, elsewhere, other_shape, unknown_op, wide_weight, many_scalars, many_states } fault;
  static eng_status states(void* self, eng_state_rule* out, uint32_t, uint32_t* n, eng_error*) {
    out[0] = {"momentum_buffer", ENG_F32, 0, nullptr};
    *n = static_cast<Faulty*>(self)->fault == many_states ? 17 : 1;
    return ENG_OK;
  }
  static eng_status scalars(void* self, uint64_t, float* out, uint32_t, uint32_t* n, eng_error*) {
    out[0] = 1.0f;
    *n = static_cast<Faulty*>(self)->fault == many_scalars ? 8 : 1;
    return ENG_OK;
  }
  static eng_status update(void* self, eng_build* b, const eng_update* u, eng_error*) {
    const Fault fault = static_cast<Faulty*>(self)->fault;
    const eng_attr attrs[4] = {
        {"momentum", 0, 0.9}, {"weight_decay", 0, 0.0}, {"nesterov", 0, 0.0}, {"weight", ENG_F64, 0}};
    const eng_id in[4] = {u->master, u->grad, u->states[0], u->scalars};
    eng_id out[3] = {u->master, u->states[0], 0};
    const uint32_t more = fault == wide_weight;
    if (fault == elsewhere) out[1] = u->grad;
    if (fault == other_shape) out[0] = u->scalars;
    b->api->emit(b, fault == unknown_op ? "org.example.step/1" : ENG_OP_SGD, in, 4, out, 2 + more, attrs, 3 + more,
                 nullptr);
    return ENG_OK;
  }
  std::string planned(const eng::Precision& precision = OneDtype{ENG_F32}.policy()) {
    const eng_optimizer table = {sizeof(eng_optimizer), 1, nullptr, nullptr, states, scalars, update};
    const eng::Optimizer optimizer{
        "faulty", table, std::make_shared<Faulty>(*this), {std::make_shared<eng::Optimizer::Group>(eng::Section())}};
    const Fixture f;
    const eng::Model model = f.model(B, T, ENG_F32);
    try {
      eng::make_plan({model, precision, &optimizer, "reference", {}});
      return "";
    } catch (const eng::Error& e) {
      return e.what();
    }
  }
};

}  // namespace

TEST_CASE("policies that overstep are refused") {
  CHECK(Faulty{Faulty::none}.planned() == "");
  CHECK_THAT(Faulty{Faulty::elsewhere}.planned(),
             Contains("optimizer faulty") && Contains("eng.sgd/1 works in place: output 1 must be input 2"));
  CHECK_THAT(Faulty{Faulty::other_shape}.planned(), Contains("optimizer faulty") && Contains("cannot be written into"));
  CHECK_THAT(Faulty{Faulty::unknown_op}.planned(), Contains("optimizer faulty: unknown op org.example.step/1"));
  CHECK_THAT(Faulty{Faulty::wide_weight}.planned(),
             Contains("optimizer faulty: eng.sgd/1: the weight that it writes must be bf16 or f16, and p f32"));
  CHECK_THAT(Faulty{Faulty::many_scalars}.planned(), Contains("optimizer faulty gave more than 7 scalars"));
  CHECK_THAT(Faulty{Faulty::many_states}.planned(), Contains("optimizer faulty has 17 states, the limit is 16"));
  CHECK_THAT(Faulty{Faulty::none}.planned(OneDtype{ENG_F32, true}.policy()),
             Contains("precision one changed another axis than its own"));
}

TEST_CASE("a parameter without a block and an op without a kernel are refused while planning") {
  Fixture f;
  f.param("stray", {H});
  const eng::Model model = f.model(B, T, ENG_F32);
  const eng::Precision precision = OneDtype{ENG_F32}.policy();
  CHECK_THROWS_WITH(eng::make_plan({model, precision, nullptr, "reference", {}}),
                    Contains("parameter stray belongs to no block"));
  const Fixture good;
  const eng::Model fine = good.model(B, T, ENG_F32);
  eng::PlanRequest request{fine, precision, nullptr, "reference", {}};
  request.workspace = [](const eng::Call& call) -> uint64_t {
    if (std::string(call.op->id) == ENG_OP_CROSS_ENTROPY_GRAD)
      throw eng::Error(eng::Exit::environment, "no kernel for " + std::string(call.op->id));
    return 0;
  };
  CHECK_THROWS_WITH(eng::make_plan(request), Contains("no kernel for eng.cross_entropy_grad/1"));
}

}  // namespace errors_test
