// SPDX-License-Identifier: Apache-2.0
#include "word_piece.hpp"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "failure.hpp"

namespace text_data {

void WordPiece::set(const std::unordered_map<std::string, int32_t>& pieces, Rules rules) {
  std::size_t bytes = 0;
  for (const auto& [piece, id] : pieces) bytes += piece.size();
  trie_ = PieceTrie(bytes);
  for (const auto& [piece, id] : pieces) trie_.add(piece, id);
  rules_ = std::move(rules);
  inner_ = trie_.follow(PieceTrie::root, rules_.prefix);
  inner_there_ = rules_.prefix.empty() || inner_ != 0;
  set_ = true;
}

bool WordPiece::pieces_of(std::string_view word, std::vector<int32_t>& ids) const {
  if (rules_.whole) {
    const int32_t id = trie_.find(word);
    if (id >= 0) ids.push_back(id);
    return id >= 0;
  }
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  if (word.size() > rules_.most_characters &&
      static_cast<std::size_t>(std::count_if(word.begin(), word.end(), begins)) > rules_.most_characters)
    return false;
  for (std::size_t at = 0; at < word.size();) {
    if (at > 0 && !inner_there_) return false;
    uint32_t node = at == 0 ? PieceTrie::root : inner_;
    std::size_t best = at;
    int32_t id = -1;
    for (std::size_t end = at; end < word.size();) {
      node = trie_.follow(node, static_cast<unsigned char>(word[end]));
      if (node == 0) break;
      ++end;
      if (trie_.id(node) < 0) continue;
      best = end;
      id = trie_.id(node);
    }
    if (best == at) return false;
    ids.push_back(id);
    at = best;
  }
  return true;
}

void WordPiece::encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  const bool cached = WordCache::fits(word);
  const uint64_t hash = cached ? XXH3_64bits(word.data(), word.size()) : 0;
  if (cached && cache.get(word, hash, ids)) return;
  const std::size_t before = ids.size();
  if (!pieces_of(word, ids)) {
    if (rules_.unknown < 0)
      throw Failure(ENG_INVALID,
                    "the text has a word that the tokenizer has no id for, and its unk_token is not in "
                    "its vocabulary");
    ids.resize(before);
    ids.push_back(rules_.unknown);
  }
  if (cached) cache.put(word, hash, ids.data() + before, ids.size() - before);
}

}  // namespace text_data
