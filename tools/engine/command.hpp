// SPDX-License-Identifier: Apache-2.0
// What the subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.hpp"
#include "core/registry/registry.hpp"
#include "core/train/setup.hpp"
#include "tools/engine/report.hpp"

namespace eng {

inline constexpr const char* version = ENGINE_VERSION;

// Flags of every subcommand.
struct Common {
  std::vector<std::filesystem::path> plugin_paths;
  std::string command;  // the whole command line
  int exit = 0;         // what the command ends with
};

struct Loaded {
  std::unique_ptr<Registry> registry;
  Config config;
};

// Scans for plugins and reads a configuration, or that of a run directory; prints its notes to stderr.
Loaded load_config(const Common& common, const std::filesystem::path& target,
                   const std::vector<std::string>& overrides);
std::unique_ptr<Registry> scan_plugins(const Common& common, const std::vector<std::filesystem::path>& more = {});

ReportContext report_context(const Setup& setup, const Config& config);

// Each adds its subcommand to the app.
void add_run(CLI::App& app, Common& common);
void add_plan(CLI::App& app, Common& common);
void add_check(CLI::App& app, Common& common);
void add_eval(CLI::App& app, Common& common);
void add_generate(CLI::App& app, Common& common);
void add_ckpt(CLI::App& app, Common& common);
void add_config(CLI::App& app, Common& common);
void add_plugins(CLI::App& app, Common& common);
void add_doctor(CLI::App& app, Common& common);

}  // namespace eng
