// SPDX-License-Identifier: Apache-2.0
// What the subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"
#include "session/failure.hpp"
#include "session/fits.hpp"
#include "session/open.hpp"
#include "session/report/context.hpp"
#include "session/train/data.hpp"
#include "session/train/setup.hpp"
#include "session/weights.hpp"

namespace eng {

// Flags of every subcommand.
struct Common {
  std::vector<std::filesystem::path> plugin_paths;
  std::string command;                 // the whole command line
  std::vector<std::string> arguments;  // its words behind `engine`
  int exit = 0;                        // what the command ends with
};

// To stderr.
void print(const Failure& failure);

struct Loaded {
  std::unique_ptr<Registry> registry;
  Config config;
};

// open_config, with the folders of --plugin-path; prints its notes to stderr.
Loaded load_config(const Common& common, const std::filesystem::path& target, const std::vector<std::string>& overrides,
                   const std::filesystem::path& place = {});
std::unique_ptr<Registry> scan_plugins(const Common& common);
// Adds `section.key=value ...` and `--unset section.key`; both go to `overrides`, as Config::load takes them.
void add_overrides(CLI::App& command, std::vector<std::string>& overrides,
                   const std::string& help = "section.key=value ...");

// To stderr: what has no effect.
void print_notes(const Setup& setup);
void print_notes(const Config& config, const Data& data, int64_t vocabulary);

// To stderr: a checkpoint that is passed over.
void print_refused(const CheckpointRow& checkpoint);
// The newest good checkpoint; each one that is passed over is printed.
Found newest_checkpoint(const std::filesystem::path& checkpoints);
// Lines on stderr, for weights that take a while to read; `what` is where they come from.
WeightsProgress weights_progress(const std::string& what);
// Makes, with progress on stderr, the file that the data source will want, if it wants one; a signal stops it. Call it
// before Data is constructed. `take_signals`: where the caller has no Signals of its own.
void build_data(const Config& config, Registry& registry, int64_t vocabulary, bool take_signals);
// Size of the vocabulary that the configured model has.
int64_t model_vocabulary(const Config& config, Registry& registry);

// Each adds its subcommand to the app.
void add_run(CLI::App& app, Common& common);
void add_plan(CLI::App& app, Common& common);
void add_check(CLI::App& app, Common& common);
void add_data(CLI::App& app, Common& common);
void add_eval(CLI::App& app, Common& common);
void add_generate(CLI::App& app, Common& common);
void add_ckpt(CLI::App& app, Common& common);
void add_config(CLI::App& app, Common& common);
void add_plugins(CLI::App& app, Common& common);
void add_doctor(CLI::App& app, Common& common);

}  // namespace eng
