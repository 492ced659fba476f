// SPDX-License-Identifier: Apache-2.0
// The decoder of a tokenizer.json, as far as it looks at one piece at a time. A step that looks at a whole text, such
// as the one that drops the space before its first word, is left out: ids are shown one by one (engine/tokenizer.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "byte_characters.hpp"
#include "json_reader.hpp"

namespace text_data {

struct PieceDecoder {
  bool byte_level = false, byte_fallback = false, fused = false;
  std::vector<std::pair<std::string, std::string>> replaced;
  // WordPiece: a space stands before each piece that does not begin with `continuing`, which is dropped.
  bool spaced = false, cleanup = false;
  std::string continuing;
  std::string word_end;  // becomes a space

  void read(const JsonReader& reader, const json& value, const std::string& place);
  // The bytes that a piece of the vocabulary is shown as; `literal`: it is an added token.
  std::string show(const std::string& piece, bool literal) const;

 private:
  struct Strip {
    std::string content;
    std::size_t start = 0, stop = 0;
  };
  std::vector<Strip> strips_;
  ByteCharacters characters_;
};

}  // namespace text_data
