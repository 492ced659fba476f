// SPDX-License-Identifier: Apache-2.0
// Scratch files without a name, and how an arena is spread over them.
#pragma once

#include "settings.hpp"

namespace nvme {

// A file that no directory lists: it ends with the process, whatever ends that.
class File {
 public:
  // Throws Error, with the directory and what to change.
  File(const std::string& directory, bool direct);
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();
  // Makes it `bytes` long, all of them zero and on the disk. Throws Error, with the bytes that there are.
  void reserve(uint64_t bytes);

  int fd() const { return fd_; }
  const std::string& name() const { return name_; }  // for errors
  uint64_t bytes() const { return bytes_; }          // that were reserved
  uint32_t alignment() const { return alignment_; }  // of memory that it is read into or written from

 private:
  [[noreturn]] void refuse(uint64_t bytes, int why) const;
  void make_direct();
  void write_zeros(uint64_t bytes) const;
  std::string directory_, name_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  uint32_t alignment_ = 1;
};

// Stripe 0 lies in file 0, stripe 1 in file 1, ...
struct Stripes {
  uint64_t unit;
  uint64_t files;
  struct Place {
    uint64_t file, offset;
  };
  Place at(uint64_t offset) const {
    const uint64_t stripe = offset / unit;
    return {stripe % files, stripe / files * unit + offset % unit};
  }
  // The length of file `k` of an arena of `total` bytes.
  uint64_t length(uint64_t k, uint64_t total) const {
    const uint64_t full = total / unit, turn = full % files;
    return (full / files + (k < turn ? 1 : 0)) * unit + (k == turn ? total % unit : 0);
  }
};

// The most bytes that an arena can have there; 0 if a directory does not exist.
uint64_t capacity(const std::vector<std::string>& directories);

// One file in each directory, for an arena of `bytes`. Throws Error and leaves nothing behind.
std::vector<File> make_files(const Settings& settings, const Stripes& stripes, uint64_t bytes);

}  // namespace nvme
