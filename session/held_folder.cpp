// SPDX-License-Identifier: Apache-2.0
#include "session/held_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace eng {
namespace fs = std::filesystem;
namespace {

const std::string descriptors = "/proc/self/fd/";

}  // namespace

HeldFolder::HeldFolder(fs::path path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) disk_error("open", path_, errno);
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
