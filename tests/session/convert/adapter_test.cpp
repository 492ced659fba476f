// SPDX-License-Identifier: Apache-2.0
// Adapters of axolotl, LLaMA-Factory and TRL become [adapter], and weights in 4 bits precision.frozen.
#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

Config adapter_config(const Converted& made) {
  INFO(made.text << notes_of(made));
  return built_config(made.text, {"model.plugin=llama", "model.preset=tiny"});
}

// The one transform.
std::map<std::string, Value> adapter_of(const Converted& made) {
  const Config config = adapter_config(made);
  const auto& list = config.section("transforms").as<Tables>("list");
  REQUIRE(list.size() == 1);
  return list[0].values;
}

using Texts = std::vector<std::string>;

const std::string axolotl = "base_model: NousResearch/Llama-3.2-1B\nsequence_len: 512\nmax_steps: 9\nadapter: ";

}  // namespace

TEST_CASE("convert: LoRA and QLoRA of axolotl") {
  const Converted lora = converted(axolotl + R"(lora
lora_r: 16
lora_alpha: 32
lora_dropout: 0.05
lora_target_modules:
  - q_proj
  - mlp.down_proj
peft_use_rslora: true
lora_modules_to_save:
lora_fan_in_fan_out: false
bf16: true
)",
                                   "", "a.yml");
  const auto keys = adapter_of(lora);
  CHECK(keys.at("plugin") == Value(std::string("lora")));
  CHECK(keys.at("rank") == Value(int64_t{16}));
  CHECK(keys.at("alpha") == Value(32.0));
  CHECK(keys.at("dropout") == Value(0.05));
  CHECK(keys.at("rslora") == Value(true));
  CHECK(keys.at("targets") == Value(Texts{"*.q_proj", "*.mlp.down_proj"}));
  const Converted of_gpt2 = converted(
      axolotl + "lora\nlora_r: 8\nlora_alpha: 16\nlora_target_modules:\n  - c_attn\nlora_fan_in_fan_out: true\n", "",
      "a.yml");
  CHECK(adapter_of(of_gpt2).at("targets") == Value(Texts{"*.attn.q", "*.attn.k", "*.attn.v"}));
  CHECK_THAT(notes_of(of_gpt2), Contains("each has a path of this rank"));
  CHECK(lora.text.find("frozen") == std::string::npos);
  // New weights are no base: which directory it is stays open.
  CHECK_THAT(lora.text, Contains("\n# from = \"DIR\"") && !Contains("\nplugin = \"llama\""));
  CHECK_THAT(notes_of(lora), Contains("`adapter`: an adapter stands beside published weights: set model.from") &&
                                 !Contains("new weights of this size are written"));

  const std::string sizes = "lora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n";
  const Converted four = converted(axolotl + "qlora\nload_in_4bit: true\n" + sizes + "bf16: auto\n", "", "a.yml");
  CHECK(adapter_of(four).at("targets") == Value(Texts{"all-linear"}));
  CHECK(adapter_config(four).section("precision").string("frozen") == "nf4_double");
  CHECK(adapter_config(four).section("precision").string("plugin") == "bf16");
  CHECK_THAT(notes_of(four), Contains("precision.frozen = \"nf4\" does not quantise them"));
  CHECK(adapter_of(converted(axolotl + "lora\n" + sizes + "peft_init_lora_weights: gaussian\n", "", "a.yml"))
            .at("init") == Value(std::string("normal")));
  const auto dora = [&](const std::string& flag) {
    return adapter_of(converted(axolotl + "lora\npeft_use_dora: " + flag + "\n" + sizes, "", "a.yml"));
  };
  CHECK(dora("true").at("dora") == Value(true));
  CHECK(dora("false").count("dora") == 0);
  CHECK_THAT(converted(axolotl + "lora\nlora_model_dir: ./adapter\n" + sizes, "", "a.yml").text,
             Contains("# adapter = \"./adapter\""));

  const auto told = [&](const std::string& keys_of, const std::string& said) {
    INFO(keys_of);
    CHECK_THAT(refusal(axolotl + keys_of, "", "a.yml"), Contains(said));
  };
  told("lora\nlora_target_linear: true\n", "`lora_r` and `lora_alpha` must both be given");
  // It passes an empty list of targets to PEFT, which refuses it.
  told("lora\nlora_r: 8\nlora_alpha: 16\n", "neither lora_target_modules nor lora_target_linear is given");
  told("lora\n" + sizes + "lora_target_modules:\n  - lm_head\n", "means the maps of the layers alone");
  CHECK(adapter_of(converted(axolotl + "lora\n" + sizes + "lora_target_modules:\n  - q_proj\n", "", "a.yml"))
            .at("targets") == Value(Texts{"all-linear"}));
  told("qlora\n" + sizes, "needs load_in_4bit: true");
  told("lora\nload_in_8bit: true\n" + sizes, "the 8 bits of LLM.int8() are not here");
  told("lora\nlora_modules_to_save:\n  - embed_tokens\n" + sizes, "--ignore lora_modules_to_save");
  told("lora\nloftq_config:\n  loftq_bits: 4\n" + sizes, "adapters have no such setting here");
  told("lora\npeft_init_lora_weights: pissa\n" + sizes, "A is initialised as PEFT does by default");
  told("lora\nlora_r: 8\nlora_alpha: 16\nlora_target_modules: 'model.layers.[0-9]+.q_proj'\n",
       "a regular expression is not converted");
  told("lora\nlora_r: 8\nlora_alpha: 16\nlora_target_modules:\n  - all-linear\n  - q_proj\n", "are both given");
}

TEST_CASE("convert: LoRA and QLoRA of LLaMA-Factory") {
  const std::string text = "model_name_or_path: x/llama-3.2-1b\nstage: sft\ncutoff_len: 64\nmax_steps: 9\n";
  const auto from = [&](const std::string& keys) { return converted(text + keys, "", "lf.yaml"); };
  const auto all = adapter_of(from("finetuning_type: lora\n"));
  CHECK(all.at("targets") == Value(Texts{"all-linear"}));
  CHECK(all.at("rank") == Value(int64_t{8}));
  CHECK(all.at("alpha") == Value(16.0));
  CHECK(adapter_of(from("")) == all);  // its default
  const auto some = adapter_of(from("finetuning_type: lora\nlora_rank: 4\nlora_target: q_proj, v_proj\n"));
  CHECK(some.at("targets") == Value(Texts{"*.q_proj", "*.v_proj"}));
  CHECK(some.at("alpha") == Value(8.0));
  CHECK(adapter_of(from("lora_rank: 4\nlora_alpha: 0\n")).at("alpha") == Value(8.0));  // 0 is "not given" there
  const auto frozen = [&](const std::string& keys) {
    return adapter_config(from("finetuning_type: lora\nbf16: true\n" + keys)).section("precision").string("frozen");
  };
  CHECK(frozen("quantization_bit: 4\nquantization_method: bnb\n") == "nf4_double");
  CHECK(frozen("quantization_bit: 4\ndouble_quantization: false\n") == "nf4");
  const auto told = [&](const std::string& keys) { return refusal(text + keys, "", "lf.yaml"); };
  CHECK_THAT(told("quantization_bit: 8\n"), Contains("the 8 bits of LLM.int8() are not here"));
  CHECK_THAT(told("quantization_bit: 4\nquantization_method: hqq\n"), Contains("those of bitsandbytes' nf4"));
  CHECK_THAT(told("quantization_bit: 4\nquantization_type: fp4\n"), Contains("weights in 4 bits are nf4 here"));
  CHECK_THAT(told("pissa_init: true\n"), Contains("--ignore pissa_init"));
  CHECK_THAT(told("adapter_name_or_path: a,b\n"), Contains("a run starts from one adapter"));
  CHECK(adapter_of(from("finetuning_type: lora\nuse_dora: true\n")).at("dora") == Value(true));
}

TEST_CASE("convert: LoRA and QLoRA of TRL") {
  const std::string text = "model_name_or_path: x/llama-3.2-1b\nmax_length: 64\nmax_steps: 9\nuse_peft: true\n";
  const auto from = [&](const std::string& keys) { return converted(text + keys, "trl sft", "trl.yaml"); };
  const auto usual = adapter_of(from(""));
  CHECK(usual.at("targets") == Value(Texts{"*.q_proj", "*.v_proj"}));
  CHECK(usual.at("rank") == Value(int64_t{16}));
  CHECK(usual.at("alpha") == Value(32.0));
  CHECK(usual.at("dropout") == Value(0.05));
  CHECK(adapter_of(from("lora_r: 4\nlora_target_modules: all-linear\n")).at("targets") == Value(Texts{"all-linear"}));
  CHECK(adapter_of(from("use_dora: true\n")).at("dora") == Value(true));
  CHECK(usual.count("dora") == 0);
  const Config four = adapter_config(from("load_in_4bit: true\n"));
  CHECK(four.section("precision").string("frozen") == "nf4");
  CHECK(
      adapter_config(from("load_in_4bit: true\nuse_bnb_nested_quant: true\n")).section("precision").string("frozen") ==
      "nf4_double");
  const auto told = [&](const std::string& keys) { return refusal(text + keys, "trl sft", "trl.yaml"); };
  CHECK_THAT(told("load_in_4bit: true\nbnb_4bit_quant_type: fp4\n"), Contains("weights in 4 bits are nf4 here"));
  CHECK_THAT(told("load_in_8bit: true\n"), Contains("LLM.int8()"));
  CHECK_THAT(told("lora_modules_to_save: [lm_head]\n"), Contains("--ignore lora_modules_to_save"));
  // PEFT chooses by the model, which is not known.
  CHECK_THAT(refusal("use_peft: true\nmax_steps: 3\n", "trl sft", "trl.yaml"),
             Contains("lora_target_modules is not given, and PEFT's choice for this model is not known here"));
}
