// SPDX-License-Identifier: Apache-2.0
// What the subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.hpp"
#include "core/registry/registry.hpp"
#include "core/train/data.hpp"
#include "core/train/setup.hpp"
#include "tools/engine/fits.hpp"
#include "tools/engine/report.hpp"
#include "tools/engine/weights.hpp"

namespace eng {

inline constexpr const char* version = ENGINE_VERSION;

// Flags of every subcommand.
struct Common {
  std::vector<std::filesystem::path> plugin_paths;
  std::string command;                 // the whole command line
  std::vector<std::string> arguments;  // its words behind `engine`
  bool quiet = false;                  // another rank tells what there is to tell
  int exit = 0;                        // what the command ends with
};

// Why a command ends early, as it is told. Printed where nobody else has told it.
struct Failure {
  int exit;
  std::string text, help;
};
Failure failure(std::exception_ptr reason);
void print(const Failure& failure);

struct Loaded {
  std::unique_ptr<Registry> registry;
  Config config;
};

// Scans for plugins and reads a configuration: `target` is its file, or a run, or a Hugging Face directory: then every
// section has its defaults and [model] from is that directory, so that
// Trainer::initialise(weights_of(weights_source(config))) takes its weights, and relative paths start at `place`, by
// default where the command was typed. [data] gets the tokenizer of weights that exist already, and may not name
// another one. Prints its notes to stderr.
Loaded load_config(const Common& common, const std::filesystem::path& target, const std::vector<std::string>& overrides,
                   const std::filesystem::path& place = {});
std::unique_ptr<Registry> scan_plugins(const Common& common, const std::vector<std::filesystem::path>& more = {});

// To stderr: what has no effect.
void print_notes(const Setup& setup);
void print_notes(const Config& config, const Data& data);
ReportContext report_context(const Setup& setup, const Config& config);

// One line each.
std::string checkpoint_table(const std::vector<CheckpointRow>& rows);
// The newest good checkpoint; each one that is passed over is told.
Found newest_checkpoint(const std::filesystem::path& checkpoints);
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
