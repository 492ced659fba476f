// SPDX-License-Identifier: Apache-2.0
// Zeroed memory of the host, resident from the start.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "settings.hpp"

namespace nvme {

class Pages {
 public:
  Pages() = default;
  // `what` is for the error.
  Pages(uint64_t bytes, const char* what) : bytes_(mapped(bytes)) {
    if (bytes_ == 0) return;
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED && madvise(memory, bytes_, MADV_POPULATE_WRITE) != 0) {
      if (errno == EINVAL) {  // an older kernel gives a page when it is written
        std::memset(memory, 0, bytes_);
      } else {
        munmap(memory, bytes_);
        memory = MAP_FAILED;
      }
    }
    if (memory == MAP_FAILED)
      throw Error{ENG_NO_MEMORY, "no " + std::to_string(bytes_) + " bytes of host memory for " + what};
    data_ = static_cast<char*>(memory);
  }
  ~Pages() {
    if (data_) munmap(data_, bytes_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  char* data() const { return data_; }
  // The bytes that it takes of the host.
  static uint64_t mapped(uint64_t bytes) {
    const auto unit = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return (bytes + unit - 1) / unit * unit;
  }

 private:
  uint64_t bytes_ = 0;
  char* data_ = nullptr;
};

}  // namespace nvme
