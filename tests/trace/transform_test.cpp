// SPDX-License-Identifier: Apache-2.0
// Transforms of traced models: what they replace, how they compose, which templates remain, gradients against
// differences, and their faults by name.
#include <catch2/catch.hpp>

#include "core/trace/op.hpp"
#include "gradient_check.hpp"
#include "session/config/schemas.hpp"

using namespace sketch;
using Catch::Contains;

namespace transform_test {
namespace {

constexpr int64_t B = 2, T = 3, H = 4, V = 8;

// A transform as two functions. By default it leaves everything as it is.
struct Change {
  std::string name = "change";
  std::vector<std::string> targets = {};
  std::function<void(eng_build*, const eng_transform_call&, eng_id* out)> apply = [](auto&&...) {};
  std::function<void(const eng_transform_param&, uint32_t& io)> flags = {};
  std::function<std::vector<eng_policy_state>(const eng_transform_call&)> states = {};
  eng_status status = ENG_OK;

  eng::Transform transform() {
    eng_transform table{};
    table.struct_size = sizeof table;
    table.apply = [](void* self, eng_build* b, const eng_transform_call* call, eng_id* out, eng_error* error) {
      Change& change = *static_cast<Change*>(self);
      if (change.status != ENG_OK) return eng::report(error, change.status, "not on Sundays");
      change.apply(b, *call, out);
      return eng_status{ENG_OK};  // whatever the builder says
    };
    if (flags)
      table.flags = [](void* self, const eng_transform_param* param, uint32_t* io, eng_error*) {
        static_cast<Change*>(self)->flags(*param, *io);
        return eng_status{ENG_OK};
      };
    if (states)
      table.states = [](void* self, const eng_transform_call* call, eng_policy_state* out, uint32_t cap, uint32_t* n,
                        eng_error*) {
        const auto list = static_cast<Change*>(self)->states(*call);
        std::copy_n(list.begin(), std::min<size_t>(list.size(), cap), out);
        *n = static_cast<uint32_t>(list.size());
        return eng_status{ENG_OK};
      };
    return {name, table, std::shared_ptr<void>(this, [](void*) {}), targets};
  }
};

// Two equal layers of a linear map and dropout.
struct Chain : Sketch {
  explicit Chain(std::vector<eng::Transform> all = {}, double dropout = 0) {
    param("table", {V, H}), param("layers.0.w.weight", {H, H}), param("layers.1.w.weight", {H, H});
    param("head", {V, H});
    blocks = {{"embed", 0, {0}}, {"layers.0", 1, {1}}, {"layers.1", 1, {2}}, {"head", 2, {3}}};
    trace = [dropout](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
      if (tmpl == 2) return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
      const eng_id first = eng_dropout(b, in[0], dropout);
      const eng_id y = eng_linear(b, first, p[0], 0);
      return std::vector{eng_dropout(b, y, dropout)};
    };
    transforms = std::move(all);
  }
  eng::Model traced(bool runs = true) const { return model(B, T, ENG_F64, runs); }
};

eng_id declare(eng_build* b, const std::string& name, int64_t rows, int64_t columns, uint32_t flags = 0) {
  const int64_t dims[2] = {rows, columns};
  const eng_attr init = {"value", 0, 0.5};
  const eng_param param = {sizeof(eng_param), flags, name.c_str(), ENG_OP_INIT_CONSTANT, &init, dims, 1, 2};
  eng_id id = 0;
  b->api->param(b, &param, &id, nullptr);
  return id;
}

// x -> gelu(x w) + x v, with a v of its own.
void widen(eng_build* b, const eng_transform_call& call, eng_id* out) {
  if (call.op != std::string(ENG_OP_LINEAR)) return;
  const eng_id v = declare(b, std::string(call.params[0].name) + ".more", H, H);
  const eng_id y = eng_linear(b, call.in[0], call.in[1], 0);
  const eng_id wide = eng_activation(b, y, ENG_ACT_GELU), more = eng_linear(b, call.in[0], v, 0);
  out[0] = eng_add(b, wide, more);
}

std::vector<std::string> ops(const eng::Model& model, size_t block) {
  std::vector<std::string> out;
  const eng::Template& t = model.templates.at(model.blocks[block].tmpl);
  for (size_t n = 0; n < t.forward; ++n) out.push_back(t.graph.nodes[n].op->id);
  return out;
}

std::string fault(std::vector<eng::Transform> transforms, double dropout = 0) {
  try {
    Chain(std::move(transforms), dropout).traced();
    return "";
  } catch (const eng::Error& e) {
    return std::string(e.what()) + " | " + e.help();
  }
}

std::string fault(Change change) {
  return fault({change.transform()});
}

eng::Transform low_rank(std::vector<std::string> targets, std::map<std::string, eng::Value> more = {},
                        const std::string& name = "low_rank") {
  const eng::Provided* provided = registry().find(ENG_TRANSFORM_KIND, "low_rank");
  REQUIRE(provided);
  eng::Table entry{{{"plugin", std::string("low_rank")}, {"targets", std::move(targets)}}};
  for (auto& [key, value] : more) entry.values[key] = value;
  return eng::make_transform(name, registry().table<eng_transform>(ENG_TRANSFORM_KIND, "low_rank"),
                             eng::entry_section("transforms", entry, provided->schema));
}

// A model of a plugin, with a low-rank path beside the maps of `targets`.
eng::Model adapted(const std::string& plugin, const std::string& keys, std::vector<std::string> targets) {
  const auto table = registry().table<eng_model>(ENG_MODEL_KIND, plugin);
  eng::load_ops(registry());
  const eng::Config config =
      eng::Config::parse("[model]\nplugin = '" + plugin + "'\nvocab_size = 11\nhidden_size = 8\n" + keys, "small.toml",
                         ".", {}, eng::schemas_of(registry()));
  const auto transform = low_rank(std::move(targets), {{"rank", int64_t{2}}, {"alpha", 3.0}, {"freeze", false}});
  return eng::trace_model(plugin, table, config.section("model"), 2, 4, ENG_F64, true, {}, {transform});
}

void check_gradients(Checked checked, size_t own) {
  const Values ours = checked.gradients(), theirs = checked.differences();
  std::string worst;
  CHECK(distance(ours, theirs, &worst, 1e-6) < 1e-6);
  INFO(worst);
  size_t paths = 0;
  for (const auto& [name, values] : ours) {
    if (name.find(".lora_") == std::string::npos) continue;
    ++paths;
    CHECK(std::any_of(values.begin(), values.end(), [](double x) { return x != 0; }));
  }
  CHECK(paths == own);
}

}  // namespace

TEST_CASE("a call is replaced in every block, and equal blocks still share a template") {
  Change change;
  change.apply = widen;
  const Chain plain, chain({change.transform()});
  const eng::Model before = plain.traced(), model = chain.traced();
  CHECK(ops(model, 1) == std::vector<std::string>{ENG_OP_LINEAR, ENG_OP_ACTIVATION, ENG_OP_LINEAR, ENG_OP_ADD});
  CHECK(ops(model, 0) == ops(before, 0));
  CHECK(model.blocks[1].tmpl == model.blocks[2].tmpl);
  CHECK(model.templates.size() == 3);
  REQUIRE(model.params.size() == 6);
  CHECK(model.params[4].name == "layers.0.w.weight.more");
  CHECK(model.params[4].added_by == "change");
  CHECK(model.blocks[2].params == std::vector<uint32_t>{2, 5});
  REQUIRE(model.transformed.size() == 1);
  CHECK(model.transformed[0].calls == 2);
  CHECK(model.transformed[0].blocks == 2);
  CHECK(model.transformed[0].parameters == 2);
  Checked checked(chain, B, T, V);
  const Values ours = checked.gradients(), theirs = checked.differences();
  CHECK(distance(ours, theirs) < 1e-6);
  Values wrong = ours;
  for (double& x : wrong.at("layers.1.w.weight.more")) x *= 1.01;
  CHECK(distance(wrong, theirs) > 1e-6);
}

TEST_CASE("blocks that a transform treats differently get templates of their own") {
  Change change;
  change.apply = widen, change.targets = {"layers.1.*"};
  const eng::Model model = Chain({change.transform()}).traced();
  CHECK(model.blocks[1].tmpl != model.blocks[2].tmpl);
  CHECK(ops(model, 1) == std::vector<std::string>{ENG_OP_LINEAR});
  CHECK(model.templates.size() == 4);
  // The name without its last part is enough.
  change.targets = {"*.1.w"};
  CHECK(Chain({change.transform()}).traced().transformed[0].calls == 1);
}

TEST_CASE("constants decide whether blocks share a template, whether or not they will run") {
  Change change;
  for (const bool differ : {false, true}) {
    change.apply = [differ](eng_build* b, const eng_transform_call& call, eng_id* out) {
      if (call.op != std::string(ENG_OP_LINEAR)) return;
      const std::vector<float> table(T * 2, differ ? static_cast<float>(call.block) : 1.0f);
      const eng_desc desc = {ENG_F32, 2, {T, 2}};
      eng_id constant = 0;
      b->api->constant(b, &desc, table.data(), &constant, nullptr);
      const eng_id y = eng_linear(b, call.in[0], call.in[1], 0);
      out[0] = eng_rope_at(b, y, constant, 0, 2);
    };
    const Chain chain({change.transform()});
    for (const bool runs : {false, true}) {
      const eng::Model model = chain.traced(runs);
      CHECK((model.blocks[1].tmpl == model.blocks[2].tmpl) != differ);
      for (const auto& [number, t] : model.templates)
        for (const auto& c : t.constants) CHECK(c->data.empty() != runs);
    }
  }
}

TEST_CASE("transforms compose in their order") {
  Change change;
  change.apply = widen, change.targets = {"*.w.weight"};
  const auto path = low_rank({"*.more"}, {{"rank", int64_t{1}}, {"freeze", false}});
  Chain chain({change.transform(), path});
  const eng::Model model = chain.traced();
  REQUIRE(model.transformed.size() == 2);
  CHECK(model.transformed[1].name == "low_rank");
  CHECK(model.transformed[1].parameters == 4);
  CHECK(model.blocks[1].tmpl == model.blocks[2].tmpl);
  CHECK(model.params.back().name == "layers.1.w.weight.more.lora_B.weight");
  check_gradients(Checked(chain, B, T, V), 4);
  CHECK_THAT(fault({path, change.transform()}),
             Contains("targets of transform low_rank: `*.more` matches no parameter"));
}

TEST_CASE("random numbers of other ops stay, and new ones are their own") {
  Change change;
  change.apply = [](eng_build* b, const eng_transform_call& call, eng_id* out) {
    if (call.op != std::string(ENG_OP_LINEAR)) return;
    const eng_id x = eng_dropout(b, call.in[0], 0.5);
    out[0] = eng_linear(b, x, call.in[1], 0);
  };
  const auto sites = [](const eng::Model& model) {
    std::vector<int64_t> out;
    const eng::Template& t = model.templates.at(model.blocks[1].tmpl);
    for (size_t n = 0; n < t.forward; ++n)
      if (t.graph.nodes[n].op->random) out.push_back(t.graph.nodes[n].attrs.i("site"));
    return out;
  };
  CHECK(sites(Chain({}, 0.5).traced()) == std::vector<int64_t>{0, 2});
  CHECK(sites(Chain({change.transform()}, 0.5).traced()) == std::vector<int64_t>{0, 3, 2});
  // A call that is emitted again as it is keeps its numbers.
  change.apply = [](eng_build* b, const eng_transform_call& call, eng_id* out) {
    if (call.op == std::string(ENG_OP_DROPOUT))
      b->api->emit(b, call.op, call.in, call.n_in, out, 1, call.attrs, call.n_attrs, nullptr);
  };
  CHECK(sites(Chain({change.transform()}, 0.5).traced()) == sites(Chain({}, 0.5).traced()));
}

TEST_CASE("states of a transform belong to their calls, and blocks with them share a template") {
  Change change;
  int32_t dtype = ENG_F32;
  bool replaces = true;
  change.states = [&](const eng_transform_call& call) {
    const bool linear = call.op == std::string(ENG_OP_LINEAR);
    return linear ? std::vector{eng_policy_state{call.params[0].name, {dtype, 1, {H}}}, {call.name, {dtype, 1, {2}}}}
                  : std::vector<eng_policy_state>{};
  };
  change.apply = [&](eng_build* b, const eng_transform_call& call, eng_id* out) {
    CHECK(call.n_states == (call.op == std::string(ENG_OP_LINEAR) ? 2 : 0));
    if (!call.n_states || !replaces) return;
    eng_desc desc{};
    b->api->shape(b, call.states[0], &desc, nullptr);
    CHECK((desc.ndim == 1 && desc.dims[0] == H));
    out[0] = eng_linear(b, call.in[0], call.in[1], 0);
  };
  const eng::Model model = Chain({change.transform()}).traced();
  CHECK(model.blocks[1].tmpl == model.blocks[2].tmpl);
  for (size_t b : {1, 2}) {
    const auto& states = model.blocks[b].states;
    REQUIRE(states.size() == 2);
    CHECK(states[0].name == "layers." + std::to_string(b - 1) + ".w.weight");
    CHECK(states[1].name == "layers." + std::to_string(b - 1));
  }
  CHECK(model.blocks[3].states.empty());
  replaces = false;
  CHECK_THAT(fault(change), Contains("it declared or emitted something, and replaced nothing"));
  replaces = true, dtype = ENG_F64;
  CHECK_THAT(fault(change), Contains("its state layers.0.w.weight must be f32"));
  change.states = [](auto&&...) { return std::vector<eng_policy_state>(17); };
  CHECK_THAT(fault(change), Contains("has 17 states of its own; the limit is 16"));
}

TEST_CASE("parameters are frozen, and what comes before the first trained one has no backward") {
  Change freeze;
  freeze.flags = [](const eng_transform_param& p, uint32_t& io) {
    if (p.name != std::string("head")) io |= ENG_PARAM_FROZEN;
  };
  const eng::Model model = Chain({freeze.transform()}).traced();
  CHECK(model.transformed[0].frozen == 3);
  for (const eng::Parameter& p : model.params) CHECK(p.frozen == (p.name != "head"));
  const eng::Template& layer = model.templates.at(model.blocks[1].tmpl);
  CHECK(layer.graph.nodes.size() == layer.forward);
  // A model may say the same of its parameters.
  Chain own;
  own.params[0].flags = ENG_PARAM_FROZEN;
  CHECK(own.traced().params[0].frozen);
  Change all;
  all.flags = [](const eng_transform_param&, uint32_t& io) { io |= ENG_PARAM_FROZEN; };
  CHECK_THAT(fault(all), Contains("every parameter is frozen"));
}

TEST_CASE("the faults of transforms are told by name") {
  Change c;
  CHECK_THAT(fault(c), Contains("transform change changes nothing in sketch"));
  c.targets = {"layers.0.w.wieght"};
  CHECK_THAT(fault(c), Contains("targets of transform change: `layers.0.w.wieght` matches no parameter") &&
                           Contains("layers.0.w.weight"));
  c.targets = {"head"};
  CHECK_THAT(fault(c), Contains("`head` matches no call that it replaces"));
  c.targets = {};
  c.status = ENG_INVALID;
  CHECK_THAT(fault(c), Contains("transform change, block embed, eng.embedding/1: not on Sundays"));
  c.status = ENG_OK;
  const auto at_linear = [&](std::function<void(eng_build*, const eng_transform_call&, eng_id*)> then) {
    c.apply = [then](eng_build* b, const eng_transform_call& call, eng_id* out) {
      if (call.op == std::string(ENG_OP_LINEAR)) then(b, call, out);
    };
    return fault(c);
  };
  CHECK_THAT(at_linear([](eng_build* b, const auto& call, eng_id*) { eng_add(b, call.in[0], call.in[0]); }),
             Contains("declared or emitted something, and replaced nothing"));
  CHECK_THAT(at_linear([](eng_build* b, const auto& call, eng_id* out) { out[0] = eng_cast(b, call.in[0], ENG_F32); }),
             Contains("output 0 is replaced by f32"));
  CHECK_THAT(at_linear([](eng_build*, const auto&, eng_id* out) { out[0] = 99; }),
             Contains("output 0 is replaced by no value"));
  CHECK_THAT(at_linear([](eng_build* b, const auto& call, eng_id* out) {
               declare(b, "head", H, H);
               out[0] = call.in[0];
             }),
             Contains("parameter head is declared twice"));
  CHECK_THAT(at_linear([](eng_build* b, const auto&, eng_id*) { b->api->term(b, 1, "more", 1.0, nullptr); }),
             Contains("naming a term of the loss is not allowed in this phase"));
  CHECK_THAT(at_linear([](eng_build* b, const auto&, eng_id*) {
               uint32_t rank = 0, size = 0;
               b->api->world(b, &rank, &size, nullptr);
             }),
             Contains("asking for the world is not allowed in this phase"));
  CHECK_THAT(at_linear([](eng_build* b, const auto& call, eng_id* out) {
               const eng_attr group = {"group", 1, 0};
               out[0] = eng_emit1(b, ENG_OP_ALL_REDUCE, call.in, 1, &group, 1);
             }),
             Contains("collective"));
  c.apply = [](auto&&...) {};
  c.flags = [](const eng_transform_param&, uint32_t& io) { io |= ENG_PARAM_FP32; };
  CHECK_THAT(fault(c), Contains("only ENG_PARAM_FROZEN and ENG_PARAM_NOT_EXPORTED may change"));
}

TEST_CASE("an output that is left out must not be read") {
  Sketch norm;
  norm.param("table", {V, H}), norm.param("g", {H}), norm.param("head", {V, H});
  norm.blocks = {{"embed", 0, {0}}, {"norm", 1, {1}}, {"head", 2, {2}}};
  norm.trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
    if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
    if (tmpl == 2) return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
    eng_id sum = 0;
    const eng_id y = eng_add_rms_norm(b, in[0], in[0], p[0], 1e-5, &sum);
    return std::vector{eng_add(b, y, sum)};
  };
  Change change;
  bool both = true;
  change.apply = [&](eng_build* b, const eng_transform_call& call, eng_id* out) {
    if (call.op != std::string(ENG_OP_RMS_NORM)) return;
    const eng_id sum = eng_add(b, call.in[0], call.in[2]);
    out[0] = eng_rms_norm(b, sum, call.in[1], 1e-5);
    if (both) out[2] = sum;
  };
  norm.transforms = {change.transform()};
  norm.model(B, T, ENG_F64);  // the statistics, output 1, are nobody's
  both = false;
  CHECK_THROWS_WITH(norm.model(B, T, ENG_F64), Contains("left out an output that is read later"));
}

TEST_CASE("the low-rank path of a map has right gradients in every model") {
  check_gradients(Checked(adapted("llama",
                                  "intermediate_size = 10\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
                                  "num_key_value_heads = 1\n",
                                  {"*.q_proj", "*.v_proj", "*.down_proj"}),
                          11),
                  12);
  check_gradients(Checked(adapted("opt",
                                  "ffn_dim = 10\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                                  "max_position_embeddings = 6\ndropout = 0.0\n",
                                  {"*.out_proj", "*.fc1", "*.fc2"}),
                          11),
                  6);
  check_gradients(Checked(adapted("mamba", "num_hidden_layers = 2\nstate_size = 2\ntime_step_rank = 2\n",
                                  {"*.in_proj", "*.x_proj", "*.dt_proj", "*.out_proj"}),
                          11),
                  16);
}

TEST_CASE("the scale and the rank of a path are those of its map") {
  const auto path = [](std::map<std::string, eng::Value> more) {
    more["freeze"] = false;
    return Chain({low_rank({"*.w"}, std::move(more))}).traced();
  };
  const auto scale = [&](std::map<std::string, eng::Value> more) {
    const eng::Model model = path(std::move(more));
    for (const eng::Node& node : model.templates.at(model.blocks[1].tmpl).graph.nodes)
      if (node.op->id == std::string(ENG_OP_SCALE)) return node.attrs.f("factor");
    return 0.0;
  };
  CHECK(scale({{"rank", int64_t{4}}}) == 1);
  CHECK(scale({{"rank", int64_t{4}}, {"alpha", 6.0}}) == 1.5);
  CHECK(scale({{"rank", int64_t{4}}, {"alpha", 6.0}, {"rslora", true}}) == 3);
  const eng::Model model = path({{"rank", int64_t{1}}, {"ranks", std::vector<std::string>{"layers.1*=3", "*=2"}}});
  for (const eng::Parameter& p : model.params)
    if (p.name.ends_with(".lora_A.weight")) CHECK(p.desc.dims[0] == (p.name.starts_with("layers.1") ? 3 : 2));
}

TEST_CASE("the low-rank path refuses what it cannot follow") {
  const auto refused = [](const std::vector<std::string>& targets, std::map<std::string, eng::Value> more = {}) {
    try {
      return fault({low_rank(targets, std::move(more))});
    } catch (const eng::Error& e) {
      return std::string(e.what());
    }
  };
  CHECK_THAT(refused({}), Contains("it needs targets"));
  CHECK_THAT(refused({"table"}), Contains("table is read by eng.embedding/1"));
  CHECK_THAT(refused({"*.w"}, {{"rank", int64_t{5}}}), Contains("rank is 5, but layers.0.w is 4 x 4"));
  CHECK_THROWS_WITH(adapted("mamba", "num_hidden_layers = 1\nstate_size = 2\ntime_step_rank = 2\n", {"*.A_log"}),
                    Contains("A_log is read by eng.mamba."));
  using Texts = std::vector<std::string>;
  for (const char* wrong : {"*.w", "=2", "*.w=", "*.w=0", "*.w=two"})
    CHECK_THAT(refused({"*.w"}, {{"ranks", Texts{wrong}}}), Contains("it must be PATTERN=RANK"));
  CHECK_THAT(refused({"all-linear", "*.w"}), Contains("\"all-linear\" stands alone"));
}

}  // namespace transform_test
