// SPDX-License-Identifier: Apache-2.0
// An arena in files, and what reads or writes it.
#pragma once

#include <mutex>

#include "files.hpp"
#include "ring.hpp"
#include "sums.hpp"

namespace nvme {

struct Arena {
  Arena(const Settings& settings, uint64_t size);
  static uint64_t host_bytes(uint64_t size);

  uint64_t bytes;
  Stripes stripes;
  std::vector<File> files;
  uint32_t alignment = 1;  // of memory, for all files
  Sums sums;
  // A block of which only a part is read or written passes through here: one thread at a time.
  std::mutex edge;
  Pages edge_block;
};

// Consecutive blocks of one stripe, on their way.
struct Piece {
  bool write = false;
  uint64_t offset = 0;     // in the arena
  char* user = nullptr;    // the caller's memory
  char* memory = nullptr;  // the same, or a buffer
  uint64_t bytes = 0, done = 0;
  uint32_t tries = 0;  // that brought nothing
};

// The memory of one direction, reads or writes, made before the first step.
struct Lane {
  explicit Lane(const Settings& settings);
  static uint64_t host_bytes(const Settings& settings);

  std::mutex busy;
  uint64_t unit;
  Queue queue;
  Pages buffers;  // for memory of the caller that the disk cannot reach directly: one of `unit` bytes per piece
  std::vector<Piece> pieces;
  std::vector<uint32_t> idle;  // pieces that are not in use
};

// Moves `bytes` of the arena from `offset` on to or from `user`. Throws Error when nothing is in flight any more.
void transfer(Arena& arena, Lane& lane, bool write, uint64_t offset, char* user, uint64_t bytes);

}  // namespace nvme
