// SPDX-License-Identifier: Apache-2.0
#include "arena.hpp"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <numeric>

namespace nvme {

Arena::Arena(const Settings& settings, uint64_t size)
    : bytes(size),
      stripes{settings.block, settings.paths.size()},
      files(make_files(settings, stripes, (size + page - 1) / page * page)),
      sums((size + page - 1) / page),
      edge_block(page, "a block") {
  for (const File& file : files) alignment = std::max(alignment, file.alignment());
}

uint64_t Arena::host_bytes(uint64_t size) {
  return Pages::mapped(Sums::bytes((size + page - 1) / page)) + Pages::mapped(page);
}

namespace {

uint64_t buffer_bytes(const Settings& settings) {
  return settings.direct ? settings.depth * settings.block : 0;
}

}  // namespace

Lane::Lane(const Settings& settings)
    : unit(settings.block),
      queue(settings.depth),
      buffers(buffer_bytes(settings), "buffers (offload.nvme_depth x offload.nvme_block)"),
      pieces(settings.depth),
      idle(settings.depth) {}

uint64_t Lane::host_bytes(const Settings& settings) {
  return Queue::bytes(settings.depth) + Pages::mapped(buffer_bytes(settings)) +
         settings.depth * (sizeof(Piece) + sizeof(uint32_t));
}

namespace {

constexpr uint32_t most_tries = 1000;

class Transfer {
 public:
  Transfer(Arena& arena, Lane& lane, bool write, uint64_t offset, char* user, uint64_t bytes)
      : arena_(arena), lane_(lane), write_(write), offset_(offset), end_(offset + bytes), user_(user) {
    first_ = (offset_ + page - 1) / page * page, last_ = end_ / page * page;
    next_ = first_;
    std::iota(lane_.idle.begin(), lane_.idle.end(), 0u);
    idle_ = static_cast<uint32_t>(lane_.idle.size());
  }

  void run() {
    attempt([&] { fill(); });
    // Meanwhile the disks are at work.
    if (first_ > last_) {
      attempt([&] { edge(offset_, end_); });
    } else {
      if (offset_ < first_) attempt([&] { edge(offset_, first_); });
      if (last_ < end_) attempt([&] { edge(last_, end_); });
    }
    while (in_flight_ > 0) {
      const Queue::Done done = lane_.queue.wait();
      --in_flight_;
      attempt([&] { take(done); });
      attempt([&] { fill(); });
    }
    lane_.queue.settle();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // After a failure nothing new begins.
  template <class Body>
  void attempt(Body&& body) {
    if (failure_) return;
    try {
      body();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  char* memory_at(uint64_t offset) const { return user_ + (offset - offset_); }

  Request request(const Piece& piece) const {
    const Stripes::Place place = arena_.stripes.at(piece.offset);
    return {arena_.files[place.file].fd(), piece.write, piece.memory + piece.done, place.offset + piece.done,
            piece.bytes - piece.done};
  }

  void fill() {
    while (next_ < last_ && in_flight_ < lane_.queue.depth()) {
      const uint32_t tag = lane_.idle[--idle_];
      Piece& piece = lane_.pieces[tag];
      piece = Piece{.write = write_, .offset = next_, .user = memory_at(next_), .memory = memory_at(next_)};
      piece.bytes = std::min(lane_.unit - next_ % lane_.unit, last_ - next_);
      next_ += piece.bytes;
      if (reinterpret_cast<uintptr_t>(piece.user) % arena_.alignment != 0)
        piece.memory = lane_.buffers.data() + tag * lane_.unit;
      if (write_) {
        if (piece.memory != piece.user) std::memcpy(piece.memory, piece.user, piece.bytes);
        arena_.sums.set(piece.offset / page, piece.memory, piece.bytes / page);
      }
      send(tag);
    }
  }

  void send(uint32_t tag) {
    const Piece& piece = lane_.pieces[tag];
    if (const int why = lane_.queue.submit(tag, request(piece))) fail(piece, why);
    ++in_flight_;
  }

  void take(const Queue::Done& done) {
    Piece& piece = lane_.pieces[done.tag];
    if (!advance(piece, done.result)) return send(done.tag);
    if (!write_) {
      verify(piece);
      if (piece.memory != piece.user) std::memcpy(piece.user, piece.memory, piece.bytes);
    }
    lane_.idle[idle_++] = done.tag;
  }

  // True if all of the piece is done; if not, the rest has to be requested.
  bool advance(Piece& piece, int64_t result) const {
    if (result < 0 && result != -EINTR && result != -EAGAIN) fail(piece, static_cast<int>(-result));
    // A transfer that ends within a block begins again at that block: the disk takes no less.
    const uint64_t got = result < 0 ? 0 : static_cast<uint64_t>(result) / page * page;
    piece.done += got;
    if (piece.done == piece.bytes) return true;
    if (got > 0) {
      piece.tries = 0;
      return false;
    }
    if (result >= 0 && !piece.write) check_length(piece);
    if (++piece.tries == most_tries) fail(piece, result < 0 ? static_cast<int>(-result) : EIO);
    sched_yield();
    return false;
  }

  // A part of one block. A write keeps the rest of the block.
  void edge(uint64_t from, uint64_t to) {
    const std::lock_guard lock(arena_.edge);
    const uint64_t block = from / page;
    char* const copy = arena_.edge_block.data();
    Piece piece{.write = false, .offset = block * page, .user = copy, .memory = copy, .bytes = page};
    if (write_ && !arena_.sums.written(block)) {
      std::memset(copy, 0, page);
    } else {
      move_now(piece);
      verify(piece);
    }
    if (!write_) {
      std::memcpy(memory_at(from), copy + from % page, to - from);
      return;
    }
    std::memcpy(copy + from % page, memory_at(from), to - from);
    piece.write = true, piece.done = 0;
    move_now(piece);
    arena_.sums.set(block, copy, 1);
  }

  void move_now(Piece& piece) const {
    while (!advance(piece, perform(request(piece)))) {
    }
  }

  void verify(const Piece& piece) const {
    const uint64_t block = piece.offset / page, count = piece.bytes / page;
    const uint64_t wrong = arena_.sums.first_wrong(block, piece.memory, count);
    if (wrong == count) return;
    throw Error{ENG_DATA_LOSS,
                where(piece, wrong * page) +
                    (arena_.sums.written(block + wrong) ? ": the checksum of 4096 bytes differs"
                                                        : ": 4096 bytes were never written, but are not zero") +
                    ": the disk or another process has changed them"};
  }

  std::string where(const Piece& piece, uint64_t more) const {
    const Stripes::Place place = arena_.stripes.at(piece.offset);
    return arena_.files[place.file].name() + ", byte " + std::to_string(place.offset + more);
  }

  [[noreturn]] void fail(const Piece& piece, int why) const {
    throw Error{piece.write ? ENG_UNAVAILABLE : ENG_DATA_LOSS,
                where(piece, piece.done) + ": cannot " + (piece.write ? "write " : "read ") +
                    std::to_string(piece.bytes - piece.done) + " bytes: " + std::strerror(why)};
  }

  void check_length(const Piece& piece) const {
    const Stripes::Place place = arena_.stripes.at(piece.offset);
    const File& file = arena_.files[place.file];
    struct stat about {};
    if (fstat(file.fd(), &about) != 0) return;
    const auto length = static_cast<uint64_t>(about.st_size);
    if (length >= place.offset + piece.done + page) return;
    throw Error{ENG_DATA_LOSS, file.name() + ": ends at byte " + std::to_string(length) + " of " +
                                   std::to_string(file.bytes()) + ": another process has cut it"};
  }

  Arena& arena_;
  Lane& lane_;
  const bool write_;
  const uint64_t offset_, end_;
  char* const user_;
  uint64_t first_ = 0, last_ = 0, next_ = 0;  // whole blocks: the first, behind the last, the next to be sent
  uint32_t idle_ = 0, in_flight_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

void transfer(Arena& arena, Lane& lane, bool write, uint64_t offset, char* user, uint64_t bytes) {
  if (offset > arena.bytes || bytes > arena.bytes - offset)
    throw Error{ENG_OUT_OF_RANGE, std::to_string(bytes) + " bytes from byte " + std::to_string(offset) +
                                      " on are not all" + " inside an arena of " + std::to_string(arena.bytes) +
                                      " bytes"};
  if (bytes == 0) return;
  const std::lock_guard lock(lane.busy);
  Transfer(arena, lane, write, offset, user, bytes).run();
}

}  // namespace nvme
