// SPDX-License-Identifier: Apache-2.0
// A data plugin in use: batches of samples.
#pragma once

#include <mutex>

#include "core/registry/registry.hpp"
#include "engine/data.h"
#include "session/config/config.hpp"

namespace eng {

// One batch: (rows, T) tokens and labels; `valid` labels count towards the loss.
struct Batch {
  std::vector<int32_t> tokens, labels;
  int64_t valid = 0;
  void clear() { tokens.clear(), labels.clear(), valid = 0; }
};

class Data {
 public:
  Data(Registry& registry, const Config& config, int64_t vocabulary);
  // No source: batches come from elsewhere. It has no samples; its ids and lengths are checked all the same.
  Data(int64_t sequence_length, int64_t vocabulary);
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  const eng_data_info& info() const { return info_; }
  // Appends samples [position, position + rows) of a split; rows after the last held-out sample do not count.
  // Throws Error(Exit::data).
  void read(int32_t split, uint64_t position, int64_t rows, Batch& batch) const;
  // Refuses ids of a sample that the model does not have, `ignored` excepted. Throws Error(Exit::data).
  void check(const int32_t* ids, const char* what, int32_t ignored, uint64_t position) const;
  int64_t length() const { return length_; }

 private:
  std::string name_;
  int64_t length_, vocabulary_ = 0;
  eng_data table_{};
  void* self_ = nullptr;
  std::shared_ptr<void> object_;  // what destroys it
  mutable std::mutex reading_;    // only one caller at a time: the loader or an evaluation
  eng_data_info info_{};
};

// Notes for users: keys without effect with this data, ids that a model with this vocabulary never sees.
std::vector<std::string> notes_of(const Config& config, const Data& data, int64_t vocabulary);

// Which samples of a step belong to this rank. A micro-batch of the whole step has `world` x `rows` samples; rank r
// takes the r-th group of `rows` samples.
struct Cut {
  int64_t rows = 1, accumulate = 1;
  uint32_t rank = 0, world = 1;
  uint64_t step() const { return static_cast<uint64_t>(rows * accumulate) * world; }  // samples of all ranks
};

}  // namespace eng
