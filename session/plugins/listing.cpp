// SPDX-License-Identifier: Apache-2.0
#include "session/plugins/listing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "session/config/spelling.hpp"
#include "session/config/values.hpp"
#include "session/plugins/needs.hpp"
#include "session/plugins/search.hpp"

namespace eng {
namespace {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell, two spaces apart.
std::string align(const std::vector<Row>& rows, const std::string& indent) {
  std::vector<size_t> widths;
  for (const Row& row : rows)
    for (size_t k = 0; k < row.size(); ++k) {
      if (k == widths.size()) widths.push_back(0);
      widths[k] = std::max(widths[k], row[k].size());
    }
  std::string out;
  for (const Row& row : rows) {
    std::string line = indent;
    for (size_t k = 0; k < row.size(); ++k) line += row[k] + std::string(widths[k] - row[k].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

struct Show {
  Type type;
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(int64_t i) const {
    return type == Type::bytes ? format_bytes(static_cast<double>(i)) : std::to_string(i);
  }
  std::string operator()(double f) const { return fmt::format("{}", f); }
  std::string operator()(const std::string& s) const { return "\"" + s + "\""; }
  std::string operator()(const std::vector<std::string>& list) const { return join(list); }
  std::string operator()(const std::vector<double>& list) const { return join(list); }
  std::string operator()(const Tables& list) const { return toml_text(Value(list)); }
  template <class T>
  std::string join(const std::vector<T>& list) const {
    std::string out;
    for (const T& item : list) out += (out.empty() ? "" : ", ") + (*this)(item);
    return "[" + out + "]";
  }
};

std::string show(const Option& option, const Value& value) {
  return std::visit(Show{option.type}, value);
}

std::string fallback(const Option& option) {
  return option.required ? "required" : "default " + show(option, option.fallback);
}

// A line for the libraries that a file needs and that are not found, if there are any.
std::string lacks(const Candidate& candidate, const std::string& before) {
  const std::string help = candidate.file ? candidate.file->missing() : "";
  return help.empty() || help == none_missing ? "" : fmt::format("{}cannot be loaded: {}\n", before, help);
}

}  // namespace

std::string print_plugins(const Registry& registry, bool why) {
  std::vector<Row> rows;
  for (const Candidate& candidate : registry.candidates()) {
    if (!candidate.refused.empty()) continue;
    const Description& d = candidate.description;
    for (const Provided& one : d.provides) {
      const auto all = registry.providers(one.kind, one.name);
      if (std::find(all.begin(), all.end(), &candidate) == all.end()) continue;
      rows.push_back({one.kind, one.name, d.id, d.version, d.license, one.summary});
    }
  }
  std::sort(rows.begin(), rows.end());
  if (!rows.empty()) rows.insert(rows.begin(), {"KIND", "NAME", "PLUGIN", "VERSION", "LICENSE", "SUMMARY"});
  std::string out = rows.empty() ? "no plugins found\n" : align(rows, "");
  if (!why) return out;
  out += "\nfolders searched, in this order:\n";
  for (const auto& place : registry.places()) {
    std::error_code none;
    out += fmt::format("  {}{}\n", place.string(), std::filesystem::exists(place, none) ? "" : " (no such folder)");
  }
  out += "\nfiles:\n";
  for (const Candidate& candidate : registry.candidates()) {
    out += fmt::format("  {}: {}\n", candidate.path.string(),
                       candidate.refused.empty() ? "used" : "refused: " + candidate.refused);
    if (!candidate.refused.empty()) continue;
    out += lacks(candidate, "    ");
    for (const std::string& note : candidate.shadowed) out += fmt::format("    {}\n", note);
    for (const Provided& one : candidate.description.provides)
      if (!one.refused.empty())
        out += fmt::format("    '{}' is not used: {}\n", one.name, one.refused);
      else if (!one.old.empty())
        out += fmt::format("    '{}': {}\n", one.name, one.old);
  }
  if (registry.candidates().empty()) out += "  none\n";
  return out;
}

namespace {

std::string stem(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.substr(0, name.find('.'));
}

// True if the file, or an interface in it, has this name.
bool is_called(const Candidate& candidate, const std::string& name) {
  const auto& all = candidate.description.provides;
  return stem(candidate.path) == name || candidate.description.id == name ||
         std::any_of(all.begin(), all.end(), [&](const Provided& one) { return one.name == name; });
}

// A line why a file, which may be missing, is not used.
std::string refusal(const Candidate& candidate) {
  std::error_code none;
  const bool there = std::filesystem::exists(candidate.path, none);
  return fmt::format("{}{}: {}\n", candidate.path.string(), there ? " is refused" : "", candidate.refused);
}

std::string provisions(const Candidate& candidate) {
  std::string out;
  for (const Provided& one : candidate.description.provides)
    out += fmt::format("{}{} '{}'", out.empty() ? "" : ", ", one.kind, one.name);
  return out.empty() ? "nothing" : out;
}

}  // namespace

std::string not_built_yet(const Registry& registry) {
  std::vector<std::string> names;
  for (const Candidate& c : registry.candidates())
    if (c.refused == not_built) names.push_back(stem(c.path));
  return names.empty() ? "" : fmt::format("not built yet: {}; `tools/dev build` builds them\n", fmt::join(names, ", "));
}

std::string explain_missing(const Registry& registry, const std::string& kind, const std::string& name,
                            const std::vector<std::filesystem::path>& asked) {
  std::string out;
  bool found = false;  // what is asked for, among those that are not built
  for (const Candidate& c : registry.candidates()) {
    const bool absent = c.refused == not_built || c.refused.starts_with(not_in_build);
    if (absent && !is_called(c, name)) continue;
    found = found || absent;
    if (c.refused.empty() && is_called(c, name)) out += fmt::format("{} provides {}\n", c.path.string(), provisions(c));
    for (const Provided& one : c.description.provides)
      if (c.refused.empty() && one.name == name && !one.refused.empty())
        out += fmt::format("{}: '{}' is refused: {}\n", c.path.string(), one.name, one.refused);
    // A file without a readable description may be the one that is meant.
    if (!c.refused.empty() && (is_called(c, name) || c.description.id.empty())) out += refusal(c);
  }
  // Packages have the plugins for GPUs apart.
  const bool of_gpus = (kind == ENG_DEVICE_KIND && name == "cuda") || (kind == ENG_COMM_KIND && name == "nccl");
  if (of_gpus && !found && out.empty()) out = "the package engine-cuda13 has it: docs/cuda.md says how to get it\n";
  for (const std::filesystem::path& folder : asked) {
    const auto place = (std::filesystem::absolute(folder) / "").lexically_normal().parent_path();
    const auto files = std::count_if(registry.candidates().begin(), registry.candidates().end(),
                                     [&](const auto& c) { return c.path == place || c.path.parent_path() == place; });
    std::error_code none;
    out +=
        fmt::format("searched {} ({})\n", place.string(),
                    std::filesystem::exists(place, none) ? fmt::format("plugin files: {}", files) : "no such folder");
  }
  // Without its file it is not known what a plugin of another name provides.
  return out + (found ? "" : not_built_yet(registry)) +
         fmt::format("no plugin provides {} '{}' in {} places: `engine plugins ls --why` lists them", kind, name,
                     registry.places().size());
}

std::string near_plugins(const Registry& registry, const std::string& what) {
  std::set<std::string> names;
  std::string refused;
  for (const Candidate& c : registry.candidates()) {
    if (!c.refused.empty()) {
      if (is_called(c, what)) refused += refusal(c);
      continue;
    }
    names.insert({c.description.id, stem(c.path)});
    for (const Provided& one : c.description.provides) names.insert(one.name);
  }
  const auto near = nearest(what, {names.begin(), names.end()});
  return refused + (near.empty() ? "" : fmt::format("did you mean `{}`? ", fmt::join(near, "` or `"))) +
         "`engine plugins ls` lists all, `engine plugins ls --why` also where was looked";
}

std::string print_plugin(const Registry& registry, const std::string& what) {
  std::string out;
  for (const Candidate& candidate : registry.candidates()) {
    const Description& d = candidate.description;
    if (!candidate.refused.empty() || !is_called(candidate, what)) continue;
    const bool named = std::any_of(d.provides.begin(), d.provides.end(), [&](const auto& p) { return p.name == what; });
    out += fmt::format("{} {} ({})\n  {}\n  {}\n  sha256 {}\n", d.id, d.version, d.license,
                       d.summary.empty() ? d.name : d.summary, candidate.path.string(), candidate.file->sha256());
    if (!d.uses.empty()) out += fmt::format("  uses {}\n", fmt::join(d.uses, ", "));
    out += lacks(candidate, "  ");
    for (const Provided& one : d.provides) {
      if (!one.refused.empty() || (named && d.id != what && one.name != what)) continue;
      out += fmt::format("\n{} '{}'{}\n", one.draft.empty() ? one.kind : one.draft, one.name,
                         one.summary.empty() ? "" : ": " + one.summary);
      if (!one.old.empty()) out += fmt::format("  {}\n", one.old);
      std::vector<Row> rows;
      for (const Option& option : one.schema.options)
        rows.push_back({option.key, describe(option), fallback(option), option.help});
      out += align(rows, "  ");
      for (const auto& [name, preset] : one.schema.presets) {
        out += fmt::format("  preset {}:", name);
        for (const Option& option : one.schema.options)
          if (const auto it = preset.find(option.key); it != preset.end())
            out += fmt::format(" {} = {}", option.key, show(option, it->second));
        out += "\n";
      }
    }
  }
  return out;
}

}  // namespace eng
