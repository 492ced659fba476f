// SPDX-License-Identifier: Apache-2.0
// The pieces of a word whose scores have the largest sum, as the Unigram model of the `tokenizers` library finds them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bpe.hpp"
#include "piece_trie.hpp"

namespace text_data {

class Unigram {
 public:
  struct Scratch {
    struct Node {
      double score;
      std::size_t begin;  // of the piece that ends here; none: nothing ends here
      int32_t id;
    };
    std::vector<Node> nodes;
    std::vector<std::pair<std::size_t, std::size_t>> parts;
  };
  // The id of a piece is its place in the list; of equal pieces the last one counts. `unknown` is -1 if there is none.
  void set(const std::vector<std::pair<std::string, double>>& pieces, int32_t unknown, bool byte_fallback);
  bool empty() const { return scores_.empty(); }
  // Appends the ids of a word. Throws Failure for text without ids if no piece is the unknown one.
  void encode(std::string_view word, Scratch& scratch, WordCache& cache, std::vector<int32_t>& ids) const;

 private:
  void find_pieces(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  static constexpr std::size_t none = ~std::size_t{0};
  PieceTrie trie_;
  std::vector<double> scores_;  // by id
  std::vector<int32_t> bytes_;  // ids of "<0x00>" and following, or empty
  int32_t unknown_ = -1;
  double unknown_score_ = 0;
};

}  // namespace text_data
