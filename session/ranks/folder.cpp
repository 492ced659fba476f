// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace eng {
namespace fs = std::filesystem;
namespace {

std::string prefix() {
  return fmt::format("engine-ranks-{}-", ::geteuid());
}

// The locked folder; -1 if it does not belong to this user, or a process holds it.
int held(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info {};
  if (fd >= 0 && ::fstat(fd, &info) == 0 && info.st_uid == ::geteuid() && ::flock(fd, LOCK_EX | LOCK_NB) == 0)
    return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

void remove_abandoned(const fs::path& place) {
  std::error_code error, ignored;
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().rfind(prefix(), 0) == 0)
      if (const Fd fd(held(it->path())); fd >= 0) fs::remove_all(it->path(), ignored);
}

}  // namespace

LaunchFolder::LaunchFolder(const fs::path& place) {
  remove_abandoned(place);
  // A process that removes abandoned folders may run between creating a folder and locking it.
  for (int k = 0; k < 100 && (fd_ < 0 || !fs::exists(path_)); ++k) {
    std::string name = (place / (prefix() + "XXXXXX")).string();
    if (!::mkdtemp(name.data()))
      throw fs::filesystem_error("cannot make a folder", place, std::error_code(errno, std::generic_category()));
    path_ = name;
    fd_ = Fd(held(path_));
  }
}

LaunchFolder::~LaunchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void LaunchFolder::hold() const {
  ::fcntl(fd_, F_SETFD, 0);
}

}  // namespace eng
