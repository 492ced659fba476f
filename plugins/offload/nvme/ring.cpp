// SPDX-License-Identifier: Apache-2.0
#include "ring.hpp"

#include <sched.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "pages.hpp"

namespace nvme {

int64_t perform(const Request& r) noexcept {
  const auto offset = static_cast<off_t>(r.offset);
  const ssize_t n = r.write ? pwrite(r.fd, r.memory, r.bytes, offset) : pread(r.fd, r.memory, r.bytes, offset);
  return n < 0 ? -errno : n;
}

namespace {

// io_uring is older than these two requests.
bool reads_and_writes(io_uring& ring) {
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring);
  const bool both = probe && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                    io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  std::free(probe);
  return both;
}

}  // namespace

Queue::Queue(uint32_t depth) : depth_(depth) {
  const int why = -io_uring_queue_init(depth, &ring_, 0);
  if (why == 0) {
    open_ = true;
    if (!reads_and_writes(ring_)) close();
  } else if (why != ENOSYS && why != EPERM && why != ENOMEM && why != EINVAL) {
    throw Error{ENG_UNAVAILABLE, std::string("no io_uring: ") + std::strerror(why)};
  }
}

uint64_t Queue::bytes(uint32_t depth) {
  constexpr uint64_t heads = 320;  // of both rings
  const uint64_t requests = std::bit_ceil(depth), results = 2 * requests;
  return Pages::mapped(requests * sizeof(io_uring_sqe)) +
         Pages::mapped(heads + results * sizeof(io_uring_cqe) + requests * sizeof(uint32_t));
}

int Queue::submit(uint32_t tag, const Request& r) noexcept {
  if (!open_) {
    done_ = {tag, perform(r)};
    return 0;
  }
  // Each is submitted at once, so there is room; but not in a ring that has failed.
  io_uring_sqe* const entry = failed_ ? nullptr : io_uring_get_sqe(&ring_);
  if (!entry) return EIO;
  if (r.write)
    io_uring_prep_write(entry, r.fd, r.memory, static_cast<uint32_t>(r.bytes), r.offset);
  else
    io_uring_prep_read(entry, r.fd, r.memory, static_cast<uint32_t>(r.bytes), r.offset);
  io_uring_sqe_set_data64(entry, tag);
  for (;;) {
    const int n = io_uring_submit(&ring_);
    if (n == 1) return 0;
    if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EBUSY) {
      failed_ = true;
      return -n;
    }
    sched_yield();
  }
}

Queue::Done Queue::wait() noexcept {
  if (!open_) return done_;
  io_uring_cqe* entry = nullptr;
  // The memory of what is in flight belongs to the disk until it is done: there is no way out but to wait.
  while (const int why = io_uring_wait_cqe(&ring_, &entry))
    if (why != -EINTR && why != -EAGAIN) usleep(1000);
  const Done done{static_cast<uint32_t>(io_uring_cqe_get_data64(entry)), entry->res};
  io_uring_cqe_seen(&ring_, entry);
  return done;
}

void Queue::settle() noexcept {
  if (failed_) close();
}

void Queue::close() noexcept {
  if (open_) io_uring_queue_exit(&ring_);
  open_ = failed_ = false;
}

}  // namespace nvme
