// SPDX-License-Identifier: Apache-2.0
// Packing: the documents that share a sample. A document that is longer than a sample is cut into parts, each a
// document of its own. Nothing depends on the seed, so the samples are the same in every epoch and only their order
// changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace text_data {

// A document of a sample: tokens [start, start + length) of the stream. `more`: the document goes on after it, so its
// last token has a label, too.
class Document {
 public:
  static constexpr uint64_t most_start = (uint64_t{1} << 40) - 1, most_length = (uint64_t{1} << 23) - 1;
  Document(uint64_t start, uint64_t length, bool more) : bits_(start << 24 | length << 1 | uint64_t{more}) {}
  uint64_t start() const { return bits_ >> 24; }
  uint64_t length() const { return bits_ >> 1 & most_length; }
  bool more() const { return (bits_ & 1) != 0; }

 private:
  uint64_t bits_;
};

class Packing {
 public:
  // Documents that are fitted into samples together, in the order of the data. More would save little padding: at
  // this size, documents of random lengths leave well below 1 %.
  static constexpr std::size_t window = 65536;

  Packing() = default;
  // `alone`: each document, or part of one, has a sample of its own.
  explicit Packing(uint64_t length, bool alone = false) : length_(length), alone_(alone) {}
  // A document, tokens [begin, end) of the stream. One of a single token teaches nothing and is left out.
  void add(uint64_t begin, uint64_t end);
  void finish();

  uint64_t samples() const { return first_.empty() ? 0 : first_.size() - 1; }
  std::span<const Document> sample(uint64_t i) const {
    return {documents_.data() + first_[i], first_[i + 1] - first_[i]};
  }
  uint64_t documents() const { return documents_.size(); }  // with the parts of long ones
  uint64_t padding() const { return samples() * length_ - tokens_; }
  uint64_t kept_bytes() const {
    return documents_.capacity() * sizeof(Document) + first_.capacity() * sizeof(uint64_t);
  }

 private:
  void fit();
  uint64_t length_ = 1, tokens_ = 0;
  bool alone_ = false;
  std::vector<Document> waiting_;    // of this window
  std::vector<Document> documents_;  // sample by sample
  std::vector<uint64_t> first_;      // of each sample, in documents_; one more at the end
};

}  // namespace text_data
