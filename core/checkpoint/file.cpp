// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace eng {
namespace fs = std::filesystem;
namespace {

// One write of a file is at most this, so that a signal's flag is seen and no kernel limit is met.
constexpr uint64_t kChunk = 16u << 20;

[[noreturn]] void disk_error(const std::string& what, const fs::path& path, int error) {
  throw Error(Exit::disk, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)));
}

int swap_names(const char* a, const char* b) {
  return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

void sync_and_close(int fd, const fs::path& path) {
  const int failed = file_calls().sync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (failed) disk_error("flush", path, failed);
}

}  // namespace

FileCalls& file_calls() {
  static FileCalls calls{::write, ::fsync, ::rename, swap_names};
  return calls;
}

FileWriter::FileWriter(fs::path path, uint64_t expected) : path_(std::move(path)), expected_(expected) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("create", errno);
  // Only "no space" counts here: a file system that cannot reserve says so in other ways.
  if (expected && ::fallocate(fd_, 0, 0, off_t(expected)) != 0 && errno == ENOSPC) {
    ::close(std::exchange(fd_, -1));
    fail("write", ENOSPC);
  }
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWriter::fail(const char* what, int error) {
  throw Error(Exit::disk,
              fmt::format("cannot {} {}: {} (after {} of {} bytes; needs {} more, {} free)", what, path_.string(),
                          std::strerror(error), written_, std::max(expected_, written_),
                          expected_ > written_ ? expected_ - written_ : 0, free_bytes(path_)),
              "free space on this file system, lower [checkpoint] keep, or move the run with --out");
}

void FileWriter::write(const void* data, uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes) {
    const ssize_t n = file_calls().write(fd_, from, size_t(std::min(bytes, kChunk)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", errno);
    if (n == 0) fail("write", EIO);
    from += n;
    bytes -= uint64_t(n);
    written_ += uint64_t(n);
  }
}

void FileWriter::finish() {
  if (file_calls().sync(fd_) != 0) fail("flush", errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail("close", errno);
}

FileReader::FileReader(fs::path path, Exit exit) : path_(std::move(path)), exit_(exit) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw Error(exit_, fmt::format("cannot open {}: {}", path_.string(), std::strerror(errno)));
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    throw Error(exit_, fmt::format("{} is not a regular file", path_.string()));
  }
  size_ = uint64_t(info.st_size);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), exit_(other.exit_), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

void FileReader::read(void* out, uint64_t offset, uint64_t bytes) const {
  char* to = static_cast<char*>(out);
  while (bytes) {
    const ssize_t n = ::pread(fd_, to, size_t(std::min(bytes, kChunk)), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(exit_, fmt::format("cannot read {}: {}", path_.string(), std::strerror(errno)));
    if (n == 0) {
      throw Error(exit_, fmt::format("{} ends at byte {}, {} more were expected", path_.string(), offset, bytes));
    }
    to += n;
    offset += uint64_t(n);
    bytes -= uint64_t(n);
  }
}

std::string read_text(const fs::path& path, uint64_t limit, Exit exit) {
  FileReader file(path, exit);
  if (file.size() > limit) {
    throw Error(exit, fmt::format("{} has {} bytes, at most {} make sense", path.string(), file.size(), limit));
  }
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), 0, text.size());
  return text;
}

void write_atomic(const fs::path& path, const std::string& text) {
  fs::path temporary = path;
  temporary += ".tmp";
  try {
    FileWriter file(temporary);
    file.write(text.data(), text.size());
    file.finish();
    if (file_calls().rename(temporary.c_str(), path.c_str()) != 0) disk_error("replace", path, errno);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void rename_directory(const fs::path& from, const fs::path& to) {
  if (!fs::exists(fs::symlink_status(to))) {
    if (file_calls().rename(from.c_str(), to.c_str()) != 0) disk_error("rename to", to, errno);
  } else if (file_calls().exchange(from.c_str(), to.c_str()) == 0) {
    std::error_code ignored;
    fs::remove_all(from, ignored);  // now the old one
  } else if (errno == EINVAL || errno == ENOSYS) {
    // A file system that cannot swap: for a moment the old one is whole under another name, where
    // remove_leftovers finds it after a crash.
    const fs::path old = to.parent_path() / ("replaced-" + to.filename().string());
    if (file_calls().rename(to.c_str(), old.c_str()) != 0) disk_error("rename", to, errno);
    if (file_calls().rename(from.c_str(), to.c_str()) != 0) {
      const int error = errno;
      file_calls().rename(old.c_str(), to.c_str());
      disk_error("rename to", to, error);
    }
    std::error_code ignored;
    fs::remove_all(old, ignored);
  } else {
    disk_error("rename to", to, errno);
  }
  sync_directory(to.has_parent_path() ? to.parent_path() : fs::path("."));
}

void sync_directory(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) disk_error("open directory", path, errno);
  sync_and_close(fd, path);
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) disk_error("create directory", path, error.value());
}

uint64_t free_bytes(const fs::path& path) {
  for (fs::path p = fs::absolute(path); !p.empty(); p = p.parent_path()) {
    struct statvfs info {};
    if (::statvfs(p.c_str(), &info) == 0) return uint64_t(info.f_bavail) * uint64_t(info.f_frsize);
    if (p == p.parent_path()) break;
  }
  return 0;
}

}  // namespace eng
