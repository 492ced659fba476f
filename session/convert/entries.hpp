// SPDX-License-Identifier: Apache-2.0
// The keys that another trainer's file or command line gives, each with its value and where it stands.
#pragma once

#include <map>

#include "session/config/config.hpp"
#include "session/json.hpp"

namespace eng::converter {

inline constexpr std::size_t max_bytes = std::size_t{1} << 20;  // of a file, and of a command line
inline constexpr std::size_t deepest = 16;                      // objects and lists in one another

struct Entry {
  Value value = {};          // none for null
  std::string odd = {};      // what it is, if no Value can hold it: "an object"
  std::string origin = {};   // for messages: "zero_optimization.stage", "--max_steps"
  std::string trainer = {};  // whose name it has: of account_of
  bool used = false;
};

// By name, with dots for keys of an object in an object: "optimizer.params.lr".
struct Entries {
  std::map<std::string, Entry> all = {};

  // nullptr if it is absent or null.
  const Entry* find(const std::string& name) const;
  // Finds an entry as `find` does, and marks it as used.
  const Entry* take(const std::string& name);
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // True if there is a key `name.something`.
  bool has_section(const std::string& name) const;
  // Removes a key, or all keys of a section; whether there was one.
  bool drop(const std::string& name);
  // The value if it is true or false, or a word for either.
  std::optional<bool> flag(const std::string& name);
};

// Adds what stands at a name ("" for a whole file): an object and a list of objects key by key, "datasets.0.path". The
// origin of an entry is its name.
void flatten(const Json& value, const std::string& name, Entries& out);
// A word of a command line or a scalar without quotes: a number, true or false if it looks like one, otherwise text.
Value value_of_word(const std::string& word);
// As a message shows it: "\"auto\"", "an object".
std::string shown(const Entry& entry);
// The value of a flag: true, false or a word for either ("yes", "off").
std::optional<bool> as_flag(const Value& value);
// A whole number, also if it is written as 5e8.
std::optional<int64_t> as_whole(const Value& value);
std::optional<double> as_number(const Value& value);
// "" if it is no text.
std::string as_text(const Value& value);

// A JSON object, with comments and the other liberties of Hjson. Throws Error(Exit::usage) with the line.
Json read_json(const std::string& text, const std::string& name);
// A YAML file whose one document is an object. Throws Error(Exit::usage) with the line.
Json read_yaml(const std::string& text, const std::string& name);

// `deepspeed --num_gpus=4 train.py --max_steps 100`, also with torchrun, accelerate, mpirun, srun or no launcher.
struct Launch {
  Entries flags;                            // of the script, without dashes
  Entries accelerate;                       // of `accelerate launch`
  std::string program = {};                 // "axolotl", "llamafactory", "trl", "accelerate" if the line calls it
  std::string job = {};                     // what that program is asked for: "train", "sft", "dpo"
  std::string script = {};                  // "" if there is none
  std::vector<std::string> files = {};      // YAML and JSON files that stand after the script without a flag
  int64_t ranks = 0;                        // 0: not said
  std::string ranks_from = {};              // "--num_gpus"
  std::string ranks_open = {};              // a flag that does not say a number: "--nproc_per_node=gpu"
  std::vector<std::string> variables = {};  // of the shell, that stand for flags
  std::vector<std::string> left = {};       // the launcher's other flags, and words that belong to no flag
};
// Throws Error(Exit::usage).
Launch read_launch(const std::string& line);

}  // namespace eng::converter
