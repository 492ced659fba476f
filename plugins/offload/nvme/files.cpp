// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "pages.hpp"

namespace nvme {

namespace {

std::string number(uint64_t n) {
  return std::to_string(n);
}
std::string reason() {
  return std::strerror(errno);
}

// Free bytes of a file system, without those that are kept for root.
uint64_t free_bytes(const struct statvfs& about) {
  return uint64_t{about.f_bavail} * about.f_frsize;
}

void check_directory(const std::string& directory) {
  struct stat about {};
  const std::string name = "offload.nvme_paths: " + directory;
  if (stat(directory.c_str(), &about) != 0)
    throw Error{ENG_INVALID, name + ": " + reason() + "; create the directory, or name another"};
  if (!S_ISDIR(about.st_mode)) throw Error{ENG_INVALID, name + " is not a directory; name one on a disk"};
}

[[noreturn]] void refuse_space(const std::string& directory, uint64_t bytes, uint64_t free) {
  throw Error{ENG_NO_MEMORY, directory + ": no space for " + number(bytes) + " bytes of states, " + number(free) +
                                 " bytes are free; free some, or name other directories in offload.nvme_paths"};
}

// Refuses before anything is filled. The files of one file system have to fit together.
void check_space(const Settings& settings, const Stripes& stripes, uint64_t bytes) {
  struct System {
    std::string path;
    uint64_t needed = 0, free = 0;
  };
  std::map<dev_t, System> systems;
  for (size_t k = 0; k < settings.paths.size(); ++k) {
    struct stat about {};
    struct statvfs system {};
    const std::string& path = settings.paths[k];
    check_directory(path);
    if (stat(path.c_str(), &about) != 0 || statvfs(path.c_str(), &system) != 0) continue;
    System& s = systems[about.st_dev];
    if (s.path.empty()) s.path = path;
    s.needed += stripes.length(k, bytes), s.free = free_bytes(system);
  }
  for (const auto& entry : systems) {
    const System& s = entry.second;
    if (s.needed > s.free) refuse_space(s.path, s.needed, s.free);
  }
}

}  // namespace

File::File(const std::string& directory, bool direct) : directory_(directory) {
  check_directory(directory);
  fd_ = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  name_ = directory + "/engine-scratch-XXXXXX";
  if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // this file system has no files without a name
    fd_ = mkostemp(name_.data(), O_CLOEXEC);
    if (fd_ >= 0) unlink(name_.c_str());
  } else if (fd_ >= 0) {
    struct stat about {};
    if (fstat(fd_, &about) == 0) name_ = directory + "/#" + number(about.st_ino);
  }
  if (fd_ < 0)
    throw Error{ENG_INVALID, "offload.nvme_paths: no file can be written in " + directory + ": " + reason() +
                                 "; change its permissions, or name another directory"};
  if (!direct) return;
  try {
    make_direct();
  } catch (...) {
    close(fd_);
    throw;
  }
}

File::File(File&& other) noexcept
    : directory_(std::move(other.directory_)),
      name_(std::move(other.name_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      alignment_(other.alignment_) {}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

void File::make_direct() {
  alignment_ = 512;
  bool possible = true;
#ifdef STATX_DIOALIGN
  struct statx about {};
  if (statx(fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 && (about.stx_mask & STATX_DIOALIGN) != 0) {
    possible = about.stx_dio_mem_align != 0 && about.stx_dio_mem_align <= page && about.stx_dio_offset_align <= page;
    alignment_ = std::max(about.stx_dio_mem_align, 1u);
  }
#endif
  const int flags = fcntl(fd_, F_GETFL);
  if (possible && flags >= 0 && fcntl(fd_, F_SETFL, flags | O_DIRECT) == 0) return;
  throw Error{ENG_UNSUPPORTED, directory_ +
                                   ": this file system cannot read and write blocks of 4096 bytes past the page cache "
                                   "(O_DIRECT); set offload.nvme_direct = false, which goes through the page cache"};
}

void File::refuse(uint64_t bytes, int why) const {
  if (why == EFBIG)
    throw Error{ENG_NO_MEMORY, directory_ + ": " + number(bytes) +
                                   " bytes are more than a file may have there; name more directories in "
                                   "offload.nvme_paths"};
  if (why == ENOSPC) {
    struct statvfs system {};
    fstatvfs(fd_, &system);
    refuse_space(directory_, bytes, free_bytes(system));
  }
  throw Error{ENG_NO_MEMORY, directory_ + ": no space for " + number(bytes) + " bytes of states: " +
                                 std::strerror(why) + "; name other directories in offload.nvme_paths"};
}

void File::reserve(uint64_t bytes) {
  rlimit limit{};
  // Beyond the limit the system would not only refuse but end the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
    throw Error{ENG_NO_MEMORY, directory_ + ": a file of " + number(bytes) + " bytes is over the limit of " +
                                   number(limit.rlim_cur) +
                                   " bytes for the files of this process; raise it (ulimit -f), or name more "
                                   "directories in offload.nvme_paths"};
  bytes_ = bytes;
  if (bytes == 0) return;
  int why = 0;
  do why = fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  while (why == EINTR);
  if (why == EOPNOTSUPP || why == ENOSYS)
    write_zeros(bytes);
  else if (why != 0)
    refuse(bytes, why);
}

// Writes zeros if space cannot be reserved otherwise.
void File::write_zeros(uint64_t bytes) const {
  const uint64_t most = std::min<uint64_t>(bytes, 1 << 20);
  const Pages zeros(most, "the first contents of a file");
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t n = pwrite(fd_, zeros.data(), std::min(most, bytes - at), static_cast<off_t>(at));
    if (n < 0 && errno != EINTR) refuse(bytes, errno);
    if (n > 0) at = (at + static_cast<uint64_t>(n)) / page * page;
  }
}

uint64_t capacity(const std::vector<std::string>& directories) {
  struct System {
    uint64_t free = 0, files = 0;
  };
  std::map<dev_t, System> systems;
  for (const std::string& directory : directories) {
    struct stat about {};
    struct statvfs system {};
    if (stat(directory.c_str(), &about) != 0 || statvfs(directory.c_str(), &system) != 0) return 0;
    System& s = systems[about.st_dev];
    s.free = free_bytes(system), ++s.files;
  }
  // The files grow together, until the first file system is full.
  uint64_t each = UINT64_MAX;
  for (const auto& [device, system] : systems) each = std::min(each, system.free / system.files);
  return each * directories.size();
}

std::vector<File> make_files(const Settings& settings, const Stripes& stripes, uint64_t bytes) {
  check_space(settings, stripes, bytes);
  std::vector<File> files;
  files.reserve(settings.paths.size());
  for (const std::string& path : settings.paths) {
    files.emplace_back(path, settings.direct);
    files.back().reserve(stripes.length(files.size() - 1, bytes));
  }
  return files;
}

}  // namespace nvme
