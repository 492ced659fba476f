// SPDX-License-Identifier: Apache-2.0
// engine plugins new: writes a plugin to start from. Its texts are the files in tools/templates/.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "core/base/error.hpp"
#include "session/config/spelling.hpp"
#include "session/file.hpp"
#include "session/plugins/paths.hpp"
#include "session/plugins/program.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {
namespace fs = std::filesystem;

struct TemplateFile {
  std::string_view path;  // in tools/templates/
  bool executable;
  std::string_view text;
};

constexpr TemplateFile templates[] = {
#include <templates.inc>
};

// The name and id that all templates have.
constexpr const char* their_name = "my_thing";
constexpr const char* their_id = "org.example.my_thing";

struct Kind {
  const char *name, *id, *called;
  int ranks = 1;                          // with which it trains
  const char *options = "", *after = "";  // of `check`: what `plugins test` is given; what follows the training
};

constexpr const char* then_analyse = R"(
"$engine" --plugin-path "$plugin" analyse "$work/run" --job my_thing --out "$work/analysis"
cat "$work/analysis/my_thing.json")";
constexpr const char* then_generate = R"(
"$engine" --plugin-path "$plugin" generate "$work/run" "The " --tokens 16)";

constexpr Kind kinds[] = {{"model", "eng.model/1", "a model"},
                          {"op", "eng.model/1", "an op with kernels, and a model that uses it"},
                          {"optimizer", "eng.optimizer/1", "an optimizer"},
                          {"precision", "eng.precision/1", "a precision policy"},
                          {"zero", "eng.zero/1", "a ZeRO strategy", 2},
                          {"schedule", "eng.schedule/1", "a schedule"},
                          {"data", "eng.data/1", "a data source"},
                          {"tokenizer", "eng.data/1", "a tokenizer, and a data source that uses it", 1,
                           R"( "paths=[\"$project/README.md\"]")", then_generate},
                          {"observer", "eng.observer/1", "an observer"},
                          {"job", "eng.job/1", "a job", 1, "", then_analyse},
                          {"device", "eng.device/1", "a device"},
                          {"tier", "eng.tier/1", "a tier"},
                          {"comm", "eng.comm/1", "a communicator", 2},
                          {"embed", "eng.embed/1", "a program with the engine inside"}};

struct Language {
  const char *name, *called, *source;
};

constexpr Language languages[] = {
    {"cpp", "C++", "my_thing.cpp"}, {"c", "C", "my_thing.c"}, {"rust", "Rust", "src/lib.rs"}};

bool has(const std::string& kind, const std::string& language) {
  return std::any_of(std::begin(templates), std::end(templates),
                     [&](const TemplateFile& one) { return one.path.starts_with(kind + "/" + language + "/"); });
}

template <class List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> out;
  for (const auto& one : list) out.emplace_back(one.name);
  return out;
}

template <class List>
const auto& chosen(const List& list, const std::string& what, const std::string& name) {
  for (const auto& one : list)
    if (name == one.name) return one;
  const auto near = nearest(name, names_of(list));
  throw Error(Exit::usage, fmt::format("there is no template of {} `{}`", what, printable(name, 80)),
              fmt::format("{}: {}", near.empty() ? "available" : "did you mean " + near.front() + "? available",
                          fmt::join(names_of(list), ", ")));
}

// A name for files, targets of meson and crates: none of their own.
bool reserved(const std::string& name) {
  static const std::set<std::string> all = {
      "abstract",  "all",    "alloc",   "as",         "async",    "await", "become", "benchmark", "box",  "break",
      "build",     "check",  "clean",   "const",      "continue", "core",  "crate",  "dist",      "do",   "dyn",
      "else",      "enum",   "engine",  "engine_abi", "extern",   "false", "final",  "fn",        "for",  "if",
      "impl",      "in",     "install", "let",        "loop",     "macro", "match",  "mod",       "move", "mut",
      "override",  "phony",  "priv",    "proc_macro", "pub",      "ref",   "return", "scan",      "self", "src",
      "static",    "std",    "struct",  "super",      "test",     "trait", "true",   "try",       "type", "typeof",
      "uninstall", "unsafe", "unsized", "use",        "virtual",  "where", "while",  "yield"};
  return all.count(name) > 0;
}

// The plugin's name: that of its folder, in small letters, `-` as `_`.
std::string name_of(const fs::path& folder) {
  const std::string last = (folder / "").lexically_normal().parent_path().filename().string();
  std::string name = lower_case(last);
  std::replace(name.begin(), name.end(), '-', '_');
  const auto small = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool good =
      !name.empty() && name.size() <= 40 && small(name[0]) &&
      std::all_of(name.begin(), name.end(), [&](char c) { return small(c) || (c >= '0' && c <= '9') || c == '_'; });
  if (!good)
    throw Error(Exit::usage, fmt::format("`{}` cannot be the name of a plugin", printable(last, 80)),
                "the last part of DIR names it: a letter, then letters, digits, _ and -, at most 40");
  if (reserved(name) || name == their_name)
    throw Error(Exit::usage, fmt::format("`{}` is a name of the tools that build the plugin", name),
                "choose another name for DIR");
  return name;
}

void check_id(const std::string& id) {
  bool good = id.size() <= 100 && id.find('.') != std::string::npos && !id.starts_with("eng.") && id.front() != '.' &&
              id.back() != '.' && id.find("..") == std::string::npos;
  for (const char c : id)
    good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.');
  if (!good)
    throw Error(Exit::usage, fmt::format("`{}` cannot be the id of a plugin", printable(id, 100)),
                "an id is in reverse DNS notation, with a-z, 0-9, _, - and dots, and does not begin with eng.: "
                "org.example.my_optimizer");
}

void replace(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

struct Project {
  fs::path folder;
  std::string name, id;
  Kind kind;
  Language language;
};

// The commands that build and check it, from inside its folder.
std::string build_commands(const Project& project) {
  if (project.language.name == std::string_view("rust"))
    return fmt::format("./build.sh\n./check build/{}.eng.so", project.name);
  return "meson setup build\nmeson compile -C build\nmeson test -C build";
}

std::string filled(std::string text, const Project& project) {
  std::string called = project.kind.called;
  called[0] = static_cast<char>(called[0] - 'a' + 'A');
  replace(text, "@SUMMARY@", fmt::format("{}, in {}.", called, project.language.called));
  replace(text, "@SOURCE@", project.language.source);
  replace(text, "@BUILD@", build_commands(project));
  replace(text, "@RANKS@", std::to_string(project.kind.ranks));
  replace(text, "@OPTIONS@", project.kind.options);
  replace(text, "@AFTER@", project.kind.after);
  replace(text, "@RUN@", project.kind.ranks > 1 ? fmt::format(" --ranks {}", project.kind.ranks) : "");
  replace(text, their_id, project.id);
  replace(text, their_name, project.name);
  return text;
}

// The files of a project, by their places in it. Of two for one place, that of the kind is taken.
std::map<std::string, const TemplateFile*> files_of(const Project& project) {
  const std::string kind = project.kind.name, language = project.language.name;
  std::map<std::string, const TemplateFile*> out;
  for (const std::string& folder : {kind + "/" + language + "/", kind + "/", language + "/", std::string("any/")})
    for (const TemplateFile& one : templates) {
      if (!one.path.starts_with(folder)) continue;
      const std::string rest(one.path.substr(folder.size()));
      // A kind's own files; those of its languages lie deeper.
      if (folder == kind + "/" && rest.find('/') != std::string::npos) continue;
      out.try_emplace(filled(rest, project), &one);
    }
  return out;
}

std::vector<std::string> write(const Project& project) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(project.folder, error)) &&
      !(fs::is_directory(project.folder, error) && fs::is_empty(project.folder, error)))
    throw Error(Exit::usage, fmt::format("{} already exists", project.folder.string()),
                "nothing is overwritten: choose another DIR");
  std::vector<std::string> out;
  for (const auto& [place, one] : files_of(project)) {
    const fs::path path = project.folder / place;
    if (fs::create_directories(path.parent_path(), error); error)
      disk_error("make the folder", path.parent_path(), error.value());
    std::ofstream file(path);
    file << filled(std::string(one->text), project);
    file.close();
    if (!file) disk_error("write", path, errno);
    const auto run = fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
    if (one->executable) fs::permissions(path, run, fs::perm_options::add);
    out.push_back(place);
  }
  return out;
}

// The folder of engine-abi.pc of this installation, if pkg-config does not look there by itself.
std::string pkg_config_folder() {
  std::error_code error;
  const fs::path here = program_file().parent_path();
  const fs::path plugins = here / fs::path(installed_plugins).lexically_relative(installed_commands);
  const fs::path folder = (plugins / "../../../pkgconfig").lexically_normal();
  if (!fs::exists(folder / "engine-abi.pc", error)) return "";
  const std::string path = folder.string();
  return path.starts_with("/usr/lib/") || path.starts_with("/usr/local/lib/") ? "" : path;
}

void make(const Common& common, const std::string& kind, const std::string& language, const fs::path& folder,
          std::string id) {
  Project project{
      folder, name_of(fs::absolute(folder)), {}, chosen(kinds, "kind", kind), chosen(languages, "language", language)};
  project.id = id.empty() ? "org.example." + project.name : id;
  check_id(project.id);
  if (!has(kind, language)) {
    std::vector<std::string> others;
    for (const Language& one : languages)
      if (has(kind, one.name)) others.emplace_back(one.name);
    throw Error(Exit::usage,
                fmt::format("there is no template of {} in {}", project.kind.called, project.language.called),
                fmt::format("it is there in: {}", fmt::join(others, ", ")));
  }
  const auto registry = scan_plugins(common);
  if (const auto have = registry->providers(project.kind.id, project.name); !have.empty())
    throw Error(Exit::usage,
                fmt::format("{} `{}` is there already: {}", project.kind.id, project.name, have.front()->path.string()),
                "of two with one name only one is used: choose another name for DIR");
  const std::vector<std::string> files = write(project);
  std::string build = build_commands(project);
  replace(build, "\n", " && ");
  const std::string where = pkg_config_folder();
  print_err("wrote {}: {}, in {}\n  {}\nnext:  cd {} && {}{}\n", folder.string(), project.kind.called,
            project.language.called, fmt::join(files, "\n  "), folder.string(),
            where.empty() ? "" : fmt::format("export PKG_CONFIG_PATH={} && ", where), build);
}

}  // namespace

void add_plugins_new(CLI::App& plugins, Common& common) {
  auto* command = plugins.add_subcommand("new", "write a plugin to start from: sources, build, check, configuration");
  auto kind = std::make_shared<std::string>(), language = std::make_shared<std::string>("cpp"),
       folder = std::make_shared<std::string>(), id = std::make_shared<std::string>();
  command->add_option("--kind", *kind, fmt::format("{}", fmt::join(names_of(kinds), ", ")))->required();
  command->add_option("--lang", *language, "cpp (the default), c or rust");
  command->add_option("--id", *id, "the plugin's id; by default org.example.NAME");
  command->add_option("dir", *folder, "a new folder; its name is the plugin's")->required();
  command->callback([&common, kind, language, folder, id] { make(common, *kind, *language, *folder, *id); });
}

}  // namespace eng
