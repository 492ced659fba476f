// SPDX-License-Identifier: Apache-2.0
#include "core/registry/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "core/registry/plugin_file.hpp"
#include "engine/kernel.h"

namespace eng {
namespace fs = std::filesystem;

static const Provided* find_in(const Candidate& candidate, const std::string& kind, const std::string& name) {
  for (const Provided& one : candidate.description.provides)
    if (candidate.refused.empty() && one.kind == kind && one.name == name) return &one;
  return nullptr;
}

std::unique_ptr<Registry> Registry::scan(const Search& search) {
  std::unique_ptr<Registry> out(new Registry);
  out->places_ = search_path(search, out->candidates_);
  for (const fs::path& place : out->places_)
    for (const fs::path& path : plugin_files(place)) out->add(inspect(path));
  return out;
}

// Earlier files win.
void Registry::add(Candidate candidate) {
  const Description& d = candidate.description;
  for (const Candidate& earlier : candidates_)
    if (candidate.refused.empty() && earlier.refused.empty() && earlier.description.id == d.id)
      candidate.refused = fmt::format("shadowed by {} (the same plugin id {})", earlier.path.string(), d.id);
  for (const Provided& one : d.provides)
    if (const auto owners = providers(one.kind, one.name); !owners.empty() && one.kind != ENG_KERNELS_KIND)
      candidate.shadowed.push_back(
          fmt::format("{} '{}' is shadowed by {}", one.kind, one.name, owners[0]->path.string()));
  if (candidate.refused.empty() && candidate.shadowed.size() == d.provides.size())
    candidate.refused = candidate.shadowed[0];
  candidates_.push_back(std::move(candidate));
}

std::vector<const Candidate*> Registry::providers(const std::string& kind, const std::string& name) const {
  std::vector<const Candidate*> out;
  for (const Candidate& candidate : candidates_)
    if (find_in(candidate, kind, name) && (out.empty() || kind == ENG_KERNELS_KIND)) out.push_back(&candidate);
  return out;
}

const Provided* Registry::find(const std::string& kind, const std::string& name) const {
  const auto all = providers(kind, name);
  return all.empty() ? nullptr : find_in(*all[0], kind, name);
}

std::vector<std::string> Registry::names(const std::string& kind) const {
  std::set<std::string> out;
  for (const Candidate& candidate : candidates_)
    for (const Provided& one : candidate.description.provides)
      if (candidate.refused.empty() && one.kind == kind) out.insert(one.name);
  return {out.begin(), out.end()};
}

std::string Registry::explain(const std::string& kind, const std::string& name) const {
  std::string out = fmt::format("no plugin provides {} '{}'\n  looked in:", kind, name);
  for (const fs::path& place : places_) {
    std::error_code none;
    const auto here = std::count_if(candidates_.begin(), candidates_.end(), [&](const Candidate& c) {
      return c.path.parent_path() == place || c.path == place;
    });
    out += fmt::format(
        "\n    {} ({})", place.string(),
        !fs::exists(place, none) ? "no such folder" : fmt::format("{} plugin file{}", here, here == 1 ? "" : "s"));
  }
  std::string refused;
  for (const Candidate& candidate : candidates_)
    if (!candidate.refused.empty()) refused += fmt::format("\n    {}: {}", candidate.path.string(), candidate.refused);
  if (!refused.empty()) out += "\n  refused:" + refused;
  const auto others = names(kind);
  return out + fmt::format("\n  available of {}: {}", kind,
                           others.empty() ? "none" : fmt::format("{}", fmt::join(others, ", ")));
}

SchemaSource Registry::schemas() const {
  return {[this](const std::string& kind, const std::string& name) -> const PluginSchema* {
            const Provided* one = find(kind, name);
            return one ? &one->schema : nullptr;
          },
          [this](const std::string& kind) { return names(kind); },
          [this](const std::string& kind, const std::string& name) { return explain(kind, name); }};
}

void Registry::pin(const std::vector<std::string>& hashes) {
  for (const std::string& text : hashes) {
    const size_t equals = std::min(text.find('='), text.size());
    const std::string id = text.substr(0, equals);
    std::string& hash = pins_[id] = text.substr(std::min(equals + 1, text.size()));
    std::transform(hash.begin(), hash.end(), hash.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto named = [&](const Candidate& candidate) { return candidate.description.id == id; };
    if (std::none_of(candidates_.begin(), candidates_.end(), named))
      throw Error(Exit::usage, fmt::format("[plugins] sha256: there is no plugin with id '{}'", id));
  }
}

}  // namespace eng
