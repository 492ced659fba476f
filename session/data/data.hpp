// SPDX-License-Identifier: Apache-2.0
// A data plugin in use: batches of samples.
#pragma once

#include <mutex>
#include <span>

#include "session/data/mixture.hpp"
#include "session/data/source.hpp"
#include "session/data/stored_reference.hpp"

namespace eng {

// One batch: (rows, T) values of each field that the model reads; `valid` labels count towards the loss.
struct Batch {
  std::vector<int32_t> tokens, labels;
  std::vector<std::vector<char>> others;  // of the model's further fields, four bytes each
  int64_t valid = 0, padding = 0;         // padding: positions without a token
  // By which the sum of the losses of all labels is divided: the sum of their weights, if a source has a weighted mean;
  // otherwise the number of those that count.
  std::optional<double> weight = {};
  double divisor() const { return weight.value_or(static_cast<double>(valid)); }
  // One for each source of a mixture.
  struct Part {
    int64_t samples = 0, valid = 0;
    double divisor = 0;
  };
  std::vector<Part> parts;
  // With the caller's loss: its value over all micro-batches of this rank, and its gradient by the logits of each,
  // (rows, T, V) in memory of the caller.
  double own_loss = 0;
  std::vector<std::span<const float>> logit_gradients = {};
  void clear() {
    tokens.clear(), labels.clear(), valid = padding = 0, weight.reset();
    parts.clear();
    for (auto& values : others) values.clear();
  }
};

// A number that other fields of a batch change.
int64_t hash_of(const Batch& batch);

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
  bool weighted() const { return weights_ > 0; }   // the loss is a mean over weights; see Batch::divisor
  double padding() const;                          // its share of the positions of an epoch
  // Appends samples [position, position + rows) of a split. Of the held-out samples, rows from `end` on do not count.
  // Throws Error(Exit::data).
  void read(int32_t split, uint64_t position, int64_t rows, Batch& batch, uint64_t end) const;
  void read(int32_t split, uint64_t position, int64_t rows, Batch& batch) const {
    read(split, position, rows, batch, info_.validation_samples);
  }
  // The names of the sources of a mixture; none if it is none.
  const std::vector<std::string>& names() const { return names_; }
  // The source of a training sample of a mixture. Samples come in groups of so many, each of one source.
  std::size_t source_of(uint64_t position) const { return mixture_.at(position).source; }
  int64_t group() const { return sources_.empty() ? 1 : int64_t{sources_[0]->of().group}; }
  // The held-out samples [first, first + samples) of each source of a mixture, or all.
  struct HeldOut {
    uint64_t first, samples;
  };
  const std::vector<HeldOut>& held_out() const { return held_out_; }
  // Lines for users that say how a mixture is made of its sources; none if it is none.
  std::vector<std::string> mixture_lines() const;
  // Checks the rows of a batch from elsewhere as those of the source, and counts what is valid and what is padding.
  // `other`: the length of its rows, if that is another one. Throws Error(Exit::data).
  void check(Batch& batch, int64_t other = 0) const;
  int64_t length() const { return length_; }
  const std::vector<Field>& fields() const { return fields_; }

 private:
  void add_up(const Config& config);
  void open_stored(const Config& config);
  // The source of a sample, and its position there.
  Mixture::Place place(int32_t split, uint64_t position) const;
  int64_t length_;
  std::vector<Field> fields_;
  FieldCheck check_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::string> names_;
  std::vector<HeldOut> held_out_;
  std::optional<StoredReference> stored_;
  std::size_t sums_ = 0;  // the field that it fills
  Mixture mixture_;
  std::size_t weights_ = 0;            // the field of weights, if a source has a weighted mean
  mutable std::mutex reading_;         // only one caller at a time: the loader or an evaluation
  mutable std::vector<void*> values_;  // of the sample that is read
  eng_data_info info_{};               // of all sources
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
