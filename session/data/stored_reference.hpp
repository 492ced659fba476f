// SPDX-License-Identifier: Apache-2.0
// The log-probabilities that a reference model gives to answers, in a file: [reference] store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace eng {

// The field of the batch, (B, T) f32: a loss that reads it takes nothing but the sum of a sequence's values at its
// labels, added in f64 from the first to the last, which is the log-probability of the sequence's labels.
constexpr const char* reference_sums = "reference_sums";

class StoredReference {
 public:
  // The source of the values.
  struct Facts {
    int64_t length = 0;   // T
    std::string data;     // content hash; 39 bytes at most, as the next two
    std::string weights;  // hash of the reference's weights
    std::string model;    // hash of the options of [model] and [precision]
  };
  struct Entry {
    uint64_t key;  // of the sequence
    double sum;    // of the log-probabilities of its labels
  };
  // The key of a sequence of T tokens and T labels. Allocates nothing.
  static uint64_t key(int64_t length, const int32_t* tokens, const int32_t* labels);

  // Reads the file and checks it. Throws Error(Exit::data).
  explicit StoredReference(const std::filesystem::path& path);
  // The head of the file alone.
  static Facts facts_of(const std::filesystem::path& path);

  const Facts& facts() const { return facts_; }
  uint64_t sequences() const { return entries_.size(); }
  uint64_t kept_bytes() const { return entries_.capacity() * sizeof(Entry); }
  // Writes the T values of the field for a sample: 0, but at the first labels, where they add up to the stored number
  // without rounding. False: the sequence is not in the file. Allocates nothing.
  bool fill(const int32_t* tokens, const int32_t* labels, float* out) const;

  // Replaces the file. Sequences may come in any order, and more than once. Throws Error(Exit::data) if one has two
  // different sums, and Error(Exit::disk).
  static void write(const std::filesystem::path& path, const Facts& facts, std::vector<Entry> entries);

 private:
  Facts facts_;
  std::vector<Entry> entries_;  // by key
};

}  // namespace eng
