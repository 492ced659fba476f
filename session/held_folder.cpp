// SPDX-License-Identifier: Apache-2.0
#include "session/held_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace eng {
namespace fs = std::filesystem;
namespace {

const std::string descriptors = "/proc/self/fd/";

[[noreturn]] void refuse_link(const fs::path& path) {
  throw Error(Exit::disk, path.string() + " is a symbolic link, and a run follows none in its directory",
              "put a folder in its place, with what the link leads to");
}

Fd opened(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0) disk_error("open", path, errno);
  return fd;
}

Fd opened_in(const HeldFolder& in, const std::string& name) {
  const fs::path path = in.path() / name;
  if (::mkdirat(in.descriptor(), name.c_str(), 0777) != 0 && errno != EEXIST)
    disk_error("create directory", path, errno);
  Fd fd(::openat(in.descriptor(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd >= 0) return fd;
  const int error = errno;
  struct stat info {};
  if (::fstatat(in.descriptor(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode))
    refuse_link(path);
  disk_error("open", path, error);
}

}  // namespace

HeldFolder::HeldFolder(fs::path path) : HeldFolder(path, opened(path)) {}

HeldFolder::HeldFolder(const HeldFolder& in, const std::string& name)
    : HeldFolder(in.path() / name, opened_in(in, name)) {}

HeldFolder::HeldFolder(fs::path path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {
  inside_ = descriptors + std::to_string(fd_);
  struct stat held {
  }, seen{};
  // Without /proc the name has to do.
  if (::fstat(fd_, &held) != 0 || ::stat(inside_.c_str(), &seen) != 0 || held.st_ino != seen.st_ino ||
      held.st_dev != seen.st_dev)
    inside_ = path_;
}

HeldFolder::Place HeldFolder::place() const {
  struct stat held {
  }, named{};
  if (::fstat(fd_, &held) != 0 || held.st_nlink == 0) return Place::removed;
  const bool same = ::stat(path_.c_str(), &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  return same ? Place::same : Place::moved;
}

fs::path HeldFolder::found() const {
  std::error_code error;
  const fs::path name = fs::read_symlink(descriptors + std::to_string(fd_), error);
  return error ? path_ : name;
}

fs::path own_folder(const fs::path& run, const std::string& name) {
  std::error_code none;
  fs::path path = run / name;
  if (fs::is_symlink(path, none)) refuse_link(path);
  return path;
}

std::string name_held(std::string text) {
  for (size_t at = 0; (at = text.find(descriptors, at)) != text.npos; ++at) {
    size_t end = at + descriptors.size();
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    std::error_code error;
    const fs::path name = fs::read_symlink(text.substr(at, end - at), error);
    if (!error && name.is_absolute()) text.replace(at, end - at, name.string());
  }
  return text;
}

}  // namespace eng
