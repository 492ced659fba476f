// SPDX-License-Identifier: Apache-2.0
// What there is, and what people call it.
#include "core/config/source.hpp"

#include <algorithm>

namespace eng {
namespace {

constexpr double max_count = 1e9;  // of steps and samples: far above any run, far below an overflow

Option text(const char* key, Value fallback, const char* help, std::vector<std::string> choices = {}) {
  return {key, Type::string, std::move(fallback), {}, {}, std::move(choices), help};
}

Option integer(const char* key, Value fallback, double min, const char* help, double max = max_count) {
  return {key, Type::integer, std::move(fallback), min, max, {}, help};
}

// At least 0.
Option number(const char* key, Value fallback, const char* help, std::optional<double> max = {}) {
  return {key, Type::number, std::move(fallback), 0, max, {}, help};
}

// Names longer than this are no spelling of a key, and the distance is quadratic.
constexpr std::size_t longest = 64;

constexpr Foreign foreign[] = {
    {"gradient_accumulation_steps", "train.accumulate", "DeepSpeed's and Hugging Face's"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch", "DeepSpeed's"},
    {"per_device_train_batch_size", "train.micro_batch", "Hugging Face's"},
    {"micro_batch_size", "train.micro_batch", "Megatron's"},
    {"batch_size", "train.micro_batch", "another trainer's"},
    {"train_batch_size", "train.global_batch", "DeepSpeed's"},
    {"global_batch_size", "train.global_batch", "torchtitan's and Megatron's"},
    {"max_steps", "train.steps", "Hugging Face's"},
    {"train_iters", "train.steps", "Megatron's"},
    {"seq_len", "train.sequence_length", "torchtitan's"},
    {"max_seq_length", "train.sequence_length", "Hugging Face's"},
    {"gradient_clipping", "train.grad_clip", "DeepSpeed's"},
    {"max_grad_norm", "train.grad_clip", "Hugging Face's"},
    {"lr", "optimizer.learning_rate", "DeepSpeed's and torchtitan's"},
    {"adam_epsilon", "optimizer.eps", "Hugging Face's"},
    {"min_lr", "schedule.min_learning_rate", "Megatron's"},
    {"lr_scheduler_type", "schedule.kind", "Hugging Face's"},
    {"output_dir", "run.out", "Hugging Face's"},
    {"save_steps", "checkpoint.every", "Hugging Face's"},
    {"logging_steps", "log.every", "Hugging Face's"},
    {"steps_per_print", "log.every", "DeepSpeed's"},
    {"n_layer", "model.num_hidden_layers", "GPT-2's"},
    {"n_head", "model.num_attention_heads", "GPT-2's"},
    {"n_embd", "model.hidden_size", "GPT-2's"},
};

std::vector<SectionSchema> build() {
  using Texts = std::vector<std::string>;
  const Value none;
  const auto whole = [](int64_t n) { return Value(n); };
  const auto word = [](const char* w) { return Value(std::string(w)); };
  const auto plugin = [&](const char* name) { return text("plugin", word(name), "the plugin of this section"); };
  Option model = text("plugin", none, "the model plugin"), rate = number("learning_rate", 3e-4, "the largest rate");
  model.required = true;
  rate.above_min = true;
  return {
      {"run",
       "",
       {text("name", none, "name of the run; the file's name without its ending if absent"),
        text("out", word("runs"), "the directory that gets NAME/TIME-ID/")}},
      {"model", "eng.model/1", {model, text("preset", none, "a preset of the plugin; its values can be overridden"),
         text("from", none, "start from these weights: a Hugging Face directory, a run, or one of its checkpoints")}},
      {"data", "eng.data/1", {plugin("text")}},
      {"train",
       "",
       {integer("steps", whole(1000), 1, "optimizer steps of the run"),
        integer("micro_batch", whole(1), 1, "sequences that are in memory at a time, per rank"),
        integer("accumulate", whole(1), 1, "micro-batches per step"),
        integer("global_batch", none, 1, "sequences per step, instead of accumulate, which is then derived"),
        text("reduce", word("micro_batch"), "when gradients are reduced over ranks", {"micro_batch", "step"}),
        integer("sequence_length", whole(1024), 1, "tokens per sequence"),
        number("grad_clip", 1.0, "largest global norm of the gradient; 0: no clipping"),
        integer("seed", whole(1), 0, "of the weights, the data order and dropout", 9007199254740992.0),
        integer("eval_every", whole(0), 0, "steps between evaluations; 0: never"),
        integer("eval_batches", whole(8), 1, "micro-batches of one evaluation")}},
      {"optimizer", "eng.optimizer/1", {plugin("adamw"), rate}},
      {"schedule",
       "",
       {text("kind", word("constant"), "shape after the warm-up; the last three only with compatible = \"deepspeed\"",
             {"constant", "linear", "cosine", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}),
        integer("warmup_steps", whole(0), 0, "updates until the full learning rate"),
        text("warmup", word("linear"), "shape of the warm-up", {"linear", "log"}),
        number("min_learning_rate", 0.0, "where linear and cosine end"),
        text("compatible", word("none"), "follow another trainer update by update", {"none", "deepspeed"}),
        number("warmup_min_lr", 0.0, "deepspeed: learning rate before the warm-up"),
        number("warmup_max_lr", none, "deepspeed: learning rate after the warm-up"),
        integer("warmup_num_steps", whole(1000), 0, "deepspeed: updates of the warm-up"),
        text("warmup_type", word("log"), "deepspeed: shape of the warm-up", {"log", "linear"}),
        integer("total_num_steps", none, 1, "deepspeed: updates until the end of the decay"),
        number("warmup_min_ratio", 0.0, "deepspeed: WarmupCosineLR starts at this part of the learning rate", 1),
        number("cos_min_ratio", 1e-4, "deepspeed: WarmupCosineLR ends at this part of the learning rate", 1)}},
      {"precision", "eng.precision/1", {plugin("fp32")}},
      {"checkpoint",
       "",
       {integer("every", whole(500), 0, "steps between checkpoints; 0: the last step only"),
        integer("keep", whole(3), 0, "newest checkpoints that are kept; 0: all")}},
      {"device", "eng.device/1", {plugin("cpu")}},
      {"log", "", {integer("every", whole(1), 1, "steps between lines")}},
      {"plugins",
       "",
       {{"sha256", Type::strings, Texts{}, {}, {}, {}, "pinned files: \"ID=HASH\", the hash as `sha256sum FILE` says"},
        {"path", Type::strings, Texts{}, {}, {}, {}, "more folders with plugins, relative to the configuration file"}}},
  };
}

}  // namespace

const std::vector<SectionSchema>& section_schemas() {
  static const std::vector<SectionSchema> all = build();
  return all;
}

const Option* find_option(const Schema& schema, const std::string& key) {
  const auto found = std::find_if(schema.begin(), schema.end(), [&](const Option& o) { return o.key == key; });
  return found == schema.end() ? nullptr : &*found;
}

Schema merged(const SectionSchema& section, const PluginSchema* plugin) {
  Schema all = section.options;
  for (const Option& option : plugin ? plugin->options : Schema{}) {
    auto* own = const_cast<Option*>(find_option(all, option.key));
    if (!own)
      all.push_back(option);
    else if (own->type == option.type && own->key != "plugin" && option.fallback.index() != 0)
      own->fallback = option.fallback;
  }
  return all;
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      d[i][j] = i + j;
      if (i == 0 || j == 0) continue;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d.back().back();
}

std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& candidates) {
  std::vector<std::string> found;
  std::size_t best = name.size() <= 4 ? 1 : 2;
  for (const std::string& candidate : candidates) {
    if (name.empty() || name.size() > longest || candidate.size() > longest) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance > best) continue;
    if (distance < best) found.clear();
    best = distance;
    found.push_back(candidate);
  }
  return found;
}

std::string quoted_list(const std::vector<std::string>& names, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? last : ", ") + ("`" + names[i] + "`");
  return text;
}

const Foreign* foreign_key(const std::string& name) {
  const auto* row = std::find_if(std::begin(foreign), std::end(foreign), [&](auto& f) { return name == f.name; });
  return row == std::end(foreign) ? nullptr : row;
}

}  // namespace eng
