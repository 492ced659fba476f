// SPDX-License-Identifier: Apache-2.0
// A checksum of every block of an arena. It lies in memory: what a disk loses or mixes up is found when it is read.
#pragma once

#include "pages.hpp"

namespace nvme {

class Sums {
 public:
  explicit Sums(uint64_t blocks) : memory_(bytes(blocks), "checksums") {}
  static uint64_t bytes(uint64_t blocks) { return blocks * sizeof(uint32_t); }

  bool written(uint64_t block) const { return at(block) != 0; }
  // `count` blocks from `block` on are what lies at `data`.
  void set(uint64_t block, const char* data, uint64_t count);
  // The first of `count` blocks that is not what was written, or not zero if it never was; `count` if there is none.
  uint64_t first_wrong(uint64_t block, const char* data, uint64_t count) const;

 private:
  // 0: the block was never written.
  uint32_t& at(uint64_t block) const { return reinterpret_cast<uint32_t*>(memory_.data())[block]; }
  Pages memory_;
};

}  // namespace nvme
