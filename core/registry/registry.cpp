// SPDX-License-Identifier: Apache-2.0
#include "core/registry/registry.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <system_error>

#include "core/base/error.hpp"
#include "core/registry/files.hpp"
#include "core/registry/library.hpp"
#include "core/registry/normalise.hpp"
#include "engine/kernel.h"

namespace eng {
namespace fs = std::filesystem;

struct Registry::State {
  std::vector<fs::path> places;
  std::vector<Candidate> candidates;
  std::vector<FileIdentity> identities;  // of the candidates
  std::vector<std::string> flaws;        // why a candidate is refused whatever else there is, or ""
  // Who provides what, in search order.
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> providers;
  std::map<std::string, std::string> pins;
  std::vector<Loaded> loaded;

  void add(Candidate candidate, const FileIdentity& id);
  void offer(size_t index);
  void index_again();
};

// Of these kinds all providers are used, not the first alone.
static bool additive(const std::string& kind) {
  return kind == ENG_KERNELS_KIND;
}

void Registry::State::add(Candidate candidate, const FileIdentity& id) {
  flaws.push_back(candidate.refused);
  candidates.push_back(std::move(candidate));
  identities.push_back(id);
  offer(candidates.size() - 1);
}

void Registry::State::offer(size_t index) {
  Candidate& candidate = candidates[index];
  if (!candidate.refused.empty()) return;
  for (size_t k = 0; k < index; ++k)
    if (candidates[k].refused.empty() && candidates[k].description.id == candidate.description.id) {
      candidate.refused =
          fmt::format("shadowed by {} (the same plugin id {})", candidates[k].path.string(), candidate.description.id);
      return;
    }
  bool used = false;
  for (const Provided& one : candidate.description.provides) {
    std::vector<size_t>& owners = providers[{one.kind, one.name}];
    if (!owners.empty() && !additive(one.kind)) {
      candidate.shadowed.push_back(
          fmt::format("{} '{}' is shadowed by {}", one.kind, one.name, candidates[owners.front()].path.string()));
    } else {
      owners.push_back(index);
      used = true;
    }
  }
  if (!used) candidate.refused = candidate.shadowed.front();
}

void Registry::State::index_again() {
  providers.clear();
  for (size_t k = 0; k < candidates.size(); ++k) {
    candidates[k].shadowed.clear();
    candidates[k].refused = flaws[k];
    offer(k);
  }
}

Registry::Registry() : state_(std::make_unique<State>()) {}
Registry::~Registry() = default;

std::unique_ptr<Registry> Registry::scan(const Search& search) {
  std::unique_ptr<Registry> out(new Registry);
  State& state = *out->state_;
  std::vector<Candidate> ignored;
  state.places = search_path(search, ignored);
  for (Candidate& candidate : ignored) state.add(std::move(candidate), {});
  for (const fs::path& place : state.places)
    for (const fs::path& path : plugin_files(place)) {
      FileIdentity id;
      Candidate candidate = inspect(path, id);
      state.add(std::move(candidate), id);
    }
  return out;
}

const std::vector<fs::path>& Registry::places() const {
  return state_->places;
}
const std::vector<Candidate>& Registry::candidates() const {
  return state_->candidates;
}
std::vector<Registry::Loaded> Registry::loaded() const {
  return state_->loaded;
}

std::vector<const Candidate*> Registry::providers(const std::string& kind, const std::string& name) const {
  std::vector<const Candidate*> out;
  const auto it = state_->providers.find({kind, name});
  if (it != state_->providers.end())
    for (const size_t index : it->second) out.push_back(&state_->candidates[index]);
  return out;
}

const Candidate* Registry::provider(const std::string& kind, const std::string& name) const {
  const auto all = providers(kind, name);
  return all.empty() ? nullptr : all.front();
}

const Provided* Registry::find(const std::string& kind, const std::string& name) const {
  if (const Candidate* from = provider(kind, name))
    for (const Provided& one : from->description.provides)
      if (one.kind == kind && one.name == name) return &one;
  return nullptr;
}

std::vector<std::string> Registry::names(const std::string& kind) const {
  std::vector<std::string> out;
  for (const auto& [key, owners] : state_->providers)
    if (key.first == kind && !owners.empty()) out.push_back(key.second);
  return out;
}

std::string Registry::explain(const std::string& kind, const std::string& name) const {
  std::string out = fmt::format("no plugin provides {} '{}'", kind, name);
  for (const Candidate& candidate : state_->candidates)
    for (const Provided& one : candidate.description.provides)
      if (one.kind == kind && one.name == name && !candidate.refused.empty())
        out += fmt::format("\n  {} would, but is refused: {}", candidate.path.string(), candidate.refused);
  out += "\n  looked in:";
  for (const fs::path& place : state_->places) {
    std::error_code none;
    const auto here = std::count_if(state_->candidates.begin(), state_->candidates.end(), [&](const Candidate& c) {
      return c.path.parent_path() == place || c.path == place;
    });
    const std::string what =
        fs::exists(place, none) ? fmt::format("{} plugin file{}", here, here == 1 ? "" : "s") : "no such folder";
    out += fmt::format("\n    {} ({})", place.string(), what);
  }
  std::string refused;
  for (const Candidate& candidate : state_->candidates)
    if (!candidate.refused.empty()) refused += fmt::format("\n    {}: {}", candidate.path.string(), candidate.refused);
  if (!refused.empty()) out += "\n  refused:" + refused;
  std::string others;
  for (const std::string& other : names(kind)) others += (others.empty() ? "" : ", ") + other;
  return out + fmt::format("\n  available of {}: {}", kind, others.empty() ? "none" : others);
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
    const size_t equals = text.find('=');
    std::string hex = equals == std::string::npos ? "" : text.substr(equals + 1);
    std::transform(hex.begin(), hex.end(), hex.begin(), [](unsigned char c) { return std::tolower(c); });
    if (equals == 0 || hex.size() != 64 || hex.find_first_not_of("0123456789abcdef") != std::string::npos)
      throw Error(Exit::usage, fmt::format("[plugins] sha256: '{}' is no pin", text),
                  "write id=HASH with 64 hexadecimal digits, as `sha256sum FILE` prints them");
    const std::string id = text.substr(0, equals);
    bool known = false;
    for (size_t k = 0; k < state_->candidates.size(); ++k) {
      if (state_->candidates[k].description.id != id) continue;
      known = true;
      if (!state_->flaws[k].empty()) continue;
      const std::string is = sha256_file(state_->candidates[k].path);
      if (is != hex) state_->flaws[k] = fmt::format("its sha256 is {}, [plugins] sha256 pins {}", is, hex);
    }
    if (!known) throw Error(Exit::usage, fmt::format("[plugins] sha256: there is no plugin with id '{}'", id));
    state_->pins[id] = hex;
  }
  state_->index_again();
}

const Candidate& Registry::the_provider(const std::string& kind, const std::string& name) const {
  if (const Candidate* from = provider(kind, name)) return *from;
  throw Error(Exit::environment, explain(kind, name));
}

void Registry::copy_table(const Candidate& from, const std::string& kind, const std::string& name, void* out,
                          uint32_t size, uint32_t first_size) {
  const size_t index = static_cast<size_t>(&from - state_->candidates.data());
  Library& library = Library::load(from, state_->identities[index]);
  const std::string where = fmt::format("plugin {} ({})", from.description.id, from.path.string());
  const auto pin = state_->pins.find(from.description.id);
  if (pin != state_->pins.end() && pin->second != library.sha256())
    throw Error(Exit::environment,
                fmt::format("{}: its sha256 is {}, [plugins] sha256 pins {}", where, library.sha256(), pin->second));
  const void* table = library.get_interface(kind, name);
  if (!table)
    throw Error(
        Exit::environment,
        fmt::format("{}: get_interface gave nothing for {} '{}', which its description lists", where, kind, name));
  copy_struct(table, out, size, first_size, fmt::format("{}: its table of {} '{}'", where, kind, name));
  const std::string path = from.path.string();
  for (const Loaded& one : state_->loaded)
    if (one.path == path) return;
  state_->loaded.push_back({from.description.id, from.description.version, path, library.sha256(), library.warning()});
}

}  // namespace eng
