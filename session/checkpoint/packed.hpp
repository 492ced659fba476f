// SPDX-License-Identifier: Apache-2.0
// Elements of a plan's tensors in memory, between programs. Those of a tensor that lies packed (engine/packed.h) are
// f32: encoded when they are written, decoded when they are read.
#pragma once

#include <vector>

#include "core/execute/executor.hpp"
#include "session/checkpoint/share.hpp"

namespace eng {

// For this rank's part of the plan's tensors. What it does not hold is left as it is. Both borrow plan and executor.
Read reader_of(const Plan& plan, Executor& executor);
Fill fill_of(const Plan& plan, Executor& executor);

// Elements [first, first + n) of a held range, from its beginning.
void read_packed(Executor& executor, int32_t packed, const HeldRange& held, uint64_t first, uint64_t n, float* out);

// Encodes what is written in ascending order. Of a chunk that is not complete yet, the elements are kept.
class PackedWriter {
 public:
  explicit PackedWriter(Executor& executor) : executor_(executor) {}
  // Throws Error(Exit::bug) if elements before `first` of its chunk were not written just before.
  void write(int32_t packed, const HeldRange& held, uint64_t first, uint64_t n, const float* values);

 private:
  Executor& executor_;
  const HeldRange* held_ = nullptr;  // of the chunk that is not complete
  uint64_t next_ = 0;                // the element of it that comes next
  std::vector<float> chunk_ = std::vector<float>(chunk);
};

}  // namespace eng
