// SPDX-License-Identifier: Apache-2.0
#include "core/registry/registry.hpp"

#include <algorithm>
#include <set>

#include "engine/kernel.h"

namespace eng {

const Provided* find_in(const Candidate& candidate, const std::string& kind, const std::string& name) {
  for (const Provided& one : candidate.description.provides)
    if (candidate.refused.empty() && one.refused.empty() && one.kind == kind && one.name == name) return &one;
  return nullptr;
}

// Earlier files win.
void Registry::add(Candidate candidate) {
  const Description& d = candidate.description;
  for (const Candidate& earlier : candidates_)
    if (candidate.refused.empty() && earlier.refused.empty() && earlier.description.id == d.id)
      candidate.refused = fmt::format("shadowed by {} (the same plugin id {})", earlier.path.string(), d.id);
  size_t usable = 0;
  for (const Provided& one : d.provides) {
    if (!one.refused.empty()) continue;
    ++usable;
    if (const auto owners = providers(one.kind, one.name); !owners.empty() && one.kind != ENG_KERNELS_KIND)
      candidate.shadowed.push_back(
          fmt::format("{} '{}' is shadowed by {}", one.kind, one.name, owners[0]->path.string()));
  }
  if (candidate.refused.empty() && candidate.shadowed.size() == usable) candidate.refused = candidate.shadowed[0];
  if (!candidate.refused.empty()) candidate.file = nullptr;
  candidates_.push_back(std::move(candidate));
}

std::vector<const Candidate*> Registry::providers(const std::string& kind, const std::string& name) const {
  std::vector<const Candidate*> out;
  for (const Candidate& candidate : candidates_)
    if (find_in(candidate, kind, name) && (out.empty() || kind == ENG_KERNELS_KIND)) out.push_back(&candidate);
  return out;
}

std::vector<std::pair<const Candidate*, std::string>> Registry::loaded_providers(const std::string& kind) const {
  std::vector<std::pair<const Candidate*, std::string>> out;
  for (const Candidate& candidate : candidates_) {
    const auto same = [&](const Loaded& one) { return one.id == candidate.description.id; };
    if (candidate.refused.empty() && std::any_of(loaded_.begin(), loaded_.end(), same))
      for (const Provided& one : candidate.description.provides)
        if (one.kind == kind && one.refused.empty()) out.emplace_back(&candidate, one.name);
  }
  return out;
}

std::string Registry::refused_file(const std::string& name) const {
  for (const Candidate& c : candidates_)
    if (!c.refused.empty() && c.path.filename() == name + ".eng.so") return c.path.string() + ": " + c.refused + "; ";
  return "";
}

const Provided* Registry::find(const std::string& kind, const std::string& name) const {
  const auto all = providers(kind, name);
  return all.empty() ? nullptr : find_in(*all[0], kind, name);
}

std::vector<std::string> Registry::names(const std::string& kind) const {
  std::set<std::string> out;
  for (const Candidate& candidate : candidates_)
    for (const Provided& one : candidate.description.provides)
      if (candidate.refused.empty() && one.refused.empty() && one.kind == kind) out.insert(one.name);
  return {out.begin(), out.end()};
}

}  // namespace eng
