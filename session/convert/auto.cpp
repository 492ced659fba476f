// SPDX-License-Identifier: Apache-2.0
// "auto" in a DeepSpeed file: Hugging Face's trainer replaces it by its own arguments, and refuses a file that
// contradicts them. DeepSpeed itself knows no "auto": it fails, or takes its default.
#include <cmath>

#include "session/config/foreign.hpp"
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

struct Twin {
  const char *deepspeed, *huggingface;
};
const Twin twins[] = {{"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
                      {"gradient_accumulation_steps", "gradient_accumulation_steps"},
                      {"gradient_clipping", "max_grad_norm"},
                      {"optimizer.params.lr", "learning_rate"},
                      {"optimizer.params.eps", "adam_epsilon"},
                      {"optimizer.params.weight_decay", "weight_decay"},
                      {"scheduler.params.warmup_max_lr", "learning_rate"},
                      {"scheduler.params.warmup_num_steps", "warmup_steps"},
                      {"scheduler.params.total_num_steps", "max_steps"},
                      {"fp16.enabled", "fp16"},
                      {"bf16.enabled", "bf16"}};

// True if a DeepSpeed value and an argument are the same; also if they cannot be compared.
bool agree(const Value& theirs, const Value& argument) {
  const auto a = as_number(theirs), b = as_number(argument);
  if (a && b) return *a == *b;
  const auto x = as_flag(theirs), y = as_flag(argument);
  return !x || !y || *x == *y;
}

struct Resolver {
  Job& job;
  std::vector<std::string> defaults, dropped;  // for the notes

  // The argument, or Hugging Face's default for it.
  void fill(const std::string& name, const char* argument, Entry& entry) {
    const Entry* given = job.flat.find(argument);
    if (std::string(argument) == "max_steps" && given && as_number(given->value).value_or(0) <= 0) given = nullptr;
    if (std::string(argument) == "warmup_steps" && (!given || given->value == Value(int64_t{0}))) {
      if (ratio(entry)) return;
    }
    if (given) {
      if (std::string(argument) != "max_steps") job.flat.take(argument);
      entry.value = given->value;
      entry.odd = given->odd;
      entry.origin = fmt::format("{} = \"auto\": {}", name, given->origin);
    } else {
      const auto fallback = default_of(job, argument);
      entry.value = fallback ? fallback->value : Value();
      entry.origin = fmt::format("{} = \"auto\": {}", name, fallback ? fallback->origin : argument);
      if (fallback) defaults.push_back(name);
    }
  }

  // The warm-up as a part of the steps.
  bool ratio(Entry& entry) {
    const Entry* part = job.flat.take("warmup_ratio");
    const Entry* steps = job.flat.find("max_steps");
    const double share = part ? as_number(part->value).value_or(0) : 0;
    const int64_t all = steps ? as_whole(steps->value).value_or(0) : 0;
    if (share <= 0) return false;
    entry.origin = "scheduler.params.warmup_num_steps = \"auto\": " + part->origin;
    if (share <= 1 && all > 0) {
      entry.value = static_cast<int64_t>(std::ceil(share * static_cast<double>(all)));
      entry.origin += " x " + steps->origin;
    } else {
      entry.value = {};
      job.out.note("`" + part->origin +
                   "` counts parts of a run whose steps are not known: set schedule.warmup_num_steps");
    }
    return true;
  }

  void betas(Entry& entry) {
    std::vector<double> both;
    std::string origin;
    for (const char* name : {"adam_beta1", "adam_beta2"}) {
      const Entry* given = job.flat.take(name);
      const auto number = given ? as_number(given->value) : as_number(default_of(job, name)->value);
      if (!number) return job.out.problem(fmt::format("`{}` must be a number, not {}", given->origin, shown(*given)));
      both.push_back(*number);
      if (given) origin += (origin.empty() ? "" : ", ") + given->origin;
    }
    entry.value = both;
    entry.origin = "optimizer.params.betas = \"auto\": " +
                   (origin.empty() ? "Hugging Face's default of adam_beta1, adam_beta2" : origin);
  }

  // Hugging Face takes the square of the width.
  void bucket(const std::string& name, Entry& entry) {
    const auto width = job.out.of_model("hidden_size");
    entry.value = {};
    if (!width || *width > 1'000'000)
      return job.out.note("`" + name +
                          "` = \"auto\" is hidden_size x hidden_size, but the model is not known: "
                          "zero.bucket keeps its default");
    entry.value = *width * *width;
    entry.origin = fmt::format("{} = \"auto\": hidden_size^2", name);
  }

  void resolve(const std::string& name, Entry& entry) {
    for (const Twin& twin : twins)
      if (name == twin.deepspeed) return fill(name, twin.huggingface, entry);
    if (name == "optimizer.params.betas") return betas(entry);
    if (name == "zero_optimization.reduce_bucket_size") return bucket(name, entry);
    if (name == "scheduler.params.warmup_min_lr") {
      entry.value = int64_t{0};
      entry.origin = name + " = \"auto\"";
      return;
    }
    if (name.starts_with("zero_optimization.stage3_")) return;  // these have no equivalent: `rest` says so
    entry.value = {};
    if (name != "train_batch_size") dropped.push_back(name);  // which is the product of the others
  }

  void contradictions() {
    for (const Twin& twin : twins) {
      const Entry *theirs = job.deepspeed.find(twin.deepspeed), *argument = job.flat.find(twin.huggingface);
      if (!theirs || !argument || theirs->value == Value(std::string("auto"))) continue;
      if (std::string(twin.huggingface) == "max_steps" && as_number(argument->value).value_or(0) <= 0) continue;
      if (!agree(theirs->value, argument->value))
        job.out.problem(fmt::format("`{}` = {} contradicts `{}` = {}: Hugging Face's trainer refuses this",
                                    theirs->origin, shown(*theirs), argument->origin, shown(*argument)));
      else if (std::string(twin.huggingface) != "max_steps")
        job.flat.take(twin.huggingface);
    }
  }
};

}  // namespace

std::optional<Entry> default_of(const Job& job, const std::string& argument) {
  struct Default {
    const char *trainer, *argument;
    Value value;
    const char* whose = "Hugging Face";
  };
  static const Default all[] = {{"axolotl", "per_device_train_batch_size", int64_t{1}, "axolotl"},
                                {"axolotl", "lr_scheduler_type", std::string("cosine"), "axolotl"},
                                {"axolotl", "max_length", int64_t{512}, "axolotl"},
                                {"trl", "learning_rate", 2e-5, "TRL"},
                                {"trl", "max_length", int64_t{1024}, "TRL"},
                                {"llamafactory", "max_length", int64_t{2048}, "LLaMA-Factory"},
                                {"axolotl", "num_train_epochs", 1.0, "axolotl"},
                                {"nanogpt", "per_device_train_batch_size", int64_t{12}, "nanoGPT"},
                                {"nanogpt", "gradient_accumulation_steps", int64_t{40}, "nanoGPT"},
                                {"nanogpt", "max_steps", int64_t{600000}, "nanoGPT"},
                                {"nanogpt", "block_size", int64_t{1024}, "nanoGPT"},
                                {"nanogpt", "learning_rate", 6e-4, "nanoGPT"},
                                {"nanogpt", "weight_decay", 0.1, "nanoGPT"},
                                {"nanogpt", "adam_beta1", 0.9, "nanoGPT"},
                                {"nanogpt", "adam_beta2", 0.95, "nanoGPT"},
                                {"nanogpt", "max_grad_norm", 1.0, "nanoGPT"},
                                {"nanogpt", "warmup_steps", int64_t{2000}, "nanoGPT"},
                                {"nanogpt", "lr_decay_iters", int64_t{600000}, "nanoGPT"},
                                {"nanogpt", "min_lr", 6e-5, "nanoGPT"},
                                {"nanogpt", "dtype", std::string("bfloat16"), "nanoGPT"},
                                {"megatron", "adam_beta1", 0.9, "Megatron"},
                                {"megatron", "adam_beta2", 0.999, "Megatron"},
                                {"megatron", "adam_epsilon", 1e-8, "Megatron"},
                                {"megatron", "weight_decay", 0.01, "Megatron"},
                                {"megatron", "max_grad_norm", 1.0, "Megatron"},
                                {"", "num_train_epochs", 3.0},
                                {"", "per_device_train_batch_size", int64_t{8}},
                                {"", "gradient_accumulation_steps", int64_t{1}},
                                {"", "max_grad_norm", 1.0},
                                {"", "learning_rate", 5e-5},
                                {"", "weight_decay", 0.0},
                                {"", "adam_beta1", 0.9},
                                {"", "adam_beta2", 0.999},
                                {"", "adam_epsilon", 1e-8},
                                {"", "lr_scheduler_type", std::string("linear")},
                                {"", "warmup_steps", int64_t{0}},
                                {"", "fp16", false},
                                {"", "bf16", false}};
  if (job.trainer == "trl" && (job.kind == "dpo" || job.kind == "kto") && argument == "learning_rate")
    return Entry{1e-6, "", "TRL's default of learning_rate for preferences"};
  if (job.no_trainer && job.huggingface && argument == "max_grad_norm")
    return Entry{0.0, "", "scripts without Hugging Face's trainer do not clip"};
  for (const Default& one : all)
    if (argument == one.argument && (one.trainer == job.trainer || (!*one.trainer && job.huggingface)))
      return Entry{one.value, "", fmt::format("{}'s default of {}", one.whose, argument)};
  return std::nullopt;
}

bool is_null(const Entries& entries, const std::string& name) {
  const auto found = entries.all.find(name);
  return found != entries.all.end() && found->second.value.index() == 0 && found->second.odd.empty();
}

std::optional<Entry> pick(Job& job, const std::string& deepspeed, const std::string& argument) {
  if (const Entry* theirs = deepspeed.empty() ? nullptr : job.deepspeed.take(deepspeed)) return *theirs;
  if (!deepspeed.empty() && is_null(job.deepspeed, deepspeed)) return std::nullopt;
  if (argument.empty()) return std::nullopt;
  if (const Entry* given = job.flat.take(argument)) return *given;
  if (is_null(job.flat, argument))
    if (const auto meant = translation(job.trainer, argument, {}); meant && !meant->values.empty())
      return Entry{meant->values[0].second, "", job.flat.all.at(argument).origin + " = null"};
  return job.defaults ? default_of(job, argument) : std::nullopt;
}

void resolve_auto(Job& job) {
  Resolver resolver{job, {}, {}};
  if (job.huggingface && job.has_deepspeed) resolver.contradictions();
  const bool batch = job.deepspeed.has("train_batch_size");
  for (auto& [name, entry] : job.deepspeed.all)
    if (entry.value == Value(std::string("auto"))) resolver.resolve(name, entry);
  if (batch && !job.deepspeed.has("train_batch_size")) job.deepspeed.take("train_batch_size");
  if (!resolver.defaults.empty())
    job.out.note(
        fmt::format("\"auto\" of {}: no argument is given, so Hugging Face's default is written; give the "
                    "launch line with --args",
                    fmt::join(resolver.defaults, ", ")));
  if (!resolver.dropped.empty())
    job.out.note(fmt::format("\"auto\" of {}: Hugging Face's trainer does not fill it; the default counts",
                             fmt::join(resolver.dropped, ", ")));
}

}  // namespace eng::converter
