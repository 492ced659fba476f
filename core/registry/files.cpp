// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <grp.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/base/error.hpp"
#include "core/registry/paths.hpp"
#include "core/registry/plugin_file.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

// A group that has no member but the file's owner, as distributions make one for each user.
bool private_group(const struct stat& info) {
  const passwd* owner = getpwuid(info.st_uid);
  const group* members = getgrgid(info.st_gid);
  if (!owner || !members || owner->pw_gid != info.st_gid || std::strcmp(owner->pw_name, members->gr_name)) return false;
  for (char** member = members->gr_mem; *member; ++member)
    if (std::strcmp(owner->pw_name, *member)) return false;
  return true;
}

// What is in `folder`, sorted; nothing if it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) out.push_back(*it);
  std::sort(out.begin(), out.end());
  return out;
}

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value ? value : "";
}

// Why the file or the folder it is listed or really lies in cannot be trusted.
std::string distrust(const fs::path& path, const struct stat& info) {
  if (const std::string why = untrusted(info); !why.empty()) return "the file is " + why;
  std::error_code none;
  for (const fs::path& folder : {path.parent_path(), fs::canonical(path, none).parent_path()}) {
    struct stat around;
    if (stat(folder.c_str(), &around) != 0) return "its folder cannot be looked at";
    if (const std::string why = untrusted(around); !why.empty())
      return fmt::format("its folder {} is {}", folder.string(), why);
  }
  return "";
}

}  // namespace

std::vector<fs::path> search_path(const Registry::Search& search, std::vector<Candidate>& ignored) {
  std::vector<fs::path> out;
  const auto add = [&](const fs::path& path) {
    fs::path place = path.lexically_normal();
    if (!place.has_filename()) place = place.parent_path();
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
        ignored.push_back({path, {}, "ENGINE_PLUGIN_PATH takes absolute folders only", {}});
    }
    fs::path data = environment("XDG_DATA_HOME");
    if (!data.is_absolute()) data = fs::path(environment("HOME")) / ".local" / "share";
    if (data.is_absolute()) add(data / below);
  }
  std::error_code none;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", none); !program.empty()) {
    const fs::path top = program.parent_path().parent_path();
    add(top / "lib" / below);
    // The build tree: build/tools/engine beside build/plugins/NAME.
    if (fs::exists(top / "build.ninja", none))
      for (const fs::path& folder : entries(top / "plugins"))
        if (fs::is_directory(folder, none)) add(folder);
  }
  add(installed_plugins);
  return out;
}

std::vector<fs::path> plugin_files(const fs::path& place) {
  std::error_code none;
  if (fs::exists(place, none) && !fs::is_directory(place, none)) return {place};
  std::vector<fs::path> out = entries(place);
  std::erase_if(out, [](const fs::path& path) { return !path.filename().string().ends_with(".eng.so"); });
  return out;
}

std::string untrusted(const struct stat& info) {
  if (info.st_uid != 0 && info.st_uid != geteuid())
    return fmt::format("owned by user {}, who is neither root nor you", info.st_uid);
  if (info.st_mode & S_IWOTH) return "writable by everybody (chmod o-w)";
  if ((info.st_mode & S_IWGRP) && !private_group(info))
    return fmt::format("writable by group {} (chmod g-w)", info.st_gid);
  return "";
}

Candidate inspect(const fs::path& path) {
  Candidate out{path, {}, "", {}};
  struct stat info;
  const bool there = stat(path.c_str(), &info) == 0, regular = there && S_ISREG(info.st_mode);
  std::ifstream in;
  if (regular) in.open(path, std::ios::binary);  // to open a pipe would wait for its writer
  if (!there || !in)
    out.refused = fmt::format("cannot be opened: {}", std::strerror(errno));
  else if (!regular)
    out.refused = "not a regular file";
  if (!out.refused.empty()) return out;
  const ElfFile elf = read_elf(in);
  // The description is read even if the file is refused, so that a message can say what was refused.
  const std::string described = elf.description.empty() ? "has no section .eng_plugin: add ENG_DESCRIPTION(...)"
                                                        : parse_description(elf.description, out.description);
  for (const std::string& why : {distrust(path, info), elf.problem, described})
    if (out.refused.empty()) out.refused = why;
  return out;
}

std::string sha256_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  bool good = in && context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  std::vector<char> buffer(256 << 10);
  while (good && in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    good = !in.bad() && EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(in.gcount()));
  }
  unsigned char digest[32];
  if (!good || !EVP_DigestFinal_ex(context.get(), digest, nullptr))
    throw Error(Exit::environment, fmt::format("{}: cannot be read for its sha256", path.string()));
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace eng
