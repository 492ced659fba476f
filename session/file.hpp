// SPDX-License-Identifier: Apache-2.0
// Files: every failure is an Error that names the file, and what is reported as written is on the disk.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"

namespace eng {

// The system calls that change the disk, in one table, so that a test can make the n-th call fail or kill the process
// there. Only tests replace it.
struct FileCalls {
  ssize_t (*write)(int fd, const void* data, size_t bytes);
  int (*sync)(int fd);
  int (*rename)(const char* from, const char* to);
};
FileCalls& file_calls();

// A file descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  operator int() const { return fd_; }

 private:
  int fd_;
};

// Opens a file for `open(2)` with these flags, if it is a regular one. Neither follows a link nor waits for the other
// end of a FIFO. Throws Error(Exit::disk).
Fd open_regular(const std::filesystem::path& path, int flags);

// Writes one new file from front to back.
class FileWriter {
 public:
  // Creates or truncates `path`, which may not be a link or a FIFO. Reserves `expected` bytes if the file system can,
  // so that a full disk is detected before the first write; 0: unknown. All members throw Error(Exit::disk).
  explicit FileWriter(std::filesystem::path path, uint64_t expected = 0);
  void write(const void* data, uint64_t bytes);
  void finish();  // flush to the disk

 private:
  [[noreturn]] void fail(const char* what, int error) const;
  std::filesystem::path path_;
  uint64_t expected_, written_ = 0;
  Fd fd_;
};

// Reads ranges of a file. All members throw Error with the exit code given to the constructor.
class FileReader {
 public:
  FileReader(std::filesystem::path path, Exit exit);
  uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  void read(void* out, uint64_t offset, uint64_t bytes) const;
  void release() { fd_ = Fd(); }  // from now on open only during a read: thousands cannot all be open at once

 private:
  Fd open() const;
  std::filesystem::path path_;
  Exit exit_;
  Fd fd_;
  uint64_t size_ = 0;
};

// The whole text of a file of at most `limit` bytes. Throws Error(exit).
std::string read_text(const std::filesystem::path& path, uint64_t limit, Exit exit);
// Writes a new file; it is on the disk when this returns. Throws Error(Exit::disk).
void write_text(const std::filesystem::path& path, std::string_view text);
// Renames, and flushes the directory of `to` to the disk. Throws Error(Exit::disk).
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);
// Replaces `path` by `text` so that a reader sees the old or the new content, never a part of it, also after a crash.
// Throws Error(Exit::disk).
void write_atomic(const std::filesystem::path& path, std::string_view text);
// Flushes the entries of a directory to the disk. Throws Error(Exit::disk).
void sync_directory(const std::filesystem::path& path);
// Creates the directory and its parents. Throws Error(Exit::disk).
void make_directories(const std::filesystem::path& path);
// Throws Error(Exit::disk) with what could not be done, the bytes still needed (0: unknown) and the free bytes.
[[noreturn]] void disk_error(const char* what, const std::filesystem::path& path, int error, uint64_t needs = 0);

// True if `name`, from outside, is a plain file name: no '/', no leading '.', no NUL.
bool is_plain_name(const std::string& name);

}  // namespace eng
