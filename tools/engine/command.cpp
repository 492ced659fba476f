// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/command.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "core/base/error.hpp"
#include "session/report/problems.hpp"
#include "session/report/progress.hpp"

namespace eng {

std::unique_ptr<Registry> scan_plugins(const Common& common) {
  return scan_plugins(common.plugin_paths);
}

void add_overrides(CLI::App& command, std::vector<std::string>& overrides, const std::string& help) {
  command.add_option("overrides", overrides, help);
  // Declared after the option above, which replaces the content of `overrides`.
  command
      .add_option_function<std::vector<std::string>>(
          "--unset",
          [&overrides](const std::vector<std::string>& keys) {
            for (const std::string& key : keys) overrides.push_back("-" + key);
          },
          "section.key: remove the value that the configuration or the run gives; may be repeated")
      ->allow_extra_args(false);
}

Loaded load_config(const Common& common, const std::filesystem::path& target, const std::vector<std::string>& overrides,
                   const std::filesystem::path& place) {
  Opened out = open_config({target, overrides, common.plugin_paths, place});
  for (const auto& note : out.config.notes()) fmt::print(stderr, "note: {}\n", note);
  return {std::move(out.registry), std::move(out.config)};
}

void print_notes(const Setup& setup) {
  for (const std::string& note : setup.notes) fmt::print(stderr, "note: {}\n", note);
}

void print_notes(const Config& config, const Data& data, int64_t vocabulary) {
  for (const std::string& note : notes_of(config, data, vocabulary)) fmt::print(stderr, "note: {}\n", note);
}

WeightsProgress weights_progress(const std::string& what, std::function<void(const std::string&)> put) {
  constexpr uint64_t few = uint64_t{1} << 30;
  if (!put) put = [](const std::string& text) { fmt::print(stderr, "{}", text); };
  return [what, put = std::move(put), told = uint64_t{0}](uint64_t done, uint64_t all) mutable {
    if (all < few || done * 10 / all <= told) return;
    told = done * 10 / all;
    put(fmt::format("reading {}: {} of {}\n", what, size_text(done), size_text(all)));
  };
}

std::string text_of(const Failure& failure) {
  std::string out = fmt::format("{}{}\n", failure.text.rfind("error", 0) == 0 ? "" : "error: ", failure.text);
  const std::string help = failure.help.substr(0, failure.help.find_last_not_of('\n') + 1);
  if (!help.empty()) out += fmt::format("help: {}\n", help);
  return out;
}

void print(const Failure& failure) {
  std::fflush(stdout);
  fmt::print(stderr, "{}", text_of(failure));
}

void print_plugin_log(const std::string& id, int32_t, const std::string& text) {
  fmt::print(stderr, "[{}] {}\n", id, printable_lines(text));
}

std::string refused_text(const CheckpointRow& checkpoint) {
  return fmt::format("warning: {} is not used: {}\n", checkpoint.path.string(), checkpoint.problem);
}

Found newest_checkpoint(const std::filesystem::path& checkpoints) {
  Found found = find_latest(checkpoints);
  for (const CheckpointRow& row : found.refused) fmt::print(stderr, "{}", refused_text(row));
  return found;
}

bool put_text(const std::string& text, const std::string& out) {
  if (out.empty()) {
    fmt::print("{}", text);
    return false;
  }
  if (std::filesystem::exists(out)) throw Error(Exit::usage, out + " already exists", "choose another name for -o");
  std::ofstream file(out);
  file << text;
  file.close();
  if (!file) disk_error("write", out, errno);
  return true;
}

}  // namespace eng
