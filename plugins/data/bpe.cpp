// SPDX-License-Identifier: Apache-2.0
#include "bpe.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "byte_characters.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

constexpr std::size_t short_word = 32;  // symbols; up to this many, scanning all pairs is faster than a heap

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t spread(uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15u;
  return pair ^ pair >> 29;
}

}  // namespace

bool WordCache::get(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const {
  const Slot& slot = slots_[hash % slot_count];
  if (slot.hash != hash || slot.bytes != word.size() || std::memcmp(slot.text, word.data(), word.size()) != 0)
    return false;
  ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
  return true;
}

void WordCache::put(std::string_view word, uint64_t hash, const int32_t* ids, std::size_t count) {
  if (count > most_ids) return;
  Slot& slot = slots_[hash % slot_count];
  slot.hash = hash;
  slot.bytes = static_cast<uint8_t>(word.size());
  slot.count = static_cast<uint8_t>(count);
  std::memcpy(slot.text, word.data(), word.size());
  std::copy_n(ids, count, slot.ids);
}

void Bpe::set_merges(const std::vector<Merge>& merges, Order order) {
  rules_.assign(std::bit_ceil(2 * merges.size() + 2), Rule{none, 0, 0});
  const uint64_t mask = rules_.size() - 1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    uint64_t at = spread(pair) & mask;
    while (rules_[at].pair != none && rules_[at].pair != pair) at = (at + 1) & mask;
    const int32_t into = merges[rank].into;
    // If a pair is given twice, the last one counts.
    rules_[at] = {pair, order == Order::token ? static_cast<uint32_t>(into) : static_cast<uint32_t>(rank), into};
  }
}

const Bpe::Rule* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right), mask = rules_.size() - 1;
  for (uint64_t at = spread(pair) & mask; rules_[at].pair != none; at = (at + 1) & mask)
    if (rules_[at].pair == pair) return &rules_[at];
  return nullptr;
}

void Bpe::start_characters(std::string_view word, std::vector<int32_t>& symbols) const {
  bool pending = false;  // an unknown character, which the library writes before the next known one
  for (std::size_t at = 0, length = 0; at < word.size(); at += length) {
    const char32_t c = utf8_decode(word.substr(at), &length);
    const int32_t id = c < characters.size() ? characters[c] : -1;
    if (id >= 0) {
      if (pending) symbols.push_back(unknown);
      pending = false;
      symbols.push_back(id);
      continue;
    }
    const std::string_view all = word.substr(at, length);
    const auto byte = [&](char b) { return bytes[static_cast<unsigned char>(b)]; };
    if (std::all_of(all.begin(), all.end(), [&](char b) { return byte(b) >= 0; })) {
      for (const char b : all) symbols.push_back(byte(b));
    } else if (unknown >= 0) {
      if (pending && !fuse_unknown) symbols.push_back(unknown);
      pending = true;
    }
  }
  if (pending) symbols.push_back(unknown);
}

void Bpe::start_affixed(std::string_view word, std::vector<int32_t>& symbols) const {
  std::string characters_of_bytes, text;
  if (!by_character) {
    static const ByteCharacters all;
    all.characters(word, characters_of_bytes);
    word = characters_of_bytes;
  }
  bool pending = false;  // as in start_characters
  for (std::size_t at = 0, length = 0; at < word.size(); at += length) {
    utf8_decode(word.substr(at), &length);
    text = at == 0 ? "" : prefix;
    text += word.substr(at, length);
    if (at + length == word.size()) text += suffix;
    const auto found = affixed.find(text);
    const auto byte = [&](char b) { return bytes[static_cast<unsigned char>(b)]; };
    if (found != affixed.end()) {
      if (pending) symbols.push_back(unknown);
      pending = false;
      symbols.push_back(found->second);
    } else if (by_character && std::all_of(text.begin(), text.end(), [&](char b) { return byte(b) >= 0; })) {
      for (const char b : text) symbols.push_back(byte(b));
    } else if (unknown >= 0) {
      if (pending && !fuse_unknown) symbols.push_back(unknown);
      pending = true;
    }
  }
  if (pending) symbols.push_back(unknown);
}

void Bpe::start(std::string_view word, std::vector<int32_t>& symbols) const {
  symbols.clear();
  if (!affixed.empty()) return start_affixed(word, symbols);
  if (by_character) return start_characters(word, symbols);
  bool was_unknown = false;
  for (const char c : word) {
    const int32_t id = bytes[static_cast<unsigned char>(c)];
    if (id >= 0)
      symbols.push_back(id);
    else if (unknown >= 0 && !(was_unknown && fuse_unknown))
      symbols.push_back(unknown);
    was_unknown = id < 0;
  }
}

void Bpe::merge_short(std::vector<int32_t>& symbols) const {
  constexpr uint32_t no_rank = ~uint32_t{0};
  struct Pair {
    uint32_t rank;
    int32_t into;
  } pairs[short_word];
  std::size_t size = symbols.size();
  const auto look = [&](std::size_t i) {
    const Rule* rule = find(symbols[i], symbols[i + 1]);
    pairs[i] = rule ? Pair{rule->rank, rule->into} : Pair{no_rank, 0};
  };
  for (std::size_t i = 0; i + 1 < size; ++i) look(i);
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == no_rank) break;
    symbols[best] = pairs[best].into;
    for (std::size_t i = best + 1; i + 1 < size; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --size;
    if (best > 0) look(best - 1);
    if (best + 1 < size) look(best);
  }
  symbols.resize(size);
}

// Gives the same result in O(n log n): a linked list of symbols, and a heap of pairs that could be merged when they
// were added.
void Bpe::merge_long(Scratch& s) const {
  const auto size = static_cast<int32_t>(s.ids.size());
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  s.previous.resize(s.ids.size());
  s.next.resize(s.ids.size());
  s.heap.clear();
  const auto at = [](std::vector<int32_t>& list, int32_t i) -> int32_t& { return list[static_cast<std::size_t>(i)]; };
  const auto offer = [&](int32_t i) {
    const int32_t j = at(s.next, i);
    if (j == size) return;
    if (const Rule* rule = find(at(s.ids, i), at(s.ids, j))) {
      s.heap.push_back({rule->rank, i, at(s.ids, i), at(s.ids, j), rule->into});
      std::push_heap(s.heap.begin(), s.heap.end(), later);
    }
  };
  for (int32_t i = 0; i < size; ++i) {
    at(s.previous, i) = i - 1;
    at(s.next, i) = i + 1;
  }
  for (int32_t i = 0; i + 1 < size; ++i) offer(i);
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), later);
    const Scratch::Candidate c = s.heap.back();
    s.heap.pop_back();
    const int32_t i = c.at;
    if (at(s.ids, i) != c.left) continue;  // merged since, or gone (-1)
    const int32_t j = at(s.next, i);
    if (j == size || at(s.ids, j) != c.right) continue;
    at(s.ids, i) = c.into;
    at(s.ids, j) = -1;
    const int32_t after = at(s.next, j);
    at(s.next, i) = after;
    if (after < size) at(s.previous, after) = i;
    if (at(s.previous, i) >= 0) offer(at(s.previous, i));
    offer(i);
  }
  s.ids.erase(std::remove(s.ids.begin(), s.ids.end(), -1), s.ids.end());
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  std::size_t begin = 0;
  if (!cut_before.empty())
    for (std::size_t at = 0; (at = word.find(cut_before, at)) != std::string_view::npos; at += cut_before.size()) {
      const std::string_view before = word.substr(0, at);
      if (before.empty() || before.back() == ' ' || before.ends_with(cut_before)) continue;
      encode_part(word.substr(begin, at - begin), scratch, ids);
      begin = at;
    }
  encode_part(word.substr(begin), scratch, ids);
}

void Bpe::encode_part(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  const bool cached = WordCache::fits(word);
  const uint64_t hash = cached ? XXH3_64bits(word.data(), word.size()) : 0;
  if (cached && scratch.cache.get(word, hash, ids)) return;
  scratch.ids.clear();
  if (!whole.empty())
    if (const auto found = whole.find(std::string(word)); found != whole.end()) scratch.ids.push_back(found->second);
  if (scratch.ids.empty()) {
    start(word, scratch.ids);
    if (scratch.ids.size() <= short_word)
      merge_short(scratch.ids);
    else
      merge_long(scratch);
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  if (cached) scratch.cache.put(word, hash, scratch.ids.data(), scratch.ids.size());
}

}  // namespace text_data
