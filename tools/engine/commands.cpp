// SPDX-License-Identifier: Apache-2.0
// The subcommands of `engine`, in the order of its help.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.hpp"
#include "session/plugins/paths.hpp"
#include "session/plugins/program.hpp"
#include "tools/engine/extra.hpp"

namespace eng {
namespace {
namespace fs = std::filesystem;

// Becomes the program with the extra commands, which has the same arguments.
[[noreturn]] void become_extra(const Common& common, const std::string& command) {
  std::error_code none;
  const fs::path here = program_file().parent_path();
  if (here.empty())
    throw Error(
        Exit::environment,
        fmt::format("`{}` is in the program {}, beside this one, but {} cannot be read, so it is not known where "
                    "this program lies",
                    command, extra_program, own_link),
        "mount /proc, or start the engine by its full path");
  // Beside this program in a build folder; elsewhere where it is installed, in a tree that may have been moved.
  const fs::path places[] = {
      here / extra_program,
      (here / fs::path(installed_extra).lexically_relative(installed_commands)).lexically_normal() / extra_program};
  std::vector<std::string> words = {"engine"};
  words.insert(words.end(), common.arguments.begin(), common.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (const fs::path& place : places) {
    ::execv(place.c_str(), argv.data());
    if (errno != ENOENT)
      throw Error(Exit::environment, fmt::format("cannot start {}: {}", place.string(), std::strerror(errno)));
  }
  const fs::path build = here.parent_path();
  throw Error(Exit::environment,
              fmt::format("`{}` is in the program {}, which is not there: looked for {} and {}", command, extra_program,
                          places[0].string(), places[1].string()),
              fs::exists(build / "build.ninja", none)
                  ? fmt::format("build it:  ninja -C {} tools/{}", build.string(), extra_program)
                  : "install the engine again: its package has this program");
}

}  // namespace

void add_extra(CLI::App& group, const Common& common) {
  for (const ExtraCommand& one : extra_commands)
    if (group.get_name() == one.group) {
      const std::string command = fmt::format("{}{} {}", group.get_parent() ? "engine " : "", one.group, one.name);
      // Before any word after it is looked at: the other program reads them.
      group.add_subcommand(one.name, one.help)->preparse_callback([&common, command](size_t) {
        become_extra(common, command);
      });
    }
}

void add_commands(CLI::App& app, Common& common) {
  add_run(app, common);
  add_check(app, common);
  add_plan(app, common);
  add_eval(app, common);
  add_generate(app, common);
  add_data(app, common);
  add_extra(app, common);
  add_config(app, common);
  add_plugins(app, common);
  add_doctor(app, common);
}

}  // namespace eng
