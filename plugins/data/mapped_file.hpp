// SPDX-License-Identifier: Apache-2.0
// A file in memory without a copy. The file may shrink or change while it is read without harm to the process.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "input.hpp"

namespace text_data {

// A file mapped read-only. If a file is cut short, touching a page after its new end would kill the process. `copy`
// therefore has the kernel copy the bytes, which reports the error instead. A file that was replaced or removed by name
// has not changed, because the mapping keeps the old one.
class MappedFile {
 public:
  explicit MappedFile(const InputFile& file);  // of one byte or more; throws Failure
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Copies [offset, offset + size). Returns false if the file changed since it was mapped; then what was written is
  // useless. Allocates nothing.
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
