// SPDX-License-Identifier: Apache-2.0
// Every gradient of awkward little models against differences of their loss, in f64.
#include <catch2/catch.hpp>

#include "tests/trace/gradient_check.hpp"

using namespace sketch;

namespace {

constexpr int64_t B = 2, T = 3, H = 4, V = 5;
constexpr double limit = 1e-6, eps = 1e-5;

// One body between a lookup (template 0) and a loss (template 99): (inputs, parameters) -> outputs.
using Body = std::function<std::vector<eng_id>(eng_build*, const eng_id* p, const std::vector<eng_id>& in)>;

struct Case {
  const char* name;
  std::vector<std::vector<int64_t>> params;  // of the bodies
  struct Use {
    Body body;
    std::vector<uint32_t> params;
  };
  std::vector<Use> bodies;
  bool tied_head = false;
  Body head = {};  // what the last block makes of its inputs before the loss; by default their sum
};

eng_id sum(eng_build* b, const std::vector<eng_id>& in) {
  eng_id all = in[0];
  for (size_t k = 1; k < in.size(); ++k) all = eng_add(b, all, in[k]);
  return all;
}

Sketch sketch_of(const Case& c) {
  Sketch s;
  const uint32_t table = s.param("table", {V, H});
  s.blocks.push_back({"embed", 0, {table}});
  for (size_t k = 0; k < c.params.size(); ++k) s.param("p" + std::to_string(k), c.params[k]);
  for (size_t k = 0; k < c.bodies.size(); ++k) {
    Sketch::Block block{"body." + std::to_string(k), static_cast<uint32_t>(k + 1), {}};
    for (uint32_t p : c.bodies[k].params) block.params.push_back(p + 1);
    s.blocks.push_back(block);
  }
  const uint32_t head = c.tied_head ? table : s.param("head", {V, H});
  s.blocks.push_back({"head", 99, {head, s.param("norm", {H})}});
  s.trace = [c](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl == 0) return std::vector<eng_id>{eng_embedding(b, batch(b, "tokens"), p[0])};
    if (tmpl < 99) return c.bodies[tmpl - 1].body(b, p, in);
    const eng_id x = c.head ? c.head(b, p, in)[0] : sum(b, in);
    return std::vector<eng_id>{eng_cross_entropy(b, eng_rms_norm(b, x, p[1], eps), p[0], batch(b, "labels"))};
  };
  return s;
}

// A rotation table of some angles.
eng_id angles(eng_build* b, int64_t length, int64_t size) {
  std::vector<float> data;
  for (int64_t t = 0; t < length; ++t)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t j = 0; j < size / 2; ++j) {
        const double angle = 0.3 * static_cast<double>((t + 1) * (j + 1));
        data.push_back(static_cast<float>(half ? std::sin(angle) : std::cos(angle)));
      }
  const eng_desc desc = {ENG_F32, 2, {length, size}};
  eng_id id = 0;
  b->api->constant(b, &desc, data.data(), &id, nullptr);
  return id;
}

const std::vector<int64_t> square = {H, H}, vector = {H};

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back(
      {"linear with a bias",
       {square, vector},
       {{[](auto* b, auto* p, auto& in) { return std::vector<eng_id>{eng_linear(b, in[0], p[0], p[1])}; }, {0, 1}}}});
  all.push_back({"a value used three times",
                 {square, square, square},
                 {{[](auto* b, auto* p, auto& in) {
                     const eng_id a = eng_linear(b, in[0], p[0], 0);
                     return std::vector<eng_id>{
                         eng_add(b, eng_add(b, a, eng_linear(b, a, p[1], 0)), eng_linear(b, a, p[2], 0))};
                   },
                   {0, 1, 2}}}});
  all.push_back({"add of a value to itself",
                 {square},
                 {{[](auto* b, auto* p, auto& in) {
                     const eng_id a = eng_linear(b, in[0], p[0], 0), twice = eng_add(b, a, a);
                     return std::vector<eng_id>{eng_add(b, twice, a)};
                   },
                   {0}}}});
  all.push_back({"parameters used twice in one block",
                 {square, vector, vector},
                 {{[](auto* b, auto* p, auto& in) {
                     const eng_id a = eng_linear(b, eng_rms_norm(b, in[0], p[1], eps), p[0], p[2]);
                     return std::vector<eng_id>{eng_linear(b, eng_rms_norm(b, a, p[1], eps), p[0], p[2])};
                   },
                   {0, 1, 2}}}});
  all.push_back({"a parameter listed twice by one block",
                 {square},
                 {{[](auto* b, auto* p, auto& in) {
                     return std::vector<eng_id>{eng_linear(b, eng_linear(b, in[0], p[0], 0), p[1], 0)};
                   },
                   {0, 0}}}});
  const Body tied_body = [](auto* b, auto* p, auto& in) {
    return std::vector<eng_id>{eng_linear(b, eng_rms_norm(b, in[0], p[1], eps), p[0], p[2])};
  };
  all.push_back(
      {"parameters shared by two blocks", {square, vector, vector}, {{tied_body, {0, 1, 2}}, {tied_body, {0, 1, 2}}}});
  all.push_back({"embedding and head tied", {square, vector, vector}, {{tied_body, {0, 1, 2}}}, true});
  all.push_back({"a second lookup in the tied table",
                 {{V, H}},
                 {{[](auto* b, auto* p, auto& in) {
                     const eng_id t = batch(b, "tokens");
                     return std::vector<eng_id>{
                         eng_add(b, eng_add(b, in[0], eng_embedding(b, t, p[0])), eng_embedding(b, t, p[0]))};
                   },
                   {0}}},
                 true});
  const Body stream = [](auto* b, auto* p, auto& in) {
    eng_id s = 0;
    const eng_id n = eng_add_rms_norm(b, in[0], in.size() > 1 ? in[1] : in[0], p[0], eps, &s);
    return std::vector<eng_id>{eng_linear(b, n, p[1], 0), s};
  };
  all.push_back({"a residual stream through three blocks",
                 {vector, square, vector, square, vector, square},
                 {{stream, {0, 1}}, {stream, {2, 3}}, {stream, {4, 5}}}});
  all.push_back({"a residual stream with two consumers",
                 {vector, square, square},
                 {{[](auto* b, auto* p, auto& in) {
                     eng_id s = 0;
                     const eng_id n = eng_add_rms_norm(b, eng_linear(b, in[0], p[1], 0), in[0], p[0], eps, &s);
                     return std::vector<eng_id>{eng_add(b, eng_linear(b, n, p[2], 0), s), eng_linear(b, s, p[1], 0)};
                   },
                   {0, 1, 2}}}});
  all.push_back({"only the sum of a norm is used",
                 {vector, square},
                 {{[](auto* b, auto* p, auto& in) {
                     eng_id s = 0;
                     eng_add_rms_norm(b, eng_linear(b, in[0], p[1], 0), in[0], p[0], eps, &s);
                     return std::vector<eng_id>{s};
                   },
                   {0, 1}}}});
  all.push_back({"only the norm of a sum is used",
                 {vector, square},
                 {{[](auto* b, auto* p, auto& in) {
                     eng_id s = 0;
                     return std::vector<eng_id>{
                         eng_add_rms_norm(b, eng_linear(b, in[0], p[1], 0), in[0], p[0], eps, &s)};
                   },
                   {0, 1}}}});
  // Both outputs get one gradient from the sum in the head; here one of them wants to change it in place first.
  const Body two = [](auto* b, auto* p, auto& in) {
    const eng_id w = eng_linear(b, in[0], p[0], 0);
    return std::vector<eng_id>{w, eng_rope(b, eng_linear(b, in[0], p[1], 0), angles(b, T, H / 2), 2)};
  };
  all.push_back({"two outputs that are added up", {square, square}, {{two, {0, 1}}}});
  all.push_back({"one value put out twice",
                 {square},
                 {{[](auto* b, auto* p, auto& in) {
                     const eng_id a = eng_linear(b, in[0], p[0], 0);
                     return std::vector<eng_id>{a, a};
                   },
                   {0}}}});
  all.push_back({"an input passed through",
                 {square, square},
                 {{[](auto* b, auto* p, auto& in) {
                     return std::vector<eng_id>{in[0], eng_linear(b, in[0], p[0], 0)};
                   },
                   {0}},
                  {[](auto* b, auto* p, auto& in) {
                     return std::vector<eng_id>{in[1], eng_linear(b, in[0], p[0], 0), in[0]};
                   },
                   {1}}}});
  for (uint32_t used : {0u, 1u})
    all.push_back({used ? "the first output unused" : "the second output unused",
                   {square, square},
                   {{two, {0, 1}}},
                   false,
                   [used](auto*, auto*, auto& in) { return std::vector<eng_id>{in[used]}; }});
  all.push_back(
      {"unused parameters",
       {square, square, vector},
       {{[](auto* b, auto* p, auto& in) { return std::vector<eng_id>{eng_linear(b, in[0], p[1], 0)}; }, {0, 1, 2}}}});
  all.push_back(
      {"a parameter that only the second of its blocks uses",
       {square, square},
       {{[](auto* b, auto* p, auto& in) { return std::vector<eng_id>{eng_linear(b, in[0], p[1], 0)}; }, {0, 1}},
        {[](auto* b, auto* p, auto& in) { return std::vector<eng_id>{eng_linear(b, in[0], p[0], 0)}; }, {0}}}});
  all.push_back({"a value that nobody uses",
                 {square, square},
                 {{[](auto* b, auto* p, auto& in) {
                     eng_linear(b, in[0], p[1], 0);
                     return std::vector<eng_id>{eng_linear(b, in[0], p[0], 0)};
                   },
                   {0, 1}}}});
  all.push_back({"grouped attention with rotation",
                 {square, {H / 2, H}, {H / 2, H}, {H / 2}},
                 {{[](auto* b, auto* p, auto& in) {
                     const eng_id table = angles(b, T, H / 2);
                     const eng_id q = eng_rope(b, eng_linear(b, in[0], p[0], 0), table, 2);
                     const eng_id k = eng_rope(b, eng_linear(b, in[0], p[1], p[3]), table, 1);
                     return std::vector<eng_id>{eng_attention(b, q, k, eng_linear(b, in[0], p[2], 0), 2, 1, 0.7)};
                   },
                   {0, 1, 2, 3}}}});
  all.push_back({"attention of a value to itself",
                 {},
                 {{[](auto* b, auto*, auto& in) {
                     return std::vector<eng_id>{eng_add(b, in[0], eng_attention(b, in[0], in[0], in[0], 2, 2, 0.7))};
                   },
                   {}}}});
  for (int64_t act : {ENG_ACT_SILU, ENG_ACT_GELU, ENG_ACT_GELU_TANH, ENG_ACT_RELU})
    all.push_back({"a gate of each kind",
                   {square, square},
                   {{[act](auto* b, auto* p, auto& in) {
                       const eng_id up = eng_linear(b, in[0], p[1], 0);
                       const eng_id y = eng_gated(b, eng_linear(b, in[0], p[0], 0), up, act);
                       return std::vector<eng_id>{eng_add(b, y, up)};
                     },
                     {0, 1}}}});
  all.push_back(
      {"a gate of a value by itself",
       {},
       {{[](auto* b, auto*, auto& in) { return std::vector<eng_id>{eng_gated(b, in[0], in[0], ENG_ACT_SILU)}; }, {}}}});
  all.push_back({"a norm of a value added to itself",
                 {vector},
                 {{[](auto* b, auto* p, auto& in) {
                     eng_id s = 0;
                     const eng_id n = eng_add_rms_norm(b, in[0], in[0], p[0], eps, &s);
                     return std::vector<eng_id>{n, eng_add(b, s, in[0])};
                   },
                   {0}}}});
  // layer_norm with all, some and none of its optional inputs; its sum used and unused.
  const Body post = [](auto* b, auto* p, auto& in) {
    eng_id s = 0;
    const eng_id n = eng_add_layer_norm(b, eng_linear(b, in[0], p[0], p[1]), in[0], p[2], p[3], eps, &s);
    return std::vector<eng_id>{eng_add_layer_norm(b, eng_linear(b, n, p[0], 0), n, p[2], 0, eps, &s)};
  };
  all.push_back({"layer norms after each sum", {square, vector, vector, vector}, {{post, {0, 1, 2, 3}}}});
  all.push_back({"layer norms after each sum, twice",
                 {square, vector, vector, vector},
                 {{post, {0, 1, 2, 3}}, {post, {0, 1, 2, 3}}}});
  all.push_back({"layer norms before",
                 {square, vector, vector, square},
                 {{[](auto* b, auto* p, auto& in) {
                     eng_id s = 0;
                     const eng_id n = eng_layer_norm(b, in[0], p[1], p[2], eps);
                     const eng_id m = eng_add_layer_norm(b, eng_linear(b, n, p[0], 0), in[0], p[1], p[2], eps, &s);
                     return std::vector<eng_id>{eng_add(b, eng_linear(b, m, p[3], 0), s)};
                   },
                   {0, 1, 2, 3}}}});
  all.push_back(
      {"one parameter as weight and bias of a layer norm",
       {vector},
       {{[](auto* b, auto* p, auto& in) { return std::vector<eng_id>{eng_layer_norm(b, in[0], p[0], p[0], eps)}; },
         {0}}}});
  all.push_back({"layer norms without parameters",
                 {square},
                 {{[](auto* b, auto* p, auto& in) {
                     eng_id s = 0;
                     const eng_id n = eng_layer_norm(b, in[0], 0, 0, eps);
                     const eng_id m = eng_add_layer_norm(b, eng_linear(b, n, p[0], 0), n, 0, 0, eps, &s);
                     eng_add_layer_norm(b, m, n, 0, 0, eps, &s);
                     return std::vector<eng_id>{m, s};
                   },
                   {0}}}});
  for (int64_t act : {ENG_ACT_SILU, ENG_ACT_GELU, ENG_ACT_GELU_TANH, ENG_ACT_RELU})
    all.push_back({"an activation of each kind",
                   {square, square},
                   {{[act](auto* b, auto* p, auto& in) {
                       const eng_id x = eng_linear(b, in[0], p[0], 0);
                       const eng_id y = eng_linear(b, eng_activation(b, x, act), p[1], 0);
                       return std::vector<eng_id>{y, eng_activation(b, eng_scale(b, x, 0.7), act)};
                     },
                     {0, 1}}}});
  all.push_back({"positions in one table, twice",
                 {{T + 3, H}},
                 {{[](auto* b, auto* p, auto& in) {
                     return std::vector<eng_id>{eng_positions(b, eng_positions(b, in[0], p[0], 2), p[0], 0)};
                   },
                   {0}}}});
  all.push_back(
      {"positions in two blocks",
       {{T + 3, H}},
       {{[](auto* b, auto* p, auto& in) { return std::vector<eng_id>{eng_positions(b, in[0], p[0], 2)}; }, {0}},
        {[](auto* b, auto* p, auto& in) { return std::vector<eng_id>{eng_positions(b, in[0], p[0], 1)}; }, {0}}}});
  // A parameter with the shape of an activation: its gradient comes from ops that cannot add in place.
  const std::vector<int64_t> whole = {B, T, H};
  const Body gate = [](auto* b, auto* p, auto& in) {
    const eng_id g = eng_gated(b, in[0], p[0], ENG_ACT_SILU);
    return std::vector<eng_id>{eng_gated(b, g, p[0], ENG_ACT_GELU)};
  };
  all.push_back({"a parameter that gates twice", {whole}, {{gate, {0}}}});
  all.push_back({"a parameter that gates twice in two blocks", {whole}, {{gate, {0}}, {gate, {0}}}});
  all.push_back({"a parameter that is rotated and put out",
                 {whole},
                 {{[](auto* b, auto* p, auto& in) {
                     const eng_id r = eng_rope(b, p[0], angles(b, T, H / 2), 2);
                     return std::vector<eng_id>{eng_gated(b, in[0], in[0], ENG_ACT_SILU), r};
                   },
                   {0}}}});
  return all;
}

}  // namespace

TEST_CASE("gradients of awkward graphs are those of differences") {
  for (const Case& c : cases()) {
    INFO(c.name);
    Checked checked(sketch_of(c), B, T, V);
    double loss = 0;
    const Values ours = checked.gradients(&loss);
    CHECK(loss == Approx(checked.loss()).epsilon(1e-12));
    std::string worst;
    const double error = distance(ours, checked.differences(), &worst);
    INFO("worst: " << worst);
    CHECK(error < limit);
    CHECK(ours == checked.gradients());  // a second step leaves nothing behind
  }
}

namespace {

const Case& named(const std::vector<Case>& all, const std::string& name) {
  return *std::find_if(all.begin(), all.end(), [&](const Case& c) { return name == c.name; });
}

// The first backward node of a template that runs `op` and has input `k`.
eng::Node& backward_node(eng::Template& t, const std::string& op, size_t k) {
  for (size_t n = t.forward; n < t.graph.nodes.size(); ++n) {
    eng::Node& node = t.graph.nodes[n];
    if (op == node.op->id && node.in.size() > k && node.in[k]) return node;
  }
  throw std::runtime_error("no such node");
}

}  // namespace

TEST_CASE("faults planted in a backward are seen") {
  const std::vector<Case> all = cases();
  auto error = [&](const char* name, const std::function<void(eng::Model&)>& plant) {
    Checked checked(sketch_of(named(all, name)), B, T, V, 1, plant);
    std::string worst;
    const double e = distance(checked.gradients(), checked.differences(), &worst);
    return e > limit ? worst : "nothing";
  };
  CHECK(error("linear with a bias", [](eng::Model&) {}) == "nothing");
  SECTION("the gradient of a bias is dropped") {
    CHECK(error("linear with a bias", [](eng::Model& m) { m.templates[1].d_params[1] = 0; }) == "p1");
  }
  SECTION("a contribution overwrites the one before") {
    auto forget = [](eng::Model& m) { backward_node(m.templates[1], ENG_OP_MATMUL, 2).in[2] = 0; };
    CHECK(error("a value used three times", forget) != "nothing");
    CHECK(error("parameters used twice in one block",
                [](eng::Model& m) { backward_node(m.templates[1], ENG_OP_SUM_ROWS, 1).in[1] = 0; }) == "p2");
  }
  SECTION("a rotation is not turned back") {
    CHECK(error("grouped attention with rotation", [](eng::Model& m) {
            for (auto& a : backward_node(m.templates[1], ENG_OP_ROPE, 0).attrs.list)
              if (a.key == "inverse") a.i = 0;
          }) != "nothing");
  }
  SECTION("another activation is differentiated") {
    CHECK(error("a gate of each kind", [](eng::Model& m) {
            for (auto& a : backward_node(m.templates[1], ENG_OP_GATED_GRAD, 0).attrs.list) a.i = ENG_ACT_GELU;
          }) != "nothing");
  }
  SECTION("the residual stream loses its gradient") {
    CHECK(error("a residual stream through three blocks",
                [](eng::Model& m) { backward_node(m.templates[2], ENG_OP_RMS_NORM_GRAD, 4).in[4] = 0; }) != "nothing");
  }
  SECTION("a bias of layer_norm gets none") {
    CHECK(error("layer norms before", [](eng::Model& m) { m.templates[1].d_params[2] = 0; }) == "p2");
    CHECK(error("layer norms before", [](eng::Model& m) {
            backward_node(m.templates[1], ENG_OP_LAYER_NORM_GRAD, 4).in[4] = 0;
          }) != "nothing");
  }
  SECTION("positions get the gradient of their neighbours") {
    CHECK(error("positions in two blocks", [](eng::Model& m) {
            for (auto& a : backward_node(m.templates[1], ENG_OP_POSITIONS_GRAD, 0).attrs.list)
              if (a.key == "offset") a.i = 1;
          }) == "p0");
  }
  SECTION("one gradient is a little too large") {
    Checked checked(sketch_of(named(all, "linear with a bias")), B, T, V);
    Values ours = checked.gradients();
    for (double& g : ours["p1"]) g *= 1.00001;
    std::string worst;
    CHECK(distance(ours, checked.differences(), &worst) > limit);
    CHECK(worst == "p1");
  }
}

TEST_CASE("eight sequences at once and two at a time are one step") {
  const std::vector<Case> all = cases();
  for (const char* name :
       {"parameters shared by two blocks", "embedding and head tied", "unused parameters",
        "a residual stream through three blocks", "a parameter that only the second of its blocks uses"}) {
    INFO(name);
    const Sketch sketch = sketch_of(named(all, name));
    Checked whole(sketch, 8, T, V, 1), parts(sketch, 2, T, V, 4);
    REQUIRE(whole.tokens() == parts.tokens());
    double loss = 0, loss_of_parts = 0;
    const Values gradients = whole.gradients(&loss), of_parts = parts.gradients(&loss_of_parts);
    CHECK(loss_of_parts == Approx(loss).epsilon(1e-6));
    CHECK(distance(of_parts, gradients) < 1e-6);
    CHECK(distance(parts.gradients(), gradients) < 1e-6);  // nothing stays from the step before
    // The order of the sequences matters to none, another sequence does.
    parts.tokens()[0] = (parts.tokens()[0] + 1) % static_cast<int32_t>(V);
    parts.upload_batch();
    CHECK(distance(parts.gradients(), gradients) > 1e-6);
  }
  // The last micro-batch counts as much as the first.
  const Sketch sketch = sketch_of(named(all, "linear with a bias"));
  Checked parts(sketch, 2, T, V, 4);
  const Values before = parts.gradients();
  parts.labels().back() = (parts.labels().back() + 1) % static_cast<int32_t>(V);
  parts.upload_batch();
  CHECK(distance(parts.gradients(), before) > 1e-6);
  std::string worst;
  const double error = distance(parts.gradients(), parts.differences(), &worst);
  INFO("worst: " << worst);
  CHECK(error < limit);
}
