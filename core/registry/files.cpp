// SPDX-License-Identifier: Apache-2.0
#include "core/registry/files.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/base/error.hpp"
#include "core/registry/description.hpp"
#include "core/registry/elf.hpp"
#include "core/registry/paths.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

class File {
 public:
  explicit File(const fs::path& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

FileIdentity identity(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

// A group that has no member but the file's owner, as distributions make one for each user.
bool private_group(const struct stat& info) {
  const passwd* owner = getpwuid(info.st_uid);
  if (!owner || owner->pw_gid != info.st_gid) return false;
  const std::string name = owner->pw_name;
  const group* members = getgrgid(info.st_gid);
  if (!members || name != members->gr_name) return false;
  for (char** member = members->gr_mem; *member; ++member)
    if (name != *member) return false;
  return true;
}

bool pread_all(int fd, void* out, uint64_t count, uint64_t offset) {
  char* to = static_cast<char*>(out);
  while (count) {
    const ssize_t n = pread(fd, to, count, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    offset += static_cast<uint64_t>(n);
    count -= static_cast<uint64_t>(n);
  }
  return true;
}

fs::path executable() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none);
}

std::vector<fs::path> subfolders(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::error_code none; it->is_directory(none)) out.push_back(it->path());
  std::sort(out.begin(), out.end());
  return out;
}

const char* environment(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : nullptr;
}

// What is wrong with the file behind `info` and the folder it really lies in.
std::string distrust(const fs::path& path, const struct stat& info) {
  if (const std::string why = untrusted(info); !why.empty()) return "the file is " + why;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  for (const fs::path& folder : {path.parent_path(), real.parent_path()}) {
    struct stat around;
    if (error || stat(folder.c_str(), &around) != 0) return "its folder cannot be looked at";
    if (const std::string why = untrusted(around); !why.empty())
      return fmt::format("its folder {} is {}", folder.string(), why);
  }
  return "";
}

}  // namespace

std::vector<fs::path> search_path(const Registry::Search& search, std::vector<Candidate>& ignored) {
  std::vector<fs::path> all;
  for (const fs::path& path : search.extra) all.push_back(fs::absolute(path));
  if (search.environment) {
    std::string list = environment("ENGINE_PLUGIN_PATH") ? environment("ENGINE_PLUGIN_PATH") : "";
    for (size_t at = 0; at < list.size();) {
      const size_t end = std::min(list.find(':', at), list.size());
      const fs::path path = list.substr(at, end - at);
      at = end + 1;
      if (path.is_absolute()) {
        all.push_back(path);
      } else if (!path.empty()) {
        ignored.push_back({path, {}, "ENGINE_PLUGIN_PATH takes absolute folders only", {}});
      }
    }
    const char *data = environment("XDG_DATA_HOME"), *home = environment("HOME");
    fs::path user = data ? fs::path(data) : fs::path();
    if (!user.is_absolute() && home) user = fs::path(home) / ".local" / "share";
    if (user.is_absolute()) all.push_back(user / "engine" / "plugins" / std::to_string(ENG_ABI_MAJOR));
  }
  if (const fs::path program = executable(); !program.empty()) {
    const fs::path top = program.parent_path().parent_path();
    all.push_back(top / "lib" / "engine" / "plugins" / std::to_string(ENG_ABI_MAJOR));
    // The build tree: build/tools/engine beside build/plugins/NAME.
    std::error_code none;
    if (fs::exists(top / "build.ninja", none))
      for (fs::path& folder : subfolders(top / "plugins")) all.push_back(std::move(folder));
  }
  all.push_back(installed_plugins);
  std::vector<fs::path> out;
  for (fs::path& path : all) {
    path = path.lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (std::find(out.begin(), out.end(), path) == out.end()) out.push_back(std::move(path));
  }
  return out;
}

std::vector<fs::path> plugin_files(const fs::path& place) {
  std::error_code error;
  if (fs::exists(place, error) && !fs::is_directory(place, error)) return {place};
  std::vector<fs::path> out;
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().ends_with(".eng.so")) out.push_back(it->path());
  std::sort(out.begin(), out.end());
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

FileIdentity identity(const fs::path& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? identity(info) : FileIdentity();
}

Candidate inspect(const fs::path& path, FileIdentity& id) {
  Candidate out;
  out.path = path;
  const File file(path);
  struct stat info;
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    out.refused = fmt::format("cannot be opened: {}", std::strerror(errno));
    return out;
  }
  id = identity(info);
  if (!S_ISREG(info.st_mode)) {
    out.refused = "not a regular file";
    return out;
  }
  const Bytes bytes{static_cast<uint64_t>(info.st_size), [&](uint64_t offset, void* to, uint64_t count) {
                      return pread_all(file.get(), to, count, offset);
                    }};
  const ElfFile elf = read_elf(bytes);
  // The description is read even if the file is refused, so that a message can say what was refused.
  std::string described;
  if (elf.problem.empty())
    described = elf.has_description ? parse_description(elf.description, out.description)
                                    : "has no section .eng_plugin: add ENG_DESCRIPTION(...)";
  const std::string exported = elf.problem.empty() ? check_exports(elf.exports) : "";
  for (const std::string& why : {distrust(path, info), elf.problem, exported, described})
    if (out.refused.empty()) out.refused = why;
  return out;
}

std::string sha256_file(const fs::path& path) {
  const auto fail = [&](const char* what) {
    return Error(Exit::environment, fmt::format("{}: {}", path.string(), what));
  };
  const File file(path);
  if (file.get() < 0) throw fail(std::strerror(errno));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || !EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr)) throw fail("libcrypto has no SHA-256");
  std::vector<char> buffer(256 << 10);
  for (;;) {
    const ssize_t n = read(file.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw fail(std::strerror(errno));
    if (n == 0) break;
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(n));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (!EVP_DigestFinal_ex(context.get(), digest.data(), &size)) throw fail("SHA-256 failed");
  std::string out;
  for (unsigned k = 0; k < size; ++k) out += fmt::format("{:02x}", digest[k]);
  return out;
}

}  // namespace eng
