// SPDX-License-Identifier: Apache-2.0
// The `engine` command.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "core/base/error.hpp"
#include "session/foreign.hpp"
#include "session/report/problems.hpp"
#include "session/report/progress.hpp"
#include "session/version.hpp"
#include "tools/engine/command.hpp"

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

}  // namespace eng

namespace {

// Help for a command line that CLI11 refuses; "" if CLI11's own message is enough.
std::string usage_help(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().back();
  const std::vector<std::string> words = at->remaining();
  const auto word = std::find_if(words.begin(), words.end(), [](const auto& w) { return !w.starts_with('-'); });
  if (at->get_require_subcommand_min() > 0 && word != words.end()) {
    std::vector<std::string> names;
    for (const CLI::App* one : at->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(one->get_name());
    const auto near = eng::nearest(*word, names);
    return fmt::format("`{}` is not a subcommand; {}available: {}", eng::printable(*word, 80),
                       near.empty() ? "" : fmt::format("did you mean `{}`? ", fmt::join(near, "` or `")),
                       fmt::join(names, ", "));
  }
  for (size_t k = 0; k < words.size(); ++k) {
    const std::string& extra = words[k];
    if (extra.starts_with("--"))
      if (const std::string known = eng::foreign_flag(extra, k + 1 < words.size() ? words[k + 1] : ""); !known.empty())
        return known;
    if (extra.starts_with("--plugin-path"))
      return "--plugin-path goes before the subcommand: engine --plugin-path DIR ...";
    if (extra.starts_with("--") && extra.find('.') < extra.find('='))
      return "an override has no dashes: section.key=value, for example train.steps=10";
  }
  return "";
}

int command(int argc, char** argv) {
  CLI::App app("Trains language models from one TOML file.", "engine");
  app.set_version_flag("--version", std::string("engine ") + eng::version);
  app.require_subcommand(1);
  eng::Common common;
  common.command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  common.arguments.assign(argv + std::min(argc, 1), argv + argc);
  app.add_option("--plugin-path", common.plugin_paths, "folders to search for plugins first");
  eng::add_run(app, common);
  eng::add_check(app, common);
  eng::add_plan(app, common);
  eng::add_eval(app, common);
  eng::add_generate(app, common);
  eng::add_data(app, common);
  eng::add_ckpt(app, common);
  eng::add_report(app);
  eng::add_config(app, common);
  eng::add_plugins(app, common);
  eng::add_doctor(app, common);
  try {
    app.parse(argc, argv);
    return common.exit;
  } catch (const CLI::ParseError& e) {
    if (app.exit(e) == 0) return 0;
    if (const std::string help = usage_help(app); !help.empty()) fmt::print(stderr, "help: {}\n", help);
    return static_cast<int>(eng::Exit::usage);
  } catch (...) {
    const eng::Failure failure = eng::failure(std::current_exception());
    eng::print(failure);
    return failure.exit;
  }
}

// Data files stay open during a run, and the command has connections to each rank that it starts.
void allow_files() {
  constexpr rlim_t wanted = 65536;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int argc, char** argv) {
#ifdef __GLIBC__
  // Long lists get pages of their own, which go back to the system with them. By default the bound grows with what was
  // freed, and the holes that planning leaves would stay.
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
  allow_files();
  eng::set_plugin_log(eng::print_plugin_log);
  const int code = command(argc, argv);
  eng::set_plugin_log(nullptr);
  return code;
}
