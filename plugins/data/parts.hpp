// SPDX-License-Identifier: Apache-2.0
// Splits documents into parts of a size that threads can share, only where a cut does not change the ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer.hpp"

namespace text_data {

// Places at which a long text may be cut: at a single space between two letters. The space begins the second part, or
// is dropped where the tokenizer adds one to each part anyway. Never: a document stays whole.
enum class Cut { before_space, for_space, never };
Cut cut_of(const Tokenizer& tokenizer);  // asks the tokenizer

// A piece of a document. `end` is where it ends in the batch's text, `ids` where its ids end.
struct Part {
  std::size_t end;
  bool first, last;  // of its document
  std::size_t ids = 0;
};
struct Batch {
  std::string text;
  std::vector<Part> parts;
  std::vector<int32_t> ids;
  void encode(const Tokenizer& tokenizer);
};

class Batcher {
 public:
  static constexpr std::size_t batch_bytes = std::size_t{256} << 10, part_bytes = std::size_t{1} << 20;
  Batcher(Cut cut, std::function<void(Batch&&)> take) : cut_(cut), take_(std::move(take)) {}
  void begin() { first_ = true; }
  void text(std::string_view text);
  void end();
  void finish();

 private:
  void add(std::string_view text, bool last);
  Cut cut_;
  std::function<void(Batch&&)> take_;
  Batch batch_;
  std::string rest_;        // of the document: not yet in a part
  std::size_t looked_ = 0;  // how much of it has no place to cut
  bool first_ = true;
};

}  // namespace text_data
