// SPDX-License-Identifier: Apache-2.0
#include "unigram.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>

#include "failure.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

constexpr double unknown_penalty = 10;  // below the lowest score

}  // namespace

void Unigram::set(const std::vector<std::pair<std::string, double>>& pieces, int32_t unknown, bool byte_fallback) {
  std::size_t bytes = 0;
  double lowest = 0;
  for (const auto& [piece, score] : pieces) {
    bytes += piece.size();
    lowest = scores_.empty() ? score : std::min(lowest, score);
    scores_.push_back(score);
  }
  unknown_ = unknown;
  unknown_score_ = lowest - unknown_penalty;
  trie_ = PieceTrie(bytes);
  for (std::size_t id = 0; id < pieces.size(); ++id) trie_.add(pieces[id].first, static_cast<int32_t>(id));
  if (!byte_fallback) return;
  bytes_.resize(256);
  for (unsigned b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    bytes_[b] = trie_.find(name);
  }
}

void Unigram::encode(std::string_view word, Scratch& s, WordCache& cache, std::vector<int32_t>& ids) const {
  if (!WordCache::fits(word)) return find_pieces(word, s, ids);
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  if (cache.get(word, hash, ids)) return;
  const std::size_t before = ids.size();
  find_pieces(word, s, ids);
  cache.put(word, hash, ids.data() + before, ids.size() - before);
}

void Unigram::find_pieces(std::string_view word, Scratch& s, std::vector<int32_t>& ids) const {
  s.nodes.assign(word.size() + 1, {0, none, 0});
  const auto offer = [&](std::size_t begin, std::size_t end, double score, int32_t id) {
    Scratch::Node& node = s.nodes[end];
    if (node.begin == none || score > node.score) node = {score, begin, id};
  };
  for (std::size_t at = 0, length = 0; at < word.size(); at += length) {
    utf8_decode(word.substr(at), &length);
    const double before = s.nodes[at].score;
    bool single = false;
    uint32_t node = PieceTrie::root;
    for (std::size_t end = at; end < word.size();) {
      node = trie_.follow(node, static_cast<unsigned char>(word[end]));
      if (node == 0) break;
      ++end;
      const int32_t id = trie_.id(node);
      if (id < 0) continue;
      offer(at, end, scores_[static_cast<std::size_t>(id)] + before, id);
      single = single || end - at == length;
    }
    if (!single) offer(at, at + length, unknown_score_ + before, unknown_);
  }
  // From the end; unknown neighbours are one.
  s.parts.clear();
  bool was_unknown = false;
  for (std::size_t end = word.size(); end > 0;) {
    const Scratch::Node& node = s.nodes[end];
    const bool is_unknown = node.id == unknown_;
    if (is_unknown && was_unknown)
      s.parts.back().first = node.begin;
    else
      s.parts.emplace_back(node.begin, end);
    was_unknown = is_unknown && unknown_ >= 0;
    end = node.begin;
  }
  for (auto part = s.parts.rbegin(); part != s.parts.rend(); ++part) {
    const std::string_view text = word.substr(part->first, part->second - part->first);
    const auto byte = [&](char b) { return bytes_[static_cast<unsigned char>(b)]; };
    if (const int32_t id = trie_.find(text); id >= 0)
      ids.push_back(id);
    else if (!bytes_.empty() && std::all_of(text.begin(), text.end(), [&](char b) { return byte(b) >= 0; }))
      for (const char b : text) ids.push_back(byte(b));
    else if (unknown_ >= 0)
      ids.push_back(unknown_);
    else
      throw Failure(ENG_INVALID, "the text has a character that the tokenizer has no id for, and no unk_id");
  }
}

}  // namespace text_data
