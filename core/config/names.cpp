// SPDX-License-Identifier: Apache-2.0
#include "core/config/names.hpp"

#include <algorithm>
#include <array>

#include "core/config/config.hpp"

namespace eng {
namespace {

// Names longer than this are no spelling of a key, and the table below is quadratic.
constexpr std::size_t longest = 64;

constexpr Foreign foreign[] = {
    {"gradient_accumulation_steps", "train.accumulate", "DeepSpeed's and Hugging Face's"},
    {"accumulation_steps", "train.accumulate", "another trainer's"},
    {"grad_accum", "train.accumulate", "another trainer's"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch", "DeepSpeed's"},
    {"per_device_train_batch_size", "train.micro_batch", "Hugging Face's"},
    {"micro_batch_size", "train.micro_batch", "Megatron's"},
    {"local_batch_size", "train.micro_batch", "torchtitan's"},
    {"batch_size", "train.micro_batch", "another trainer's"},
    {"train_batch_size", "train.global_batch", "DeepSpeed's"},
    {"global_batch_size", "train.global_batch", "torchtitan's and Megatron's"},
    {"max_steps", "train.steps", "Hugging Face's"},
    {"num_steps", "train.steps", "another trainer's"},
    {"num_train_steps", "train.steps", "another trainer's"},
    {"train_iters", "train.steps", "Megatron's"},
    {"max_iters", "train.steps", "another trainer's"},
    {"epochs", "train.steps", "another trainer's"},
    {"num_train_epochs", "train.steps", "Hugging Face's"},
    {"seq_len", "train.sequence_length", "torchtitan's"},
    {"seq_length", "train.sequence_length", "Megatron's"},
    {"max_seq_len", "train.sequence_length", "another trainer's"},
    {"max_seq_length", "train.sequence_length", "Hugging Face's"},
    {"sequence_len", "train.sequence_length", "axolotl's"},
    {"block_size", "train.sequence_length", "another trainer's"},
    {"context_length", "train.sequence_length", "another trainer's"},
    {"gradient_clipping", "train.grad_clip", "DeepSpeed's"},
    {"max_grad_norm", "train.grad_clip", "Hugging Face's"},
    {"max_norm", "train.grad_clip", "torchtitan's"},
    {"clip_grad", "train.grad_clip", "Megatron's"},
    {"eval_interval", "train.eval_every", "Megatron's"},
    {"eval_steps", "train.eval_every", "Hugging Face's"},
    {"eval_iters", "train.eval_batches", "Megatron's"},
    {"random_seed", "train.seed", "another trainer's"},
    {"lr", "optimizer.learning_rate", "DeepSpeed's and torchtitan's"},
    {"betas", "optimizer.beta1", "PyTorch's"},
    {"adam_beta1", "optimizer.beta1", "Hugging Face's and Megatron's"},
    {"adam_beta2", "optimizer.beta2", "Hugging Face's and Megatron's"},
    {"adam_epsilon", "optimizer.eps", "Hugging Face's"},
    {"adam_eps", "optimizer.eps", "Megatron's"},
    {"epsilon", "optimizer.eps", "another trainer's"},
    {"wd", "optimizer.weight_decay", "another trainer's"},
    {"min_lr", "schedule.min_learning_rate", "Megatron's"},
    {"lr_min", "schedule.min_learning_rate", "another trainer's"},
    {"lr_scheduler_type", "schedule.kind", "Hugging Face's"},
    {"lr_scheduler", "schedule.kind", "axolotl's"},
    {"lr_decay_style", "schedule.kind", "Megatron's"},
    {"decay_type", "schedule.kind", "torchtitan's"},
    {"lr_warmup_iters", "schedule.warmup_steps", "Megatron's"},
    {"warmup_iters", "schedule.warmup_steps", "another trainer's"},
    {"warmup_ratio", "schedule.warmup_steps", "Hugging Face's"},
    {"output_dir", "run.out", "Hugging Face's"},
    {"dump_folder", "run.out", "torchtitan's"},
    {"run_name", "run.name", "Hugging Face's"},
    {"save_steps", "checkpoint.every", "Hugging Face's"},
    {"save_interval", "checkpoint.every", "Megatron's"},
    {"save_total_limit", "checkpoint.keep", "Hugging Face's"},
    {"keep_latest_k", "checkpoint.keep", "torchtitan's"},
    {"logging_steps", "log.every", "Hugging Face's"},
    {"steps_per_print", "log.every", "DeepSpeed's"},
    {"log_freq", "log.every", "torchtitan's"},
    {"log_interval", "log.every", "Megatron's"},
    {"model_name_or_path", "model.from", "Hugging Face's"},
    {"base_model", "model.from", "axolotl's"},
    {"flavor", "model.preset", "torchtitan's"},
    {"n_layer", "model.num_hidden_layers", "GPT-2's"},
    {"n_layers", "model.num_hidden_layers", "torchtitan's"},
    {"num_layers", "model.num_hidden_layers", "Megatron's"},
    {"n_head", "model.num_attention_heads", "GPT-2's"},
    {"n_heads", "model.num_attention_heads", "torchtitan's"},
    {"num_heads", "model.num_attention_heads", "another trainer's"},
    {"n_kv_heads", "model.num_key_value_heads", "torchtitan's"},
    {"num_query_groups", "model.num_key_value_heads", "Megatron's"},
    {"n_embd", "model.hidden_size", "GPT-2's"},
    {"dim", "model.hidden_size", "torchtitan's"},
    {"d_model", "model.hidden_size", "another trainer's"},
    {"ffn_hidden_size", "model.intermediate_size", "Megatron's"},
    {"norm_eps", "model.rms_norm_eps", "torchtitan's"},
    {"stage", "zero.plugin", "DeepSpeed's"},
    {"reduce_bucket_size", "zero.bucket", "DeepSpeed's"},
    {"overlap_comm", "zero.overlap", "DeepSpeed's"},
    {"gradient_checkpointing", "recompute.policy", "Hugging Face's"},
    {"activation_checkpoint", "recompute.policy", "torchtitan's"},
    {"offload_optimizer", "offload.optimizer", "DeepSpeed's"},
    {"nvme_path", "offload.nvme_paths", "DeepSpeed's"},
};

struct SectionAlias {
  const char* name;
  const char* here;
};
constexpr SectionAlias section_aliases[] = {
    {"training", "train"},
    {"trainer", "train"},
    {"dataset", "data"},
    {"datasets", "data"},
    {"optim", "optimizer"},
    {"optimiser", "optimizer"},
    {"scheduler", "schedule"},
    {"lr_scheduler", "schedule"},
    {"bf16", "precision"},
    {"fp16", "precision"},
    {"fp32", "precision"},
    {"mixed_precision", "precision"},
    {"logging", "log"},
    {"metrics", "log"},
    {"checkpointing", "checkpoint"},
    {"job", "run"},
    {"plugin", "plugins"},
    {"zero_optimization", "zero"},
    {"activation_checkpoint", "recompute"},
    {"activation_checkpointing", "recompute"},
    {"communication", "comm"},
};

struct Later {
  const char* section;
  std::array<const char*, 9> keys;
};
// `plugin` and `optimizer` are left out: they would claim keys that other sections have.
constexpr Later later[] = {
    {"recompute", {"policy", "blocks", "budget"}},
    {"zero", {"bucket", "overlap", "prefetch", "live_limit"}},
    {"offload", {"master", "gradients", "parameters", "activations", "ratio", "nvme_paths", "pinned"}},
    {"comm", {"timeout", "port"}},
};

}  // namespace

std::size_t edit_distance(const std::string& a, const std::string& b) {
  // Three rows of the classic table; a swap looks two rows up.
  std::vector<std::size_t> above2(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(above2, above);
    std::swap(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], above2[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest_all(const std::string& name, const std::vector<std::string>& candidates) {
  std::vector<std::string> found;
  if (name.empty() || name.size() > longest) return found;
  std::size_t best = name.size() <= 4 ? 1 : 2;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > longest) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance > best) continue;
    if (distance < best) found.clear();
    best = distance;
    found.push_back(candidate);
  }
  return found;
}

std::string nearest(const std::string& name, const std::vector<std::string>& candidates) {
  const auto found = nearest_all(name, candidates);
  return found.empty() ? "" : found.front();
}

std::string quoted_list(const std::vector<std::string>& names, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? last : ", ";
    text += "`" + names[i] + "`";
  }
  return text;
}

const Foreign* foreign_key(const std::string& name) {
  for (const Foreign& entry : foreign)
    if (name == entry.name) return &entry;
  return nullptr;
}

std::string foreign_section(const std::string& name) {
  for (const SectionAlias& alias : section_aliases)
    if (name == alias.name) return alias.here;
  return "";
}

bool later_section(const std::string& name) {
  return std::any_of(std::begin(later), std::end(later), [&](const Later& entry) { return name == entry.section; });
}

std::string later_owner(const std::string& key) {
  for (const Later& entry : later)
    for (const char* owned : entry.keys)
      if (owned && key == owned) return entry.section;
  return "";
}

}  // namespace eng
