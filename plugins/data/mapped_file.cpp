// SPDX-License-Identifier: Apache-2.0
#include "mapped_file.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace text_data {

MappedFile::MappedFile(const InputFile& file)
    : path_(file.path()),
      size_(file.size()),
      device_(file.status().st_dev),
      inode_(file.status().st_ino),
      modified_(file.status().st_mtim) {
  void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) fail_errno(path_, "map", errno);
  madvise(address, size_, MADV_RANDOM);  // samples are shuffled: reading ahead would be wasted
  data_ = static_cast<const unsigned char*>(address);
}

MappedFile::~MappedFile() {
  munmap(const_cast<unsigned char*>(data_), size_);
}

bool MappedFile::changed() const {
  struct stat now {};
  if (stat(path_.c_str(), &now) != 0) return false;
  if (now.st_dev != device_ || now.st_ino != inode_) return false;
  return static_cast<uint64_t>(now.st_size) != size_ || !same_time(now.st_mtim, modified_);
}

bool MappedFile::copy(uint64_t offset, uint64_t size, void* out) const {
  auto* to = static_cast<unsigned char*>(out);
  // The process copies from itself by a system call: for a missing page the call fails, and no signal is sent.
  for (uint64_t done = 0; done < size;) {
    iovec into{to + done, size - done};
    iovec from{const_cast<unsigned char*>(data_) + offset + done, size - done};
    const ssize_t got = process_vm_readv(getpid(), &into, 1, &from, 1, 0);
    if (got > 0) {
      done += static_cast<uint64_t>(got);
    } else if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
      // Where a sandbox forbids this call, a file that is cut short at this very moment is not noticed.
      if (changed()) return false;
      std::memcpy(to + done, data_ + offset + done, size - done);
      done = size;
    } else {
      return false;
    }
  }
  return !changed();  // checked last, so that a change during the copy is noticed
}

}  // namespace text_data
