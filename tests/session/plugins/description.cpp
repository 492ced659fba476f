// SPDX-License-Identifier: Apache-2.0
#include "core/registry/registry.hpp"
#include "engine/model.h"
#include "engine/monitor.h"
#include "engine/op.h"
#include "engine/optimizer.h"
#include "session/plugins/plugin_file.hpp"
#include "session/plugins/pretrained.hpp"
#include "session/plugins/usual.hpp"

#include <catch2/catch.hpp>

using Catch::Matchers::Contains;

namespace {

const std::string head = "[plugin]\nid = 'org.example.a'\nname = 'A'\nversion = '1'\nlicense = 'Apache-2.0'\n";
const std::string lion = head + "[[provides]]\nkind = '" ENG_OPTIMIZER_DRAFT "'\nname = 'lion'\n";

std::string refusal(const std::string& text) {
  eng::Description out;
  return eng::parse_description(text, out);
}

std::string option(const std::string& body) {
  return refusal(lion + "[provides.options.key]\n" + body);
}

}  // namespace

TEST_CASE("a description with every type of option is read") {
  eng::Description d;
  const std::string text = lion + R"(
[provides.options]
flag = { type = "bool", default = true }
count = { type = "int", default = 3, min = 1, max = 9 }
rate = { type = "float", default = 1, help = "an integer is a number too" }
mode = { type = "string", choices = ["x", "y"], default = "y" }
words = { type = "strings", default = ["p", "q"] }
betas = { type = "floats", default = [0.9, 1] }
size = { type = "bytes", default = "64MiB" }
path = { type = "string", required = true }
[provides.presets.big]
count = 9
mode = "x"
)";
  REQUIRE(eng::parse_description(text, d) == "");
  CHECK(d.id == "org.example.a");
  CHECK(d.license == "Apache-2.0");
  CHECK(d.text == text);
  REQUIRE(d.provides.size() == 1);
  const eng::Schema& schema = d.provides[0].schema.options;
  REQUIRE(schema.size() == 8);
  const auto get = [&](const std::string& key) {
    return *std::find_if(schema.begin(), schema.end(), [&](const auto& o) { return o.key == key; });
  };
  CHECK(std::get<bool>(get("flag").fallback) == true);
  CHECK(std::get<int64_t>(get("count").fallback) == 3);
  CHECK(get("count").max == 9.0);
  CHECK(std::get<double>(get("rate").fallback) == 1.0);
  CHECK(std::get<std::string>(get("mode").fallback) == "y");
  CHECK(std::get<std::vector<std::string>>(get("words").fallback).size() == 2);
  CHECK(std::get<std::vector<double>>(get("betas").fallback) == std::vector<double>{0.9, 1.0});
  CHECK(std::get<int64_t>(get("size").fallback) == int64_t{64} << 20);
  CHECK(get("path").required);
  CHECK(std::holds_alternative<std::monostate>(get("path").fallback));
  const eng::Preset& big = d.provides[0].schema.presets.at("big");
  CHECK(std::get<int64_t>(big.at("count")) == 9);
  CHECK(big.size() == 2);
}

TEST_CASE("a description lists the ops of other plugins that it uses") {
  eng::Description d;
  const std::string rest = "[[provides]]\nkind = '" ENG_OPTIMIZER_DRAFT "'\nname = 'lion'\n";
  REQUIRE(eng::parse_description(head + "uses = ['org.example.scan.scan/1', 'eng.mamba.init_a_log/1']\n" + rest, d) ==
          "");
  CHECK(d.uses == std::vector<std::string>{"org.example.scan.scan/1", "eng.mamba.init_a_log/1"});
  REQUIRE(eng::parse_description(lion, d) == "");
  CHECK(d.uses.empty());
}

TEST_CASE("a description that is wrong is refused with the reason") {
  CHECK(refusal(lion) == "");
  CHECK_THAT(refusal("a = = 1"), Contains("not TOML: line 1, column 5"));
  CHECK_THAT(refusal(lion + "[!]\n"), Contains("not TOML: line 9"));
  CHECK_THAT(refusal(std::string("[\0x]", 4)), Contains("description is not TOML: line 1, column 2"));
  CHECK_THAT(refusal("d\xc3\xa4 = 1"), Contains("a character outside ASCII"));
  CHECK(refusal(lion + "summary = 'd\xc3\xa4'  # \xc3\xa4\n") == "");
  CHECK_THAT(refusal(""), Contains("[plugin] is missing"));
  CHECK_THAT(refusal("draft = 'draft-0'"), Contains("built from ABI draft 'draft-0', this engine speaks ABI 1.0"));
  CHECK_THAT(refusal("draft = '" ENG_ABI_DRAFT_ID "'"), Contains("[plugin] is missing"));
  CHECK_THAT(refusal(head), Contains("[[provides]] is missing"));
  CHECK_THAT(refusal(head + "homepage = 'x'\n"), Contains("[plugin]: unknown key 'homepage'"));
  CHECK_THAT(refusal(head + "uses = ['a scan']\n"),
             Contains("[plugin]: 'uses' has 'a scan', which is not the id of an op"));
  CHECK_THAT(refusal(head + "uses = [1]\n"), Contains("'uses'"));
  CHECK_THAT(refusal(lion + "speed = 1\n"), Contains("[[provides]] number 1: unknown key 'speed'"));
  CHECK_THAT(refusal(lion + "[[provides]]\nkind = '" ENG_OPTIMIZER_DRAFT "'\nname = 'lion'\n"),
             Contains("provided twice"));
  CHECK(refusal(head + "[[provides]]\nkind = 'eng.later/2'\nname = 'a'") == "");  // of a later engine
  CHECK_THAT(refusal(head + "[[provides]]\nkind = 'eng.later/2'\n"), Contains("is not a name"));
  CHECK_THAT(refusal(head + "[[provides]]\nkind = 'optimizer'\nname = 'a'"), Contains("not of the form"));
  CHECK_THAT(refusal(head + "[[provides]]\nkind = '" ENG_MODEL_DRAFT "'\nname = 'A b'"), Contains("is not a name"));
  CHECK(refusal(head + "[[provides]]\nkind = 'org.example.thing/12'\nname = 'a'") == "");
  std::string no_license = lion;
  no_license.replace(no_license.find("license"), 7, "licence");
  CHECK_THAT(refusal(no_license), Contains("unknown key 'licence'"));
}

TEST_CASE("a kind of another draft is refused by itself, with both drafts") {
  const auto kinds = [](const std::string& text) {
    eng::Description d;
    REQUIRE(eng::parse_description(text, d) == "");
    std::vector<std::string> out;
    for (const auto& one : d.provides) out.push_back(one.refused);
    return out;
  };
  const std::string plugin = "[plugin]\nid = 'org.example.a'\nname = 'A'\nversion = '1'\nlicense = 'MIT'\n";
  const auto both = [&](const std::string& model, const std::string& optimizer) {
    return plugin + "[[provides]]\nkind = '" + model + "'\nname = 'm'\n[[provides]]\nkind = '" + optimizer +
           "'\nname = 'o'\n";
  };
  CHECK(kinds(both(ENG_MODEL_DRAFT, ENG_OPTIMIZER_DRAFT)) == std::vector<std::string>{"", ""});
  // Keys of another draft are not this engine's to judge.
  auto refused = kinds(both(ENG_MODEL_DRAFT, "eng.optimizer/1-draft1") + "later = true\n");
  CHECK(refused[0] == "");
  CHECK(refused[1] == "built from draft eng.optimizer/1-draft1, this engine speaks " ENG_OPTIMIZER_DRAFT
                      ": rebuild the plugin");
  // Without a draft.
  refused = kinds(both("eng.model/1", ENG_OPTIMIZER_DRAFT));
  CHECK(refused[1] == "");
  CHECK(refused[0] ==
        "eng.model/1: the description does not say which draft of it the plugin was built from: write kind = "
        "'" ENG_MODEL_DRAFT "', the constant ENG_..._DRAFT of its header");
  CHECK_THAT(refusal(plugin + "[[provides]]\nkind = 'eng.model/1-draft'\nname = 'm'\n"), Contains("not of the form"));
  CHECK_THAT(refusal(plugin + "[[provides]]\nkind = 'org.a/1-draft2'\nname = 'm'\n"), Contains("not of the form"));
}

TEST_CASE("a description from before 1.0 states its drafts in a table of their own") {
  const auto read = [](const std::string& optimizer) {
    eng::Description d;
    REQUIRE(eng::parse_description("draft = 'draft-9'\n[drafts]\n'eng.optimizer/1' = '" + optimizer +
                                       "'\n[plugin]\nid = 'org.example.a'\nname = 'A'\nversion = '1'\nlicense = "
                                       "'MIT'\n[[provides]]\nkind = 'eng.optimizer/1'\nname = 'o'\n",
                                   d) == "");
    return d.provides[0];
  };
  const std::string id = ENG_OPTIMIZER_DRAFT, number = id.substr(id.find("-draft") + 6);
  const eng::Provided now = read("optimizer-" + number);
  CHECK(now.refused == "");
  CHECK(now.old == "");
  CHECK(now.kind == "eng.optimizer/1");
  CHECK(now.draft == id);
  // The draft before it has the same tables but for their ends.
  const eng::Provided before = read("optimizer-" + std::to_string(std::stoi(number) - 1));
  CHECK(before.refused == "");
  CHECK_THAT(before.old, Contains("which this engine still accepts: rebuild the plugin for " ENG_OPTIMIZER_DRAFT));
  CHECK(read("optimizer-0").refused ==
        "built from draft eng.optimizer/1-draft0, this engine speaks " ENG_OPTIMIZER_DRAFT ": rebuild the plugin");
  CHECK_THAT(read("lion").refused, Contains("built from draft lion, this engine speaks"));
  CHECK_THAT(refusal("[drafts]\n'eng.model/1' = 3\n"), Contains("must be a text"));
  // A kind whose tables changed is refused, with both ids.
  eng::Description d;
  const auto before_of = [](const std::string& draft) {
    const size_t at = draft.find("-draft") + 6;
    return draft.substr(0, at) + std::to_string(std::stoi(draft.substr(at)) - 1);
  };
  const auto provided = [&](const std::string& draft) {
    d = {};
    REQUIRE(eng::parse_description(head + "[[provides]]\nkind = '" + draft + "'\nname = 'p'\n", d) == "");
    return d.provides[0];
  };
  for (const char* draft : {ENG_ZERO_DRAFT, ENG_OPS_DRAFT, ENG_MONITOR_DRAFT})
    CHECK_THAT(provided(before_of(draft)).refused,
               Contains("built from draft " + before_of(draft) + ", this engine speaks " + draft));
  // One whose tables have only grown is used.
  for (const char* draft : {ENG_MODEL_DRAFT, ENG_DEVICE_DRAFT, ENG_COMM_DRAFT, ENG_PRECISION_DRAFT, ENG_TIER_DRAFT,
                            ENG_OBSERVER_DRAFT, ENG_JOB_DRAFT}) {
    const eng::Provided one = provided(before_of(draft));
    CHECK(one.refused == "");
    CHECK(one.changed_ops.empty());
    CHECK(one.old == "built from draft " + before_of(draft) +
                         ", which this engine still accepts: rebuild the plugin for " + draft);
  }
  // A kernel is used if its op is what it was.
  const eng::Provided kernels = provided(before_of(ENG_KERNELS_DRAFT));
  CHECK(kernels.refused == "");
  CHECK(std::count(kernels.changed_ops.begin(), kernels.changed_ops.end(), "eng.attention/1") == 1);
  CHECK(std::count(kernels.changed_ops.begin(), kernels.changed_ops.end(), "eng.add/1") == 0);
  CHECK_THAT(kernels.old, Contains("still accepts, but for kernels of eng.rope/1, eng.attention/1, ") &&
                              Contains("which have changed: rebuild the plugin for " ENG_KERNELS_DRAFT));
  CHECK(provided(ENG_KERNELS_DRAFT).changed_ops.empty());
}

TEST_CASE("the usual plugin of a kind is the first whose description says so") {
  eng::Registry registry({});
  const auto add = [&](const std::string& name, const std::string& more) {
    eng::Candidate file{name + ".eng.so", {}, "", {}, nullptr};
    REQUIRE(eng::parse_description("[plugin]\nid = 'org.example." + name +
                                       "'\nname = 'A'\nversion = '1'\nlicense = 'MIT'\n[[provides]]\nkind = '" +
                                       ENG_TIER_DRAFT + "'\nname = '" + name + "'\n" + more,
                                   file.description) == "");
    registry.add(std::move(file));
  };
  add("attic", "");
  add("cellar", "usual = false\n");
  CHECK_THROWS_WITH(eng::usual(registry, ENG_TIER_KIND, "for boxes"),
                    Contains("no plugin is the usual one of eng.tier/1, for boxes"));
  add("shed", "usual = true\n");
  add("barn", "usual = true\n");
  CHECK(eng::usual(registry, ENG_TIER_KIND, "for boxes") == "shed");
  CHECK_THROWS(eng::usual(registry, ENG_DEVICE_KIND, "for boxes"));
  CHECK_THAT(refusal(lion + "usual = 'yes'\n"), Contains("'usual' must be"));
}

TEST_CASE("a frozen kind needs no draft; its last one is still read") {
  const auto refused = [](const std::string& first) {
    eng::Description d;
    const std::string plugin = "[plugin]\nid = 'org.example.a'\nname = 'A'\nversion = '1'\nlicense = 'MIT'\n";
    REQUIRE(eng::parse_description(first + plugin + "[[provides]]\nkind = 'eng.data/1'\nname = 'd'\n", d) == "");
    return d.provides[0].refused;
  };
  CHECK(refused("") == "");
  CHECK(refused("[drafts]\n") == "");
  CHECK(refused("draft = 'draft-9'\n[drafts]\n'eng.data/1' = 'data-3'\n") == "");
  CHECK(
      refused("[drafts]\n'eng.data/1' = 'data-2'\n") ==
      "built from draft eng.data/1-draft2, this engine speaks eng.data/1 and its last draft eng.data/1-draft3: rebuild "
      "the plugin");
}

TEST_CASE("a kind that is none is told with the nearest one") {
  eng::Description d;
  REQUIRE(eng::parse_description(head + "[[provides]]\nkind = 'eng.opz/1'\nname = 'a'\n", d) == "");
  CHECK(d.provides[0].refused == "this engine has no kind eng.opz/1; did you mean eng.ops/1?");
  REQUIRE(eng::parse_description(head + "[[provides]]\nkind = 'eng.something/1'\nname = 'a'\n", d) == "");
  CHECK_THAT(d.provides[0].refused, Contains("the kinds are eng.model/1, eng.optimizer/1"));
  REQUIRE(eng::parse_description(head + "[[provides]]\nkind = 'egn.ops/1'\nname = 'a'\n", d) == "");
  CHECK(d.provides[0].refused == "this engine has no kind egn.ops/1; did you mean eng.ops/1?");
  REQUIRE(eng::parse_description(head + "[[provides]]\nkind = 'org.example.thing/1'\nname = 'a'\n", d) == "");
  CHECK(d.provides[0].refused == "");
}

TEST_CASE("an option that is wrong is refused with the reason") {
  CHECK(option("type = 'int'\n") == "");
  CHECK_THAT(option("type = 'integer'\n"), Contains("option 'key': 'type' is one of bool, int"));
  CHECK_THAT(option("type = 'int'\nunit = 'm'\n"), Contains("unknown key 'unit'"));
  CHECK_THAT(option("default = 1\n"), Contains("option 'key': 'type' is one of bool, int"));
  CHECK_THAT(option("type = 'int'\ndefault = 1.5\n"), Contains("'default' must be of type integer, not number 1.5"));
  CHECK_THAT(option("type = 'int'\ndefault = 1\nmax = 0\n"), Contains("'default' must be at most 0, not integer 1"));
  CHECK_THAT(option("type = 'float'\ndefault = nan\n"), Contains("'default' must be finite"));
  CHECK_THAT(option("type = 'int'\nmin = 2\nmax = 1\n"), Contains("min is above max"));
  CHECK_THAT(option("type = 'string'\nmin = 2\n"), Contains("unknown key 'min'"));
  CHECK_THAT(option("type = 'int'\nchoices = ['a']\n"), Contains("unknown key 'choices'"));
  CHECK_THAT(option("type = 'string'\nchoices = ['a']\ndefault = 'b'\n"),
             Contains("'default' must be one of its choices, not string \"b\""));
  CHECK_THAT(option("type = 'int'\nrequired = true\ndefault = 1\n"), Contains("a required option has no default"));
  CHECK_THAT(option("type = 'bytes'\ndefault = 'much'\n"), Contains("'default' must be of type size"));
  CHECK_THAT(option("type = 'floats'\ndefault = [1, 'x']\n"),
             Contains("'default' cannot be a list of mixed or nested values"));
  CHECK_THAT(option("type = 'int'\n[provides.presets.p]\nkye = 1\n"),
             Contains("preset 'p': unknown key 'kye'; did you mean key?"));
  CHECK_THAT(option("type = 'int'\ndefualt = 1\n"), Contains("unknown key 'defualt'; did you mean default?"));
  CHECK_THAT(option("type = 'int'\n[provides.presets.p]\nkey = 'x'\n"), Contains("'key' must be of type integer"));
}

TEST_CASE("a description says how config.json maps to options") {
  const std::string snake = head + "[[provides]]\nkind = '" ENG_MODEL_DRAFT "'\nname = 'snake'\n";
  eng::Description d;
  REQUIRE(eng::parse_description(snake + R"(
[provides.options]
width = { type = 'int', json = ['hidden_size', 'd_model'], json_multiple = 'pad', adjustable = true }
rank = { type = 'int', json_none = 'auto' }
scale = { type = 'bool', default = false, json = [] }
act = { type = 'string', default = 'silu', json = 'hidden_act' }
[provides.pretrained]
model_type = 'snake'
architectures = ['SnakeForCausalLM']
rename = [['decoder.', 'model.decoder.']]
tied = [['a', 'b'], ['c', 'd']]
ignore_tensors = ['.inv_freq']
transpose = ['h.*.qkv.weight']
split = [{ from = 'h.*.qkv.weight', to = ['h.*.q', 'h.*.k', 'h.*.v'], axis = 1 }]
join = [{ from = ['h.*.gate', 'h.*.up'], to = 'h.*.both' }, { from = ['h.*.#.down'], to = 'h.*.all' }]
[provides.pretrained.fixed]
dropout = 0.0
layers = [[], 'x', true]
'ssm_cfg.layer' = 'Mamba1'
[provides.pretrained.write]
inner = { product = ['expand', 'width'] }
)",
                                 d) == "");
  const eng::PluginSchema& schema = d.provides[0].schema;
  const auto get = [&](const std::string& key) {
    return *std::find_if(schema.options.begin(), schema.options.end(), [&](const auto& o) { return o.key == key; });
  };
  using Texts = std::vector<std::string>;
  CHECK(get("width").json == Texts{"hidden_size", "d_model"});
  CHECK(get("width").json_multiple == "pad");
  CHECK(get("width").adjustable);
  CHECK(get("rank").json == Texts{"rank"});
  CHECK(get("rank").json_none == "auto");
  CHECK_FALSE(get("rank").adjustable);
  CHECK(get("scale").json.empty());
  CHECK(get("act").json == Texts{"hidden_act"});
  const eng::Pretrained& p = *schema.pretrained;
  CHECK(p.model_types == Texts{"snake"});
  CHECK(p.rename == eng::Pretrained::Pairs{{"decoder.", "model.decoder."}});
  CHECK(p.tied.size() == 2);
  CHECK(p.transpose == Texts{"h.*.qkv.weight"});
  REQUIRE(p.regroup.size() == 3);
  CHECK(p.regroup[0].files == Texts{"h.*.qkv.weight"});
  CHECK(p.regroup[0].model == Texts{"h.*.q", "h.*.k", "h.*.v"});
  CHECK(p.regroup[0].axis == 1);
  CHECK(p.regroup[1].files == Texts{"h.*.gate", "h.*.up"});
  CHECK(p.regroup[1].model == Texts{"h.*.both"});
  CHECK(p.regroup[1].axis == 0);
  CHECK_FALSE(p.regroup[1].numbered);
  CHECK(p.regroup[2].files == Texts{"h.*.#.down"});
  CHECK(p.regroup[2].numbered);
  CHECK(p.fixed.at("dropout") == Texts{"0.0"});
  CHECK(p.fixed.at("layers") == Texts{"[]", "\"x\"", "true"});
  CHECK(p.fixed.at("ssm_cfg.layer") == Texts{"\"Mamba1\""});
  CHECK(p.write.count("inner") == 1);

  const auto bad = [&](const std::string& body) { return refusal(snake + "[provides.pretrained]\n" + body); };
  CHECK_THAT(bad("architectures = ['A']\n"), Contains("'model_type' is missing"));
  CHECK_THAT(bad("model_type = ''\n"), Contains("'model_type' is missing"));
  for (const char* none : {"[]", "['a', '']"})
    CHECK_THAT(bad("model_type = " + std::string(none) + "\n"), Contains("'model_type' must be one or more names"));
  CHECK_THAT(bad("model_type = 3\n"), Contains("'model_type' must be"));
  REQUIRE(eng::parse_description(snake + "[provides.pretrained]\nmodel_type = ['snake', 'viper']\n", d) == "");
  CHECK(d.provides[0].schema.pretrained->model_types == Texts{"snake", "viper"});
  CHECK_THAT(bad("model_type = 'a'\nrenames = []\n"), Contains("unknown key 'renames'"));
  CHECK_THAT(bad("model_type = 'a'\nrename = ['a', 'b']\n"), Contains("'rename' must be a list of pairs"));
  CHECK_THAT(bad("model_type = 'a'\ntied = [['a', 3]]\n"), Contains("'tied' must be a list of pairs"));
  const auto odd = [&](const std::string& line) { return bad("model_type = 'a'\n" + line + "\n"); };
  CHECK_THAT(odd("transpose = ['a.b*']"), Contains("in 'a.b*', `*` must stand for a whole part of the name"));
  CHECK_THAT(odd("transpose = ['']"), Contains("'transpose': a name is empty"));
  CHECK_THAT(odd("split = 3"), Contains("'split' must be a list of tables"));
  CHECK_THAT(odd("split = [3]"), Contains("'split' number 1"));
  CHECK_THAT(odd("split = [{ from = 'a', to = ['b', 'c'], axes = 1 }]"), Contains("unknown key 'axes'"));
  CHECK_THAT(odd("split = [{ from = 'a', to = ['b', 'c'], axis = -1 }]"), Contains("'axis' must be"));
  CHECK_THAT(odd("split = [{ from = 'a', to = ['b'] }]"), Contains("'to' must have at least two names"));
  CHECK_THAT(odd("split = [{ from = 'a', to = ['b', 'b'] }]"), Contains("a name is given twice"));
  CHECK_THAT(odd("split = [{ from = 'a.*', to = ['b.*', 'c'] }]"), Contains("the same number of `*`"));
  CHECK_THAT(odd("split = [{ to = ['b', 'c'] }]"), Contains("'from' is missing"));
  for (const char* numbers :
       {"from = ['a.#', 'b'], to = 'c'", "from = ['a.#'], to = 'c.#'", "from = ['a.#.#'], to = 'c'",
        "from = ['a', 'b'], to = 'c.#'", "from = ['a.#'], to = 'c', axis = 1"})
    CHECK_THAT(odd("join = [{ " + std::string(numbers) + " }]"),
               Contains("`#` is for 'join' with axis 0, once in each"));
  CHECK_THAT(odd("split = [{ from = 'a.#', to = ['b', 'c'] }]"), Contains("`#` is for 'join'"));
  CHECK_THAT(odd("join = [{ from = ['a.b#'], to = 'c' }]"), Contains("in 'a.b#', `#` must stand for a whole part"));
  CHECK_THAT(odd("join = [{ from = ['a'], to = 'b' }]"), Contains("'from' must have at least two names"));
  CHECK_THAT(odd("join = [{ from = ['a', 'b'], to = ['c', 'd'] }]"), Contains("'to' must be"));
  CHECK_THAT(bad("model_type = 'a'\nfixed = 3\n"), Contains("'fixed' must be a table"));
  CHECK_THAT(option("type = 'int'\njson = 3\n"), Contains("'json' must be"));
}
