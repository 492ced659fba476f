// SPDX-License-Identifier: Apache-2.0
// Requests to files, many in flight through io_uring, or one at a time where the system does not permit that.
#pragma once

#include <liburing.h>

#include "settings.hpp"

namespace nvme {

struct Request {
  int fd;
  bool write;
  char* memory;
  uint64_t offset;
  uint64_t bytes;
};
// Now, by this thread. Bytes, or -errno.
int64_t perform(const Request& request) noexcept;

class Queue {
 public:
  explicit Queue(uint32_t depth);
  ~Queue() { close(); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  // Host memory of one, the kernel's included.
  static uint64_t bytes(uint32_t depth);

  bool in_turn() const { return !open_; }                // one request after the other: there is no io_uring
  uint32_t depth() const { return open_ ? depth_ : 1; }  // requests that may be in flight
  // 0, or an errno: then the request is not in flight, and no other may be submitted until settle().
  int submit(uint32_t tag, const Request& request) noexcept;
  struct Done {
    uint32_t tag;
    int64_t result;  // bytes, or -errno
  };
  // The next that is done. One must be in flight.
  Done wait() noexcept;
  // Call it when none is in flight: gives up a ring that has failed.
  void settle() noexcept;

 private:
  void close() noexcept;
  uint32_t depth_;
  bool open_ = false, failed_ = false;
  io_uring ring_{};
  Done done_{};
};

}  // namespace nvme
