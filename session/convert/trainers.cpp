// SPDX-License-Identifier: Apache-2.0
#include "session/convert/trainers.hpp"

namespace eng::converter {
namespace {

struct Sign {
  const char* trainer;
  Words names;  // one of them is enough
};
const Sign signs[] = {
    {"accelerate", {"compute_environment", "distributed_type"}},
    {"axolotl", {"base_model", "sequence_len", "micro_batch_size+datasets", "sample_packing"}},
    {"llamafactory", {"finetuning_type", "cutoff_len", "template+dataset", "stage+do_train", "pure_bf16", "use_muon"}},
    {"nanogpt", {"max_iters", "warmup_iters", "lr_decay_iters", "n_embd+block_size", "eval_iters+block_size"}},
    {"megatron",
     {"tensor_model_parallel_size", "pipeline_model_parallel_size", "train_iters", "lr_decay_style", "lr_warmup_iters",
      "lr_warmup_fraction", "use_mcore_models", "train_samples"}},
    {"trl",
     {"dataset_text_field", "assistant_only_loss", "completion_only_loss", "packing_strategy", "chat_template_path"}}};
// Objects of a script's file that only group its keys.
const Words groups = {"model",
                      "training",
                      "train",
                      "trainer",
                      "data",
                      "dataset",
                      "optimizer",
                      "optim",
                      "args",
                      "config",
                      "scheduler",
                      "lr_scheduler",
                      "hyperparameters",
                      "hparams",
                      "params",
                      "common",
                      "model_args",
                      "training_args",
                      "data_args",
                      "run",
                      "experiment",
                      "system",
                      "logging",
                      "checkpoint",
                      "checkpointing",
                      "eval",
                      "evaluation",
                      "distributed",
                      "training_arguments",
                      "model_config",
                      "train_config",
                      "lr",
                      "mamba",
                      "general",
                      "parameters"};

}  // namespace

const Words of_huggingface = {"output_dir",
                              "per_device_train_batch_size",
                              "num_train_epochs",
                              "max_steps",
                              "lr_scheduler_type",
                              "max_grad_norm",
                              "adam_epsilon",
                              "warmup_ratio",
                              "model_name_or_path",
                              "learning_rate",
                              "gradient_checkpointing"};
const Words of_deepspeed = {"zero_optimization",
                            "train_micro_batch_size_per_gpu",
                            "train_batch_size",
                            "optimizer",
                            "scheduler",
                            "steps_per_print",
                            "fp16",
                            "bf16",
                            "gradient_clipping",
                            "gradient_accumulation_steps"};

std::string trainer_of(const Entries& entries, const std::string& otherwise) {
  const auto there = [&](const std::string& name) { return entries.all.count(name) || entries.has_section(name); };
  for (const Sign& sign : signs)
    for (const std::string& name : sign.names) {
      const auto plus = name.find('+');
      if (there(name.substr(0, plus)) && (plus == std::string::npos || there(name.substr(plus + 1))))
        return sign.trainer;
    }
  return otherwise;
}

bool is_group(const std::string& name) {
  return among(groups, name);
}

std::string without_group(std::string name) {
  for (int k = 0; k < 2; ++k) {
    const auto dot = name.find('.');
    if (dot == std::string::npos || !is_group(name.substr(0, dot))) break;
    name = name.substr(dot + 1);
  }
  return name;
}

}  // namespace eng::converter
