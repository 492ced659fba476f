// SPDX-License-Identifier: Apache-2.0
// [provides.gguf] of a description: what is read of it, what is refused, and the values that it gives keys.
#include "session/gguf/values.hpp"

#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "core/registry/registry.hpp"
#include "engine/model.h"
#include "session/gguf/rope.hpp"
#include "session/plugins/plugin_file.hpp"

namespace gguf_values_test {

using namespace eng;
using Catch::Contains;

namespace {

// A plugin with this [provides.gguf]; `why` is the reason if it is refused.
std::shared_ptr<const GgufModel> described(const std::string& gguf, std::string& why) {
  Description out;
  why = parse_description(
      "[plugin]\nid = 'a.snake'\nname = 'Snake'\nversion = '1'\nlicense = 'Apache-2.0'\n[[provides]]\nkind = "
      "'" ENG_MODEL_DRAFT
      "'\nname = 'snake'\n[provides.options]\nwidth = { type = 'int', default = 48 }\nheads = { type = "
      "'int' }\nact = { type = 'string', default = 'silu' }\nshare = { type = 'float', default = 2.5 }\n"
      "kinds = { type = 'strings' }\nnumbers = { type = 'floats' }\n[provides.gguf]\n" +
          gguf,
      out);
  return why.empty() ? out.provides.at(0).schema.pretrained->gguf : nullptr;
}

std::string refused(const std::string& gguf) {
  std::string why;
  described(gguf, why);
  return why;
}

const std::string tensors = "[provides.gguf.tensors]\n'h.*.map' = 'blk.*.map'\n'h.*.A_log' = 'blk.*.a'\n";

Section section(std::map<std::string, Value> values) {
  std::map<std::string, Setting> settings = {{"plugin", {std::string("snake"), "", true}}, {"heads", {{}, "", false}}};
  for (auto& [key, value] : values) settings[key] = {std::move(value), "", true};
  return {"model", settings};
}

std::string told(const GgufModel* gguf, const Section& model) {
  try {
    require_gguf(gguf, model);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("keys of GGUF files get the values that a description says", "[gguf]") {
  std::string why;
  const auto gguf = described(
      "architecture = 'snake'\n" + tensors +
          "[provides.gguf.keys]\na = 'width'\nb = ['heads', { quotient = ['width', 10] }]\n"
          "c = { product = ['width', 'share'] }\nd = 7\ne = true\n[provides.gguf.fixed]\nact = ['silu', 'swish']\n"
          "[provides.gguf.require]\nb = 5\n",
      why);
  INFO(why);
  REQUIRE(gguf);
  const Section model = section({{"width", int64_t{48}}, {"share", 2.5}, {"act", std::string("silu")}});
  std::map<std::string, Value> values;
  for (const auto& [key, value] : gguf->keys) values[key] = gguf_value(value, model, key);
  CHECK(values.at("a") == Value(int64_t{48}));
  CHECK(values.at("b") == Value(int64_t{5}));  // rounded up
  CHECK(values.at("c") == Value(int64_t{120}));
  CHECK(values.at("d") == Value(int64_t{7}));
  CHECK(values.at("e") == Value(true));
  CHECK(told(gguf.get(), model).empty());
  CHECK_THAT(told(gguf.get(), model.with("heads", int64_t{4})), Contains("only with b = 5, and this model has 4"));
  CHECK_THAT(told(gguf.get(), model.with("act", std::string("gelu"))), Contains("model.act = \"gelu\""));
  CHECK_THAT(told(nullptr, model), Contains("does not say"));
  CHECK(gguf_name(*gguf, "h.3.map.weight") == "blk.3.map.weight");
  CHECK(gguf_name(*gguf, "h.3.map.bias") == "blk.3.map.bias");
  CHECK(gguf_name(*gguf, "h.3.A_log") == "blk.3.a");
  CHECK(gguf_name(*gguf, "h.3.map.lora_A.weight").empty());
  CHECK(names_tensor("blk.*.map", "blk.3.map.weight"));
  CHECK_FALSE(names_tensor("blk.*.map", "blk.3.map2.weight"));
}

TEST_CASE("values of GGUF files that are computed", "[gguf]") {
  std::string why;
  const auto gguf = described(
      "architecture = 'snake'\nnotes = [{ text = 'always' }, { text = 'with heads', given = 'heads' },\n"
      "{ text = 'wide', where = { width = 64 } }]\n" +
          tensors +
          "[provides.gguf.keys]\na = { product = [{ quotient = ['width', 5] }, 0.5] }\nb = { ratio = ['width', { root "
          "= 9 }] }\n"
          "c = [{ least = ['heads', 5] }, 6]\nd = [{ value = 'width', where = { act = 'gelu' } }, 1]\n"
          "e = { quotient = ['width', 5], where = { heads = 2, act = 'silu' } }\n"
          "[provides.gguf.fixed]\nheads = [{}, 2]\n[provides.gguf.require]\nshare = { ratio = ['width', 16] }\n"
          "[provides.gguf.layers]\nkinds = { every = 2, is = 'full', others = 'part' }\n",
      why);
  INFO(why);
  REQUIRE(gguf);
  const Section model = section({{"width", int64_t{48}}, {"share", 3.0}, {"act", std::string("silu")}, {"kinds", {}}});
  const auto value = [&](size_t k, const Section& of) { return gguf_value(gguf->keys[k].second, of, "key"); };
  CHECK(value(0, model) == Value(int64_t{5}));  // 10 / 2
  CHECK(value(1, model) == Value(16.0));
  CHECK(value(2, model) == Value(int64_t{6}));
  const Section two = model.with("heads", int64_t{2});
  CHECK(value(2, two) == Value(int64_t{2}));
  CHECK(value(3, model) == Value(int64_t{1}));
  CHECK(value(3, model.with("act", std::string("gelu"))) == Value(int64_t{48}));
  CHECK(value(4, two) == Value(int64_t{10}));
  CHECK_THROWS_AS(value(4, model), Error);
  CHECK(told(gguf.get(), model).empty());
  CHECK(told(gguf.get(), two).empty());
  CHECK_THAT(told(gguf.get(), model.with("heads", int64_t{3})),
             Contains("model.heads = 3") && Contains("no value or 2"));
  CHECK_THAT(told(gguf.get(), model.with("share", 2.0)), Contains("only with share = 3.0, and this model has 2.0"));
  using Texts = std::vector<std::string>;
  CHECK(told(gguf.get(), model.with("kinds", Texts{"part", "full", "part"})).empty());
  CHECK_THAT(told(gguf.get(), model.with("kinds", Texts{"part", "full", "full"})),
             Contains("\"full\" for layer 3") && Contains("\"part\" there"));
  CHECK(gguf_notes(*gguf, model) == Texts{"always"});
  CHECK(gguf_notes(*gguf, two.with("width", int64_t{64})) == Texts{"always", "with heads", "wide"});
}

TEST_CASE("values of GGUF files by layer", "[gguf]") {
  std::string why;
  const auto gguf = described(
      "architecture = 'snake'\n" + tensors +
          "[provides.gguf.keys]\nblock_count = [{ length = 'kinds' }, { length = 'act' }]\n[provides.gguf.by_layer]\n"
          "a = { of = ['kinds', 'act'], entries = ['x', 'full'], is = 'heads', others = 0 }\n"
          "b = { of = ['numbers'], is = 3, others = 1 }\nc = { every = 'heads', from = 1, is = 5, others = 6 }\n",
      why);
  INFO(why);
  REQUIRE(gguf);
  const auto values = [&](std::map<std::string, Value> given) {
    given["heads"] = int64_t{2};
    GgufHeader header;
    const Section model = section(std::move(given));
    write_keys(*gguf, model, header);
    return header.finish({});
  };
  const auto wanted = [](uint32_t count, const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    GgufHeader header;
    header.number("snake.block_count", count);
    header.integers("snake.a", a), header.integers("snake.b", b);
    header.integers("snake.c", count == 3 ? std::vector<int32_t>{6, 5, 6} : std::vector<int32_t>{6, 5});
    return header.finish({});
  };
  using Texts = std::vector<std::string>;
  CHECK(values({{"kinds", Texts{"x", "y", "full"}}, {"numbers", std::vector<double>{1}}}) ==
        wanted(3, {2, 0, 2}, {1, 3, 1}));
  CHECK(values({{"act", std::string("yx")}}) == wanted(2, {0, 2}, {1, 1}));
  CHECK_THAT(refused("architecture = 'a'\n" + tensors +
                     "[provides.gguf.by_layer]\na = { of = ['none'], is = 1, others = 0 }\n"),
             Contains("there is no option 'none'"));
  CHECK_THAT(refused("architecture = 'a'\n" + tensors + "[provides.gguf.keys]\na = { length = 3 }\n"),
             Contains("'length' is of an option"));
}

TEST_CASE("variants of GGUF files, and factors of rows", "[gguf]") {
  using Texts = std::vector<std::string>;
  std::string why;
  const auto gguf = described(
      "architecture = 'snake'\n" + tensors +
          "[provides.gguf.keys]\na = 'width'\n[[provides.gguf.variants]]\nwhere = { kinds = 'x', width = 48 }\n"
          "architecture = 'boa'\n[provides.gguf.variants.tensors]\n'h.*.map' = 'blk.*.other'\n"
          "[provides.gguf.variants.keys]\nb = 'heads'\n[[provides.gguf.variants]]\nwhere = { act = 's' }\n"
          "architecture = 'viper'\n[provides.gguf.scale]\n'blk.*.map' = [{ rows = 'heads', by = ['share'] }, "
          "{ rows = 3, by = ['share', [{ entry = ['numbers', 1] }, 0.5]] }]\n'blk.*.other' = [{ by = [2] }]\n",
      why);
  INFO(why);
  REQUIRE(gguf);
  const Section model = section({{"width", int64_t{48}},
                                 {"heads", int64_t{2}},
                                 {"share", 2.5},
                                 {"act", std::string("tanh")},
                                 {"kinds", Texts{"y", "x"}},
                                 {"numbers", std::vector<double>{7, 4}}});
  const GgufModel boa = gguf_for(*gguf, model);
  CHECK(boa.architecture == "boa");
  CHECK(gguf_name(boa, "h.3.map.weight") == "blk.3.other.weight");
  CHECK(gguf_name(boa, "h.3.A_log") == "blk.3.a");
  CHECK(boa.keys.size() == 2);
  const Section other = model.with("kinds", Texts{"y"});
  CHECK(gguf_for(*gguf, other).architecture == "snake");
  CHECK(gguf_name(gguf_for(*gguf, other), "h.3.map.weight") == "blk.3.map.weight");
  CHECK(gguf_for(*gguf, other.with("act", std::string("silu"))).architecture == "viper");  // it has the letter
  const auto& parts = gguf->scale.at("blk.*.map");
  REQUIRE(parts.size() == 2);
  CHECK(gguf_factor(parts[0].by, model, "a") == 2.5);
  CHECK(gguf_factor(parts[1].by, model, "a") == 10.0);
  CHECK(gguf_factor(parts[1].by, model.with("numbers", std::vector<double>{7}), "a") == 1.25);
  const auto told_of = [&](const std::string& more) { return refused("architecture = 'a'\n" + tensors + more); };
  CHECK_THAT(told_of("[[provides.gguf.variants]]\narchitecture = 'b'\n"), Contains("'where'"));
  CHECK_THAT(told_of("[[provides.gguf.variants]]\nwhere = { none = 1 }\n"), Contains("there is no option 'none'"));
  CHECK_THAT(told_of("[[provides.gguf.variants]]\nwhere = {}\nrows = 1\n"), Contains("rows"));
  CHECK_THAT(told_of("[provides.gguf.scale]\n'blk.*.map' = 2\n"), Contains("must be a list"));
  CHECK_THAT(told_of("[provides.gguf.scale]\n'blk.*.map' = [{ by = [1] }, { by = [2] }]\n"), Contains("{ rows, by }"));
  CHECK_THAT(told_of("[provides.gguf.keys]\na = { entry = ['numbers', -1] }\n"), Contains("counted from 0"));
  CHECK_THAT(told_of("[provides.gguf.by_layer]\na = { every = 2, is = 1, others = 0 }\n"), Contains("'from'"));
}

TEST_CASE("mistakes in [provides.gguf] are told", "[gguf]") {
  CHECK(refused("none = 'nobody knows it'\n").empty());
  CHECK_THAT(refused("none = 'x'\narchitecture = 'snake'\n"), Contains("nothing else"));
  CHECK_THAT(refused(tensors), Contains("'architecture' is not a name"));
  CHECK_THAT(refused("architecture = 'snake'\n"), Contains("'tensors' is missing"));
  CHECK_THAT(refused("architecture = 'snake'\nsqueze = ['a']\n" + tensors), Contains("squeze"));
  const auto keys = [](const std::string& line) {
    return refused("architecture = 'snake'\n" + tensors + "[provides.gguf.keys]\n" + line);
  };
  CHECK_THAT(keys("a = 'length'"), Contains("there is no option 'length'"));
  CHECK_THAT(keys("a = []"), Contains("the list is empty"));
  CHECK_THAT(keys("a = { product = ['width'] }"), Contains("'product' has 2 to 16 factors"));
  CHECK_THAT(keys("a = { quotient = ['width', 2, 3] }"), Contains("'quotient' has 2 to 2 factors"));
  CHECK_THAT(keys("a = { sum = ['width', 2] }"), Contains("must be"));
  CHECK_THAT(keys("a = { ratio = ['width', 2], when = { act = 'silu' } }"), Contains("must be"));
  CHECK_THAT(keys("a = { value = 3, where = { length = 2 } }"), Contains("there is no option 'length'"));
  CHECK_THAT(keys("a = { root = { sum = 3 } }"), Contains("must be"));
  CHECK_THAT(refused("architecture = 'snake'\nnotes = ['a']\n" + tensors), Contains("'text'"));
  CHECK_THAT(refused("architecture = 'snake'\ngrouped = [{ from = 'h.*.a', groups = 2, parts = [1, 1] }]\n" + tensors),
             Contains("'grouped'"));
  CHECK_THAT(refused("architecture = 'snake'\ngrouped = [{ from = 'h.*.a', groups = 2, parts = [1, 1, 1], to = "
                     "['b.*.q', 'b.*.k'] }]\n" +
                     tensors),
             Contains("one for each part"));
  CHECK_THAT(refused("architecture = 'snake'\n" + tensors + "[provides.gguf.layers]\nkinds = { every = 2 }\n"),
             Contains("{ every, is, others }"));
  CHECK_THAT(refused("architecture = 'snake'\n[provides.gguf.tensors]\n'h.*.a' = 'blk.a'\n"), Contains("`*`"));
  CHECK_THAT(refused("architecture = 'snake'\n" + tensors + "[provides.gguf.fixed]\nlength = 1\n"),
             Contains("there is no option 'length'"));
}

TEST_CASE("rotary embedding in GGUF files", "[gguf]") {
  const Section plain = section({{"rope_type", std::string("default")},
                                 {"rope_theta", 10000.0},
                                 {"max_position_embeddings", int64_t{64}},
                                 {"rope_beta_fast", 32.0},
                                 {"rope_beta_slow", 1.0},
                                 {"rope_factor", {}},
                                 {"rope_attention_factor", {}},
                                 {"rope_original_max_position_embeddings", {}}});
  GgufHeader header;
  CHECK(write_rope("snake", plain, 8, header).empty());
  CHECK_THAT(header.finish({}), Contains("snake.rope.freq_base") && !Contains("scaling"));
  const Section yarn = plain.with("rope_type", std::string("yarn"))
                           .with("rope_original_max_position_embeddings", int64_t{16})
                           .with("rope_attention_factor", 1.5);
  CHECK(write_rope("snake", yarn, 8, header).empty());
  CHECK_THAT(header.finish({}), Contains("original_context_length") && Contains("attn_factor"));
  CHECK_NOTHROW(require_rope({"default", "yarn"}, "snake", yarn));
  CHECK_THROWS_AS(require_rope({"default"}, "snake", yarn), Error);
}

}  // namespace gguf_values_test
