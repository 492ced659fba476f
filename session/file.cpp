// SPDX-License-Identifier: Apache-2.0
#include "session/file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace eng {
namespace fs = std::filesystem;
namespace {

// The most bytes of one read or write: below every kernel limit.
constexpr uint64_t kChunk = 16u << 20;

// Free bytes of the file system that holds `path` or its nearest existing parent; 0 if unknown.
uint64_t free_bytes(fs::path path) {
  std::error_code error;
  for (path = fs::absolute(path, error); !fs::exists(path, error) && path != path.parent_path();)
    path = path.parent_path();
  const auto space = fs::space(path, error);
  return error ? 0 : space.available;
}

}  // namespace

FileCalls& file_calls() {
  static FileCalls calls{::write, ::fsync, ::rename};
  return calls;
}

void disk_error(const char* what, const fs::path& path, int error, uint64_t needs) {
  const bool space = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(
      Exit::disk,
      fmt::format("cannot {} {}: {}{}", what, path.string(), std::strerror(error),
                  space || needs ? fmt::format(" ({}{} bytes free)", needs ? fmt::format("needs {} more, ", needs) : "",
                                               free_bytes(path))
                                 : ""),
      space ? "free space on this file system, lower [checkpoint] keep, or move the run with --out" : "");
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Fd open_regular(const fs::path& path, int flags) {
  Fd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) disk_error("open", path, errno);
  if (!S_ISREG(info.st_mode)) throw Error(Exit::disk, path.string() + " is not a regular file", "remove it");
  return fd;
}

FileWriter::FileWriter(fs::path path, uint64_t expected)
    : path_(std::move(path)),
      expected_(expected),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail("create", errno);
  // Only ENOSPC is an error here: a file system that cannot reserve returns others.
  if (expected && ::fallocate(fd_, 0, 0, off_t(expected)) != 0 && errno == ENOSPC) fail("write", ENOSPC);
}

void FileWriter::fail(const char* what, int error) const {
  disk_error(what, path_, error, expected_ > written_ ? expected_ - written_ : 0);
}

void FileWriter::write(const void* data, uint64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes) {
    const ssize_t n = file_calls().write(fd_, from, size_t(std::min(bytes, kChunk)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write", n < 0 ? errno : EIO);
    from += n;
    bytes -= uint64_t(n);
    written_ += uint64_t(n);
  }
}

void FileWriter::finish() {
  if (file_calls().sync(fd_) != 0) fail("flush", errno);
}

FileReader::FileReader(fs::path path, Exit exit) : path_(std::move(path)), exit_(exit), fd_(open()) {
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) throw Error(exit_, path_.string() + " is not a regular file");
  size_ = uint64_t(info.st_size);
}

Fd FileReader::open() const {
  Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd < 0) throw Error(exit_, fmt::format("cannot open {}: {}", path_.string(), std::strerror(errno)));
  return fd;
}

void FileReader::read(void* out, uint64_t offset, uint64_t bytes) const {
  char* to = static_cast<char*>(out);
  const Fd reopened = fd_ < 0 ? open() : Fd();
  while (bytes) {
    const ssize_t n = ::pread(fd_ < 0 ? reopened : fd_, to, size_t(std::min(bytes, kChunk)), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Error(exit_, fmt::format("cannot read {}: {} at byte {}", path_.string(),
                                     n < 0 ? std::strerror(errno) : "the file ends", offset));
    to += n;
    offset += uint64_t(n);
    bytes -= uint64_t(n);
  }
}

std::string read_text(const fs::path& path, uint64_t limit, Exit exit) {
  FileReader file(path, exit);
  if (file.size() > limit)
    throw Error(exit, fmt::format("{} has {} bytes; the limit is {}", path.string(), file.size(), limit));
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), 0, text.size());
  return text;
}

void write_text(const fs::path& path, std::string_view text) {
  FileWriter file(path, text.size());
  file.write(text.data(), text.size());
  file.finish();
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (file_calls().rename(from.c_str(), to.c_str()) != 0) disk_error("rename to", to, errno);
  sync_directory(to.has_parent_path() ? to.parent_path() : fs::path("."));
}

void write_atomic(const fs::path& path, std::string_view text) {
  const fs::path temporary = path.string() + ".tmp";
  try {
    write_text(temporary, text);
    rename_durably(temporary, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

void sync_directory(const fs::path& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0 || file_calls().sync(fd) != 0) disk_error("flush", path, errno);
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) disk_error("create directory", path, error.value());
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find_first_of(std::string("/\0", 2)) == std::string::npos;
}

}  // namespace eng
