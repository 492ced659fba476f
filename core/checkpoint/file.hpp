// SPDX-License-Identifier: Apache-2.0
// Files whose every failure is an Error that names the file, and that are on the disk when they say so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/error.hpp"

namespace eng {

// The system calls that change the disk, in one table, so that a test can make the n-th of them fail or be the
// last. Nothing but tests replaces it.
struct FileCalls {
  ssize_t (*write)(int fd, const void* data, size_t bytes);
  int (*sync)(int fd);
  int (*rename)(const char* from, const char* to);
  int (*exchange)(const char* a, const char* b);  // swaps two names in one go
};
FileCalls& file_calls();

// Writes one new file from front to back.
class FileWriter {
 public:
  // Creates or truncates `path`. `expected` bytes are reserved where the file system can, so that a full disk is
  // known before the first write; 0: unknown.
  explicit FileWriter(std::filesystem::path path, uint64_t expected = 0);
  ~FileWriter();  // closes; what was not finished is the caller's to remove
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  // Throws Error(Exit::disk) naming the file, what it still needs and what is free.
  void write(const void* data, uint64_t bytes);
  void finish();  // flush to the disk and close
  uint64_t written() const { return written_; }

 private:
  [[noreturn]] void fail(const char* what, int error);
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t expected_ = 0;
  uint64_t written_ = 0;
};

// Reads ranges of a file. Throws Error(exit) given at opening.
class FileReader {
 public:
  explicit FileReader(std::filesystem::path path, Exit exit);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  void read(void* out, uint64_t offset, uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  Exit exit_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// The whole of a file of at most `limit` bytes. Throws Error(exit).
std::string read_text(const std::filesystem::path& path, uint64_t limit, Exit exit);
// Replaces `path` by `text` so that a reader, or a crash, sees the old or the new content, never a part.
// Throws Error(Exit::disk).
void write_atomic(const std::filesystem::path& path, const std::string& text);
// Gives a finished directory its name, also where one of that name exists, which is then removed. Throws
// Error(Exit::disk).
void rename_directory(const std::filesystem::path& from, const std::filesystem::path& to);
// Makes the names in a directory durable. Throws Error(Exit::disk).
void sync_directory(const std::filesystem::path& path);
// Creates the directory and its parents. Throws Error(Exit::disk).
void make_directories(const std::filesystem::path& path);
// Free bytes of the file system that holds `path` or its nearest existing parent; 0 if that cannot be known.
uint64_t free_bytes(const std::filesystem::path& path);

}  // namespace eng
