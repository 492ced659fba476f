// SPDX-License-Identifier: Apache-2.0
// The core's sections: keys, defaults and ranges. A plugin adds its own keys to the section that names it.
#include "core/config/config.hpp"

namespace eng {
namespace {

constexpr double max_count = 1e9;  // of steps and samples: far above any run, far below an overflow

Option make(std::string key, Type type, Value fallback, std::string help) {
  Option option;
  option.key = std::move(key);
  option.type = type;
  option.fallback = std::move(fallback);
  option.help = std::move(help);
  return option;
}

Option integer(std::string key, Value fallback, double min, double max, std::string help) {
  Option option = make(std::move(key), Type::integer, std::move(fallback), std::move(help));
  option.min = min;
  option.max = max;
  return option;
}

Option number(std::string key, Value fallback, double min, std::optional<double> max, std::string help) {
  Option option = make(std::move(key), Type::number, std::move(fallback), std::move(help));
  option.min = min;
  option.max = max;
  return option;
}

Option above(Option option) {
  option.above_min = true;
  return option;
}

Option text(std::string key, Value fallback, std::string help) {
  return make(std::move(key), Type::string, std::move(fallback), std::move(help));
}

Option choice(std::string key, const char* fallback, std::vector<std::string> choices, std::string help) {
  Option option = text(std::move(key), std::string(fallback), std::move(help));
  option.choices = std::move(choices);
  return option;
}

Option plugin(const char* fallback, const char* help) {
  return text("plugin", std::string(fallback), help);
}

Schema model() {
  Option named = text("plugin", {}, "the model plugin");
  named.required = true;
  return {named, text("preset", {}, "a preset of the model plugin; every value of it can be overridden"),
          text("from", {}, "a directory in Hugging Face layout to start from, instead of a preset")};
}

Schema train() {
  return {
      integer("steps", int64_t{1000}, 1, max_count, "optimizer steps of the run"),
      integer("micro_batch", int64_t{1}, 1, max_count, "sequences that are in memory at a time, per rank"),
      integer("accumulate", int64_t{1}, 1, max_count, "micro-batches per step"),
      integer("global_batch", {}, 1, max_count, "sequences per step, instead of accumulate, which is then derived"),
      choice("reduce", "micro_batch", {"micro_batch", "step"}, "when gradients are reduced over ranks"),
      integer("sequence_length", int64_t{1024}, 1, max_count, "tokens per sequence"),
      number("grad_clip", 1.0, 0, {}, "largest global norm of the gradient; 0: no clipping"),
      integer("seed", int64_t{1}, 0, 9007199254740992.0, "of the weights, the data order and dropout"),
      integer("eval_every", int64_t{0}, 0, max_count, "steps between evaluations; 0: never"),
      integer("eval_batches", int64_t{8}, 1, max_count, "micro-batches of one evaluation"),
  };
}

Schema schedule() {
  return {
      choice("kind", "constant", {"constant", "linear", "cosine", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"},
             "shape after the warm-up; the last three only with compatible = \"deepspeed\""),
      integer("warmup_steps", int64_t{0}, 0, max_count, "updates until the full learning rate"),
      choice("warmup", "linear", {"linear", "log"}, "shape of the warm-up"),
      number("min_learning_rate", 0.0, 0, {}, "where linear and cosine end"),
      choice("compatible", "none", {"none", "deepspeed"}, "follow another trainer update by update"),
      number("warmup_min_lr", 0.0, 0, {}, "deepspeed: learning rate before the warm-up"),
      number("warmup_max_lr", {}, 0, {}, "deepspeed: learning rate after the warm-up"),
      integer("warmup_num_steps", int64_t{1000}, 0, max_count, "deepspeed: updates of the warm-up"),
      choice("warmup_type", "log", {"log", "linear"}, "deepspeed: shape of the warm-up"),
      integer("total_num_steps", {}, 1, max_count, "deepspeed: updates until the end of the decay"),
      number("warmup_min_ratio", 0.0, 0, 1, "deepspeed: WarmupCosineLR starts at this part of the learning rate"),
      number("cos_min_ratio", 1e-4, 0, 1, "deepspeed: WarmupCosineLR ends at this part of the learning rate"),
  };
}

std::vector<SectionSchema> build() {
  return {
      {"run",
       "",
       {text("name", {}, "name of the run; the file's name without its ending if absent"),
        text("out", std::string("runs"), "the directory that gets NAME/TIME-ID/")},
       "the run and where it is kept"},
      {"model", "eng.model/1", model(), "what is trained"},
      {"data", "eng.data/1", {plugin("text", "the data plugin")}, "what it is trained on"},
      {"train", "", train(), "the step"},
      {"optimizer",
       "eng.optimizer/1",
       {plugin("adamw", "the optimizer plugin"),
        above(number("learning_rate", 3e-4, 0, {}, "the largest learning rate of the schedule"))},
       "how weights are updated"},
      {"schedule", "", schedule(), "the learning rate over the run"},
      {"precision", "eng.precision/1", {plugin("fp32", "the precision plugin")}, "number formats"},
      {"checkpoint",
       "",
       {integer("every", int64_t{500}, 0, max_count, "steps between checkpoints; 0: the last step only"),
        integer("keep", int64_t{3}, 0, max_count, "newest checkpoints that are kept; 0: all")},
       "checkpoints; the last step is always saved"},
      {"device", "eng.device/1", {plugin("cpu", "the device plugin")}, "where it runs"},
      {"log", "", {integer("every", int64_t{1}, 1, max_count, "steps between lines")}, "what is printed"},
      {"plugins",
       "",
       {make("sha256", Type::strings, std::vector<std::string>{}, "pinned plugin files, as \"ID=HASH\""),
        make("path", Type::strings, std::vector<std::string>{}, "more directories to look for plugins in")},
       "where plugins come from"},
  };
}

}  // namespace

const std::vector<SectionSchema>& section_schemas() {
  static const std::vector<SectionSchema> all = build();
  return all;
}

}  // namespace eng
