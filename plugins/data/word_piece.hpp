// SPDX-License-Identifier: Apache-2.0
// The models WordPiece and WordLevel of a tokenizer.json: a word is cut into the longest pieces from its beginning on,
// or is one piece as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bpe.hpp"
#include "piece_trie.hpp"

namespace text_data {

class WordPiece {
 public:
  struct Rules {
    bool whole = false;               // WordLevel: a word has one id or is unknown
    std::string prefix;               // of pieces that do not begin a word
    std::size_t most_characters = 0;  // a longer word is unknown
    int32_t unknown = -1;             // -1: the vocabulary has no such piece
  };
  void set(const std::unordered_map<std::string, int32_t>& pieces, Rules rules);
  bool empty() const { return !set_; }
  // Appends the ids of a word, or the one of unknown words. Throws Failure if there is none.
  void encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const;

 private:
  // False if no pieces make up the word; `ids` may then have some of them.
  bool pieces_of(std::string_view word, std::vector<int32_t>& ids) const;
  PieceTrie trie_;
  Rules rules_;
  uint32_t inner_ = 0;  // where pieces begin that do not begin a word
  bool inner_there_ = false, set_ = false;
};

}  // namespace text_data
