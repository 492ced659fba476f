// SPDX-License-Identifier: Apache-2.0
// DPO, IPO, SimPO, ORPO and KTO of axolotl, LLaMA-Factory and TRL become [loss], [reference] and data of pairs.
#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

Config preference_config(const Converted& made) {
  INFO(made.text << notes_of(made));
  return built_config(made.text, {"model.plugin=llama", "model.preset=tiny"});
}

const std::string three = "lora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n";

}  // namespace

TEST_CASE("convert: preferences of axolotl") {
  const std::string text = "base_model: x/llama-3.2-1b\nsequence_len: 64\nmax_steps: 9\nmicro_batch_size: 2\n";
  const Converted made = converted(text + "gradient_accumulation_steps: 4\nrl: dpo\nrl_beta: 0.2\nadapter: lora\n" +
                                       "lora_dropout: 0.1\nsample_packing: false\n" + three,
                                   "", "a.yml");
  const Config config = preference_config(made);
  const Section& loss = config.section("loss");
  CHECK(loss.string("plugin") == "preference");
  CHECK(loss.string("kind") == "dpo");
  CHECK(loss.number("beta") == 0.2);
  CHECK_FALSE(loss.boolean("average"));
  CHECK(config.section("reference").string("from") == "base");
  // A pair is two sequences, and dropout is off.
  CHECK(config.section("train").integer("micro_batch") == 4);
  CHECK(config.section("train").integer("accumulate") == 4);
  CHECK(config.section("transforms").as<Tables>("list")[0].values.at("dropout") == Value(0.0));
  CHECK_THAT(made.text, Contains("# plugin = \"pairs\"") && Contains("# too_long = \"skip\""));
  CHECK_THAT(line_of(made, "micro_batch"), Contains("(2): pairs, of two sequences each"));
  CHECK_THAT(notes_of(made), Contains("each line of the data has the texts prompt, chosen and rejected"));

  const Converted full = converted(text + "rl: ipo\n", "", "a.yml");
  CHECK(preference_config(full).section("reference").string("from") == "start");
  CHECK(preference_config(full).section("loss").boolean("average"));
  CHECK(preference_config(full).section("loss").number("beta") == 0.1);
  CHECK_THAT(notes_of(full), Contains("training from preferences begins with published weights: set model.from"));
  const Converted odds = converted(text + "rl: orpo\norpo_alpha: 0.3\n", "", "a.yml");
  CHECK(preference_config(odds).section("loss").string("kind") == "orpo");
  CHECK(preference_config(odds).section("loss").number("beta") == 0.3);
  CHECK_FALSE(preference_config(odds).section("reference").has("from"));
  CHECK(preference_config(converted(text + "rl: orpo\nrl_beta: 0.4\norpo_alpha: 0.3\n", "", "a.yml"))
            .section("loss")
            .number("beta") == 0.4);
  CHECK_THAT(notes_of(odds), Contains("as in the paper"));
  CHECK(preference_config(converted(text + "rl: simpo\ncpo_alpha: 0.0\nsimpo_gamma: 0.7\n", "", "a.yml"))
            .section("loss")
            .number("margin") == 0.7);
  const auto told = [&](const std::string& keys, const std::string& said) {
    INFO(keys);
    CHECK_THAT(refusal(text + keys, "", "a.yml"), Contains(said));
  };
  told("rl: simpo\n", "it has a term that is not here");
  told("rl: simpo\ncpo_alpha: 0.0\n", "`simpo_gamma` must be given");
  told("rl: grpo\n", "another kind of training");
  const Converted alone = converted(text + "rl: kto\nkto_desirable_weight: 0.5\n", "", "a.yml");
  CHECK(preference_config(alone).section("loss").string("kind") == "kto");
  CHECK(preference_config(alone).section("loss").number("desirable_weight") == 0.5);
  CHECK(preference_config(alone).section("train").integer("micro_batch") == 4);
  CHECK_THAT(alone.text, Contains("# unpaired = true"));
  CHECK_THAT(notes_of(alone), Contains("the texts prompt and completion, and label"));
  told("rl: dpo\nrpo_alpha: 1.0\n", "another kind of training");
  told("rl: dpo\nadapter: lora\nlora_model_dir: ./a\n" + three, "merge it into the model before");
}

TEST_CASE("convert: preferences of LLaMA-Factory") {
  const std::string text =
      "model_name_or_path: x/llama-3.2-1b\ncutoff_len: 64\nmax_steps: 9\nper_device_train_batch_size: 1\nstage: dpo\n";
  const auto from = [&](const std::string& keys) { return preference_config(converted(text + keys, "", "lf.yaml")); };
  const Config lora = from("finetuning_type: lora\npref_beta: 0.3\npref_loss: sigmoid\ndpo_label_smoothing: 0.1\n");
  CHECK(lora.section("loss").number("beta") == 0.3);
  CHECK(lora.section("loss").number("label_smoothing") == 0.1);
  CHECK(lora.section("reference").string("from") == "base");
  CHECK(lora.section("train").integer("micro_batch") == 2);
  const Config full = from("finetuning_type: full\npref_ftx: 0.5\n");
  CHECK(full.section("reference").string("from") == "start");
  CHECK(full.section("loss").number("nll") == 0.5);
  CHECK(from("finetuning_type: full\nref_model: ./sft\n").section("reference").string("from") == "./sft");
  const Config odds = from("finetuning_type: full\npref_loss: orpo\npref_ftx: 0.5\n");
  CHECK(odds.section("loss").string("kind") == "orpo");
  CHECK(odds.section("loss").number("nll") == 1.5);
  const Config simpo = from("pref_loss: simpo\nsimpo_gamma: 0.7\n");
  CHECK(simpo.section("loss").number("margin") == 0.7);
  CHECK(simpo.section("loss").number("beta") == 0.1);
  CHECK_THAT(
      refusal("model_name_or_path: x\nmax_steps: 9\nfinetuning_type: full\nstage: kto\npref_ftx: 0.5\n", "", "lf.yaml"),
      Contains("kto has no such term here"));
  CHECK_THAT(refusal(text + "pref_loss: hinge\n", "", "lf.yaml"),
             Contains("the losses of pairs here are dpo, ipo, simpo and orpo"));
  CHECK_THAT(refusal(text + "pref_bco_weight: 0.5\n", "", "lf.yaml"), Contains("there is no such setting here"));
}

TEST_CASE("convert: preferences of TRL") {
  const std::string text = "model_name_or_path: x/llama-3.2-1b\nmax_length: 64\nmax_steps: 9\n";
  const auto from = [&](const std::string& keys) {
    return preference_config(converted(text + keys, "trl dpo", "trl.yaml"));
  };
  const Config usual = from("");
  CHECK(usual.section("loss").string("kind") == "dpo");
  CHECK(usual.section("loss").number("beta") == 0.1);
  CHECK(usual.section("optimizer").number("learning_rate") == 1e-6);
  CHECK(usual.section("train").integer("micro_batch") == 16);
  CHECK(usual.section("reference").string("from") == "start");
  const Config lora = from("use_peft: true\nbeta: 0.5\nloss_type: ipo\nprecompute_ref_log_probs: true\n");
  CHECK(lora.section("loss").string("kind") == "ipo");
  CHECK(lora.section("loss").boolean("average"));
  CHECK(lora.section("loss").number("beta") == 0.5);
  CHECK(lora.section("reference").string("from") == "base");
  CHECK(lora.section("transforms").as<Tables>("list")[0].values.at("dropout") == Value(0.0));
  CHECK(from("loss_type: sigmoid_norm\n").section("loss").boolean("average"));
  const auto told = [&](const std::string& keys) { return refusal(text + keys, "trl dpo", "trl.yaml"); };
  CHECK_THAT(told("loss_type: hinge\n"), Contains("the losses of pairs here are"));
  CHECK_THAT(told("max_prompt_length: 32\n"), Contains("there is no such setting here: leave it out"));
  CHECK_THAT(refusal(text, "trl reward", "trl.yaml"), Contains("another kind of training"));
  const Config alone = preference_config(converted(text + "undesirable_weight: 2.0\n", "trl kto", "trl.yaml"));
  CHECK(alone.section("loss").string("kind") == "kto");
  CHECK(alone.section("loss").number("undesirable_weight") == 2);
  CHECK(alone.section("reference").string("from") == "start");
  CHECK_THAT(refusal(text + "loss_type: apo_zero_unpaired\n", "trl kto", "trl.yaml"),
             Contains("the loss of single answers here is kto"));
}
