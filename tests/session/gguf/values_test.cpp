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
      "[provides.gguf]\n" +
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
  CHECK_THAT(keys("a = { product = ['width'] }"), Contains("at least two factors"));
  CHECK_THAT(keys("a = { quotient = ['width', 2, 3] }"), Contains("a dividend and a divisor"));
  CHECK_THAT(keys("a = { sum = ['width', 2] }"), Contains("must be"));
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
