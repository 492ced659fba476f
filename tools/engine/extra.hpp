// SPDX-License-Identifier: Apache-2.0
// Commands that no training run needs are in a program of their own, `engine-extra`. `engine` knows them from this
// table alone, and starts that program with its own arguments when one of them is given. So a first run does not
// compile them.
#pragma once

#include "tools/engine/command.hpp"

namespace eng {

inline constexpr const char* extra_program = "engine-extra";

struct ExtraCommand {
  const char *group, *name, *help;  // `engine` itself is the group of those that stand in no other
};

inline constexpr ExtraCommand extra_commands[] = {
    {"engine", "analyse", "do a job on a model other than training, or go on with one"},
    {"engine", "ckpt", "checkpoints of a run: list, verify, compare, clean up, export"},
    {"engine", "report", "one HTML page with the curves and numbers of runs"},
    {"config", "convert",
     "write a configuration from a DeepSpeed file, a launch line, or Hugging Face's training arguments"},
    {"plugins", "test", "try a plugin file: what it is, does to its process, and computes"},
    {"plugins", "new", "write a plugin to start from: sources, build, check, configuration"}};

// Adds those of a group, which is the app itself or a subcommand of it: each starts the other program.
void add_extra(CLI::App& group, const Common& common);

// In the other program: each gives a command of the table its options and what it does.
void fill_analyse(CLI::App& command, Common& common);
void fill_ckpt(CLI::App& command, Common& common);
void fill_report(CLI::App& command, Common& common);
void fill_convert(CLI::App& command, Common& common);
void fill_plugins_test(CLI::App& command, Common& common);
void fill_plugins_new(CLI::App& command, Common& common);

}  // namespace eng
