// SPDX-License-Identifier: Apache-2.0
#include "core/registry/registry.hpp"

#include <grp.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "core/registry/paths.hpp"
#include "core/registry/plugin_file.hpp"
#include "engine/kernel.h"

namespace eng {
namespace fs = std::filesystem;
namespace {

// True if the file's owner is the only member of its group, as with the per-user groups of distributions.
bool private_group(const struct stat& info) {
  const passwd* owner = getpwuid(info.st_uid);
  const group* members = getgrgid(info.st_gid);
  if (!owner || !members || owner->pw_gid != info.st_gid || std::strcmp(owner->pw_name, members->gr_name)) return false;
  for (char** member = members->gr_mem; *member; ++member)
    if (std::strcmp(owner->pw_name, *member)) return false;
  return true;
}

// Entries of `folder` with this ending, sorted; none if it cannot be read.
std::vector<fs::path> entries(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().string().ends_with(ending)) out.push_back(*it);
  std::sort(out.begin(), out.end());
  return out;
}

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value ? value : "";
}

// Why the file, the folder it was found in or, through links, its real folder cannot be trusted; "" if they can.
std::string distrust(const fs::path& path, const struct stat& info) {
  if (const std::string why = untrusted(info); !why.empty()) return "the file is " + why;
  std::error_code none;
  for (const fs::path& folder : {path.parent_path(), fs::canonical(path, none).parent_path()}) {
    struct stat around;
    if (stat(folder.c_str(), &around) != 0) return "its folder cannot be examined";
    if (const std::string why = untrusted(around); !why.empty())
      return fmt::format("its folder {} is {}", folder.string(), why);
  }
  return "";
}

// Folders (or files, which --plugin-path may name), absolute and without duplicates. `ignored` receives relative paths
// from the environment, which would depend on the working directory.
std::vector<fs::path> search_path(const Registry::Search& search, std::vector<Candidate>& ignored) {
  std::vector<fs::path> out;
  const auto add = [&](const fs::path& path) {
    const fs::path place = (path / "").lexically_normal().parent_path();  // no trailing slash
    if (std::find(out.begin(), out.end(), place) == out.end()) out.push_back(place);
  };
  const fs::path below = fs::path("engine") / "plugins" / std::to_string(ENG_ABI_MAJOR);
  for (const fs::path& path : search.extra) add(fs::absolute(path));
  if (search.environment) {
    std::istringstream list(environment("ENGINE_PLUGIN_PATH"));
    for (std::string path; std::getline(list, path, ':');) {
      if (fs::path(path).is_absolute())
        add(path);
      else if (!path.empty())
        ignored.push_back({path, {}, "ENGINE_PLUGIN_PATH must list absolute folders", {}});
    }
    fs::path data = environment("XDG_DATA_HOME");
    if (!data.is_absolute()) data = fs::path(environment("HOME")) / ".local" / "share";
    if (data.is_absolute()) add(data / below);
  }
  std::error_code none;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", none); !program.empty()) {
    const fs::path top = program.parent_path().parent_path();
    // The installed tree, which may have been moved: lib/ or, on Debian, lib/x86_64-linux-gnu/.
    add(program.parent_path() / fs::path(installed_plugins).lexically_relative(installed_commands));
    // The build tree: build/tools/engine and build/plugins/NAME.
    if (fs::exists(top / "build.ninja", none))
      for (const fs::path& folder : entries(top / "plugins", ""))
        if (fs::is_directory(folder, none)) add(folder);
  }
  add(installed_plugins);
  return out;
}

// Reads and checks one file.
Candidate inspect(const fs::path& path) {
  Candidate out{path, {}, "", {}};
  struct stat info;
  std::ifstream in;
  const bool there = stat(path.c_str(), &info) == 0, regular = there && S_ISREG(info.st_mode);
  if (regular) in.open(path, std::ios::binary);  // opening a pipe would wait for its writer
  if (!there || !in) out.refused = fmt::format("cannot be opened: {}", std::strerror(errno));
  if (there && !regular) out.refused = "not a regular file";
  if (!out.refused.empty()) return out;
  const ElfFile elf = read_elf(in);
  // The description is read even if the file is refused, so that messages can name the plugin.
  const std::string described = elf.description.empty() ? "has no section .eng_plugin: add ENG_DESCRIPTION(...)"
                                                        : parse_description(elf.description, out.description);
  for (const std::string& why : {distrust(path, info), elf.problem, described})
    if (out.refused.empty()) out.refused = why;
  const auto& all = out.description.provides;
  const bool none = std::none_of(all.begin(), all.end(), [](const Provided& one) { return one.refused.empty(); });
  if (out.refused.empty() && none) out.refused = all[0].refused;
  return out;
}

const Provided* find_in(const Candidate& candidate, const std::string& kind, const std::string& name) {
  for (const Provided& one : candidate.description.provides)
    if (candidate.refused.empty() && one.refused.empty() && one.kind == kind && one.name == name) return &one;
  return nullptr;
}

}  // namespace

std::string untrusted(const struct stat& info) {
  if (info.st_uid != 0 && info.st_uid != geteuid())
    return fmt::format("owned by user {}, who is neither root nor you", info.st_uid);
  if (info.st_mode & S_IWOTH) return "writable by everybody (chmod o-w)";
  if ((info.st_mode & S_IWGRP) && !private_group(info))
    return fmt::format("writable by group {} (chmod g-w)", info.st_gid);
  return "";
}

std::string sha256_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool good = in && hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr);
  for (std::vector<char> piece(1 << 16); good && in;) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    good = EVP_DigestUpdate(hash.get(), piece.data(), static_cast<size_t>(in.gcount()));
  }
  unsigned char digest[32];
  if (!good || in.bad() || !EVP_DigestFinal_ex(hash.get(), digest, nullptr))
    throw Error(Exit::environment, fmt::format("{}: cannot be read for its sha256", path.string()));
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::unique_ptr<Registry> Registry::scan(const Search& search) {
  std::unique_ptr<Registry> out(new Registry);
  out->places_ = search_path(search, out->candidates_);
  std::error_code none;
  for (const fs::path& place : out->places_) {
    const bool file = fs::exists(place, none) && !fs::is_directory(place, none);
    for (const fs::path& path : file ? std::vector{place} : entries(place, ".eng.so")) out->add(inspect(path));
  }
  return out;
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

void Registry::pin(const std::vector<std::string>& hashes, const std::string& by, const std::string& help) {
  for (std::string text : hashes) {
    const std::string id = text.substr(0, text.find('='));
    const auto named = [&](const Candidate& candidate) { return candidate.description.id == id; };
    if (std::none_of(candidates_.begin(), candidates_.end(), named))
      throw Error(Exit::usage, fmt::format("{}: there is no plugin with id '{}'", by, id));
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string hash = text.substr(std::min(id.size() + 1, text.size()));
    if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != std::string::npos)
      throw Error(Exit::usage, fmt::format("{}: '{}' is not ID=HASH with 64 hexadecimal digits", by, text));
    pins_[id] = {hash, by, help};
  }
}

}  // namespace eng
