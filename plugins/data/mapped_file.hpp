// SPDX-License-Identifier: Apache-2.0
// A file in memory without a copy, that may shrink or change under its reader without harm.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "input.hpp"

namespace text_data {

// A file mapped read-only. Pages behind the end of a file that was cut short would kill the process if they were
// touched: `copy` has the kernel copy them instead, which then says so. A file that was replaced or removed under its
// name is no change, since the mapping keeps the old one.
class MappedFile {
 public:
  explicit MappedFile(const InputFile& file);  // of one byte or more; throws Failure
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Copies [offset, offset + size). False if the file is not what it was when it was mapped; then what was written is
  // of no use. Allocates nothing.
  bool copy(uint64_t offset, uint64_t size, void* out) const;

 private:
  bool changed() const;
  std::string path_;
  const unsigned char* data_ = nullptr;
  uint64_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  struct timespec modified_ {};
};

}  // namespace text_data
