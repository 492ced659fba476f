// SPDX-License-Identifier: Apache-2.0
// One conversion, and its steps in the order in which they are made.
#pragma once

#include <set>

#include "session/convert/target.hpp"

namespace eng::converter {

struct Job {
  const SchemaSource& plugins;
  Target out;
  Entries deepspeed = {};       // of DeepSpeed's file
  Entries flat = {};            // Hugging Face's arguments, or the flags of a script
  bool has_deepspeed = false;   // there is a DeepSpeed file
  bool huggingface = false;     // Hugging Face's trainer runs it: its defaults count, and "auto" means something
  int64_t ranks = 0;            // 0: not known. After `batch`: those that have different samples
  std::string ranks_from = {};  // "--num_gpus"
  std::vector<std::string> off = {}, unknown = {};  // keys that are off; keys that nobody knows
};

// The value of a setting: DeepSpeed's if its file has it, else Hugging Face's argument, else Hugging Face's default if
// its trainer runs. What is found is then used.
std::optional<Entry> pick(Job& job, const std::string& deepspeed, const std::string& huggingface);
// Hugging Face's default for an argument; none if it has none that matters.
Value default_of(const std::string& huggingface);
// Replaces every "auto" of the DeepSpeed file; finds values that contradict the arguments.
void resolve_auto(Job& job);

void model(Job& job);
void batch(Job& job);
void optimizer(Job& job);
void schedule(Job& job);
void precision(Job& job);
void zero(Job& job);
void recompute(Job& job);
// Steps, length, data, evaluation, checkpoints.
void run(Job& job);
// What only a person can fill in, commented out; after `rest`.
void open_ends(Job& job);
// One key by its name in foreign.toml. `section` is "" for a key outside any.
void translate(Job& job, const std::string& section, const std::string& name, Entry& entry);
// What foreign.toml says of a name without equivalent, for a reader who has nothing to remove.
std::string advice(const std::string& why);
// All keys that no step used.
void rest(Job& job);

}  // namespace eng::converter
