// SPDX-License-Identifier: Apache-2.0
// All tokens as one sequence. Large files are not copied.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "input.hpp"

namespace text_data {

class Stream {
 public:
  uint64_t size() const { return size_; }  // tokens
  // Appends tokens of `width` bytes each (1, 2, 4 or 8), little-endian: those of a file from `offset` on, or a copied
  // block.
  void add(std::unique_ptr<InputFile> file, uint64_t offset, uint64_t count, uint32_t width);
  void add(std::unique_ptr<std::string> bytes);
  uint64_t kept_bytes() const { return kept_; }  // of copied blocks
  // Reserves memory for reading `length` tokens and a label.
  void prepare(uint64_t length) { buffer_.resize((length + 1) * 8); }
  // Writes tokens [start, start + length]: the first `length` to tokens, all but the first to labels. Allocates
  // nothing; one caller at a time. Returns NULL, or the file that changed since it was opened; then what was written is
  // useless.
  const InputFile* read(uint64_t start, uint64_t length, int32_t* tokens, int32_t* labels);

 private:
  struct Segment {
    uint64_t start;  // token
    uint64_t offset;
    uint32_t width;
    const InputFile* file;  // NULL: `bytes`
    const char* bytes;
  };
  std::vector<Segment> segments_;
  std::vector<std::unique_ptr<InputFile>> files_;
  std::vector<std::unique_ptr<std::string>> copied_;
  std::vector<unsigned char> buffer_;
  uint64_t size_ = 0, kept_ = 0;
};

}  // namespace text_data
