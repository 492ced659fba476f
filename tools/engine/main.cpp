// SPDX-License-Identifier: Apache-2.0
// The `engine` command.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "core/base/error.hpp"
#include "session/config/foreign.hpp"
#include "session/config/spelling.hpp"
#include "session/version.hpp"
#include "tools/engine/command.hpp"

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
  // In the order of the help.
  for (auto* add : {eng::add_run, eng::add_check, eng::add_plan, eng::add_eval, eng::add_generate, eng::add_model,
                    eng::add_data, eng::add_analyse, eng::add_ckpt, eng::add_report, eng::add_config, eng::add_init,
                    eng::add_plugins, eng::add_doctor})
    add(app, common);
  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& e) {  // --help, --version
      app.exit(e);
    }
    eng::flush_out();
    return common.exit;
  } catch (const CLI::ParseError& e) {
    std::ostringstream none, told;
    app.exit(e, none, told);
    eng::put_err(eng::printable_lines(told.str()) + "\n");
    if (const std::string help = usage_help(app); !help.empty()) eng::print_err("help: {}\n", help);
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
