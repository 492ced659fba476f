// SPDX-License-Identifier: Apache-2.0
// One conversion, and its steps in the order in which they are made.
#pragma once

#include <set>

#include "session/convert/convert.hpp"
#include "session/convert/target.hpp"

namespace eng::converter {

struct Job {
  const SchemaSource& plugins;
  Target out;
  Entries deepspeed = {};       // of DeepSpeed's file
  Entries flat = {};            // arguments and flags, by the names that the rules know
  std::string trainer = {};     // whose they are: "huggingface", "axolotl", ..., "script" for one's own
  std::string kind = {};        // of training, where the launch line names it: "sft", "dpo"
  bool has_deepspeed = false;   // there is a DeepSpeed file
  bool huggingface = false;     // Hugging Face's trainer runs it: its defaults count, and "auto" means something
  bool no_trainer = false;      // a script of Hugging Face's without its trainer: no clipping by default
  bool configured = false;      // a program sets values that are not known
  bool defaults = false;        // the defaults of the trainer are known, and count
  int64_t ranks = 0;            // 0: not known. After `batch`: those that have different samples
  std::string ranks_from = {};  // "--num_gpus"
  std::string ranks_open = {};  // a flag that does not say their number
  // Keys by what becomes of them: off there and here; without effect; known, and null; not known, and empty; not known.
  std::vector<std::string> off = {}, idle = {}, nulls = {}, empty = {}, unknown = {};
  std::vector<std::pair<std::string, std::string>> refused = {};  // a key's origin, and why
  // Remarks about keys, each with the keys that it is true of: in the order in which they were met.
  std::vector<std::pair<std::string, std::vector<std::string>>> told = {};
};

// Reads everything that was given into `deepspeed` and `flat`.
void intake(const ForeignRun& run, Job& job);
// The value of a setting: DeepSpeed's if its file has it, else the argument, else the trainer's default. What is found
// is then used.
std::optional<Entry> pick(Job& job, const std::string& deepspeed, const std::string& argument);
// The trainer's default for an argument, as an entry; none if it has none that matters.
std::optional<Entry> default_of(const Job& job, const std::string& argument);
// Replaces every "auto" of the DeepSpeed file; finds values that contradict the arguments.
void resolve_auto(Job& job);
// The value of an argument that is null: what null means there.
bool is_null(const Entries& entries, const std::string& name);
// Something that changes the training and is not here: an error, unless --ignore names the key.
void refuse(Job& job, const Entry& entry, const std::string& why);

void model(Job& job);
void batch(Job& job);
void optimizer(Job& job);
void schedule(Job& job);
void nanogpt_schedule(Job& job);
void megatron_schedule(Job& job);
void precision(Job& job);
// Adapters and frozen weights in 4 bits; after `model` and `precision`.
void adapter(Job& job);
bool trains_adapter(Job& job);
// Losses of pairs of answers; after `batch` and `adapter`.
void preference(Job& job);
bool trains_on_pairs(Job& job);
// Fine-tuning on conversations; after `preference`. LLaMA-Factory's: the whole of it.
void conversations(Job& job);
// axolotl's: of the dataset at `above`, "datasets.0", of type chat_template. Whether the data are read as chats.
bool chat_rows(Job& job, const std::string& above);
// Leaves the model open, which must be a directory of weights.
void base(Job& job, const std::string& origin, const std::string& why);
void zero(Job& job);
// Groups of ranks, and what moves between ranks in fewer bits, of DeepSpeed's stage 3; after `precision`.
void compression(Job& job);
void recompute(Job& job);
// Steps, length, data, evaluation, checkpoints.
void run(Job& job);
// Writes the values that only a person can fill in, commented out; after `rest`.
void open_ends(Job& job);
// One key of DeepSpeed's file (of `deepspeed`) or of the arguments, by what session/config/foreign says of it.
void translate(Job& job, const std::string& name, Entry& entry);
// All keys that no step used.
void rest(Job& job);

}  // namespace eng::converter
