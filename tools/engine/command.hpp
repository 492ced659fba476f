// SPDX-License-Identifier: Apache-2.0
// Functions shared by the subcommands.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"
#include "session/config/failure.hpp"
#include "session/data/data.hpp"
#include "session/hub/names.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/setup.hpp"
#include "session/report/context.hpp"
#include "session/run/open.hpp"
#include "session/run/weights.hpp"

namespace eng {

// Flags of every subcommand.
struct Common {
  std::vector<std::filesystem::path> plugin_paths;
  std::string command;                 // the whole command line
  std::vector<std::string> arguments;  // its words after `engine`
  int exit = 0;                        // the exit code
};

// Prints text that may have names, paths and values from anybody in it: an argument that is a text is shown as
// for_terminal shows it.
template <class T>
decltype(auto) as_shown(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return for_terminal(std::string(std::string_view(value)));
  else
    return value;
}
// To stdout: a text as it is, and one whose control characters are replaced. These throw Error(Exit::disk) if stdout
// takes no more.
void write_out(std::string_view text);
void put_out(const std::string& text);
void flush_out();
// To stderr, which may be closed.
void put_err(const std::string& text);
template <class... Args>
void print_out(fmt::format_string<Args...> form, const Args&... args) {
  put_out(fmt::format(fmt::runtime(fmt::string_view(form)), as_shown(args)...));
}
template <class... Args>
void print_err(fmt::format_string<Args...> form, const Args&... args) {
  put_err(fmt::format(fmt::runtime(fmt::string_view(form)), as_shown(args)...));
}

// "error: ...", and "help: ..." if there is help; whole lines.
std::string text_of(const Failure& failure);
// To stderr.
void print(const Failure& failure);
// To stderr: a message of a plugin.
void print_plugin_log(const std::string& id, int32_t level, const std::string& text);

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

// Print notes to stderr, for example about keys without effect.
void print_notes(const Setup& setup);
void print_notes(const Config& config, const Data& data, int64_t vocabulary);

// The line about a checkpoint that is skipped.
std::string refused_text(const CheckpointRow& checkpoint);
// The newest good checkpoint; prints each one that is skipped.
Found newest_checkpoint(const std::filesystem::path& checkpoints);
// Reports progress for large weights in lines; `what` names their source. `put` is stderr by default.
WeightsProgress weights_progress(const std::string& what, std::function<void(const std::string&)> put = {});
// Builds the file that the data source needs, if any, with progress on stderr; a signal stops it. Call it before Data
// is constructed. `take_signals`: true if the caller has no Signals object.
void build_data(const Config& config, Registry& registry, int64_t vocabulary, bool take_signals);

// Lines about a device on this machine: its description and the facts that its plugin gives, or why it cannot be used.
std::string device_here(Registry& registry, const std::string& name);

// To stdout, or to a new file. Returns whether there is a file. Throws Error(usage, disk).
bool put_text(const std::string& text, const std::string& out);

// Each adds its subcommand to the app.
void add_run(CLI::App& app, Common& common);
void add_check(CLI::App& app, Common& common);
void add_plan(CLI::App& app, Common& common);
void add_eval(CLI::App& app, Common& common);
void add_generate(CLI::App& app, Common& common);
void add_data(CLI::App& app, Common& common);
void add_analyse(CLI::App& app, Common& common);
void add_ckpt(CLI::App& app, Common& common);
void add_report(CLI::App& app, Common& common);
void add_config(CLI::App& app, Common& common);
void add_config_convert(CLI::App& config, Common& common);
void add_ckpt_get(CLI::App& group);
// "step-00000100" and its bytes, a line for each checkpoint of a store.
void list_store(const std::string& address);
void add_get(CLI::App& group, hub::Kind kind);  // `get` of the groups `model` and `data`
void add_init(CLI::App& app, Common& common);
void add_model(CLI::App& app, Common& common);
void add_plugins(CLI::App& app, Common& common);
void add_plugins_test(CLI::App& plugins, Common& common);
void add_plugins_new(CLI::App& plugins, Common& common);
void add_doctor(CLI::App& app, Common& common);

}  // namespace eng
