// SPDX-License-Identifier: Apache-2.0
// A data plugin in use: batches of samples.
#pragma once

#include <mutex>

#include "engine/data.h"
#include "session/data/fields.hpp"

namespace eng {

// One batch: (rows, T) values of each field that the model reads; `valid` labels count towards the loss.
struct Batch {
  std::vector<int32_t> tokens, labels;
  std::vector<std::vector<char>> others;  // of the model's further fields, four bytes each
  int64_t valid = 0, padding = 0;         // padding: positions without a token
  void clear() {
    tokens.clear(), labels.clear(), valid = padding = 0;
    for (auto& values : others) values.clear();
  }
};

class Data {
 public:
  // `fields`: those that are read, in the order of the batch. What the source does not have gets its neutral values.
  Data(Registry& registry, const Config& config, int64_t vocabulary, std::vector<Field> fields = Model().fields);
  // No source: batches come from elsewhere. It has no samples.
  Data(int64_t sequence_length, int64_t vocabulary, std::vector<Field> fields = Model().fields);
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  const eng_data_info& info() const { return info_; }
  bool packed() const { return check_.packed(); }  // several documents lie in a sample
  double padding() const;                          // its share of the positions of an epoch
  // Appends samples [position, position + rows) of a split; rows after the last held-out sample do not count.
  // Throws Error(Exit::data).
  void read(int32_t split, uint64_t position, int64_t rows, Batch& batch) const;
  // Checks the rows of a batch from elsewhere as those of the source, and counts what is valid and what is padding.
  // Throws Error(Exit::data).
  void check(Batch& batch) const;
  int64_t length() const { return length_; }
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::string name_;
  int64_t length_;
  std::vector<Field> fields_;
  FieldCheck check_;
  eng_data table_{};
  void* self_ = nullptr;
  std::shared_ptr<void> object_;                       // what destroys it
  mutable std::mutex reading_;                         // only one caller at a time: the loader or an evaluation
  std::vector<std::size_t> own_;                       // the fields that the source has, as indices of fields_
  mutable std::vector<void*> values_;                  // of the sample that is read
  mutable std::vector<void*> wanted_;                  // of those, what the source writes
  std::vector<std::pair<std::size_t, Neutral>> rest_;  // what it does not have
  std::size_t segments_ = 0;                           // its segments, as an index of fields_; 0: it has none
  eng_data_info info_{};
};

// Size of the configured model's vocabulary.
int64_t model_vocabulary(const Config& config, Registry& registry);
// Notes for users: keys without effect with this data, ids that a model with this vocabulary never sees.
std::vector<std::string> notes_of(const Config& config, const Data& data, int64_t vocabulary);

// The samples of a step that belong to this rank. A micro-batch of the whole step has `world` x `rows` samples; rank r
// takes the r-th group of `rows` samples.
struct Cut {
  int64_t rows = 1, accumulate = 1;
  uint32_t rank = 0, world = 1;
  uint64_t step() const { return static_cast<uint64_t>(rows * accumulate) * world; }  // samples of all ranks
};

}  // namespace eng
