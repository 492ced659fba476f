// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/command.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "session/config/problem_text.hpp"
#include "session/file.hpp"
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
  for (const auto& note : out.config.notes()) print_err("note: {}\n", note);
  return {std::move(out.registry), std::move(out.config)};
}

void print_notes(const Setup& setup) {
  for (const std::string& note : setup.notes) print_err("note: {}\n", note);
}

void print_notes(const Config& config, const Data& data, int64_t vocabulary) {
  for (const std::string& note : notes_of(config, data, vocabulary)) print_err("note: {}\n", note);
}

WeightsProgress weights_progress(const std::string& what, std::function<void(const std::string&)> put) {
  constexpr uint64_t few = uint64_t{1} << 30;
  if (!put) put = put_err;
  return [what, put = std::move(put), told = uint64_t{0}](uint64_t done, uint64_t all) mutable {
    if (all < few || done * 10 / all <= told) return;
    told = done * 10 / all;
    put(fmt::format("reading {}: {} of {}\n", for_terminal(what), size_text(done), size_text(all)));
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
  put_err(text_of(failure));
}

void print_plugin_log(const std::string& id, int32_t, const std::string& text) {
  print_err("[{}] {}\n", id, text);
}

std::string refused_text(const CheckpointRow& checkpoint) {
  return fmt::format("warning: {} is not used: {}\n", for_terminal(checkpoint.path.string()),
                     for_terminal(checkpoint.problem));
}

Found newest_checkpoint(const std::filesystem::path& checkpoints) {
  Found found = find_latest(checkpoints);
  for (const CheckpointRow& row : found.refused) put_err(refused_text(row));
  return found;
}

static void check_written(bool good) {
  if (good) return;
  const int error = errno;
  std::clearerr(stdout);
  throw Error(Exit::disk, fmt::format("cannot write to the standard output: {}", std::strerror(error)));
}

void write_out(std::string_view text) {
  check_written(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

void put_out(const std::string& text) {
  write_out(printable_lines(text) + (text.ends_with('\n') ? "\n" : ""));
}

void flush_out() {
  check_written(std::fflush(stdout) == 0 && !std::ferror(stdout));
}

void put_err(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

bool put_text(const std::string& text, const std::string& out) {
  if (out.empty()) {
    put_out(text);
    return false;
  }
  // A link counts as there, wherever it leads.
  if (std::filesystem::exists(std::filesystem::symlink_status(out)))
    throw Error(Exit::usage, out + " already exists", "choose another name for -o");
  FileWriter file(out);
  file.write(text.data(), text.size());
  file.finish();
  return true;
}

}  // namespace eng
