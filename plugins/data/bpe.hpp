// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: neighbours are merged, the pair of the lowest rank first, the leftmost of equal ones
// first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace text_data {

// A cache of encoded words. A word replaces the one that is in its slot. One per thread.
class WordCache {
 public:
  WordCache() : slots_(std::make_unique<Slot[]>(slot_count)) {}
  static bool fits(std::string_view word) { return word.size() <= most_bytes; }
  // If the word is in the cache, appends its ids and returns true.
  bool get(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const;
  void put(std::string_view word, uint64_t hash, const int32_t* ids, std::size_t count);

 private:
  static constexpr std::size_t slot_count = std::size_t{1} << 17, most_bytes = 22, most_ids = 8;
  struct alignas(64) Slot {  // a cache line
    uint64_t hash;
    uint8_t bytes;  // 0: empty
    uint8_t count;
    char text[most_bytes];
    int32_t ids[most_ids];
  };
  std::unique_ptr<Slot[]> slots_;
};

class Bpe {
 public:
  struct Merge {
    int32_t left, right, into;
  };
  struct Scratch {
    WordCache cache;
    std::vector<int32_t> ids, previous, next;
    struct Candidate {
      uint32_t rank;
      int32_t at, left, right, into;
    };
    std::vector<Candidate> heap;
  };

  // A word begins as its bytes, or with `by_character` as its characters. `bytes` has the ids of single bytes, -1 where
  // the vocabulary has none; `characters` those of characters. A character without an id becomes its bytes, if there
  // are ids for all of them and `by_character` is on; else it gives `unknown`, or nothing if that is -1.
  bool by_character = false;
  std::vector<int32_t> bytes = std::vector<int32_t>(256, -1);
  std::vector<int32_t> characters;
  int32_t unknown = -1;
  bool fuse_unknown = false;
  // Words that have one id whatever the merges say; empty where the merges decide.
  std::unordered_map<std::string, int32_t> whole;
  // The first character of a word stands as it is, each later one behind `prefix`; the last one stands before `suffix`.
  // If there is one of the two, `affixed` has the ids of such texts, written in the characters of bytes if words are
  // bytes.
  std::string prefix, suffix;
  std::unordered_map<std::string, int32_t> affixed;
  // No merge reaches over the beginning of this character, where neither a space nor the character itself is before it:
  // a word is cut there, and its parts are words. Empty: there is no such character.
  std::string cut_before;
  // `place`: in the order of their ranks. `token`: the rank of a merge is the number of the token that it makes.
  enum class Order { place, token };
  void set_merges(const std::vector<Merge>& merges, Order order = Order::place);

  // Appends the ids of a word.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Rule {
    uint64_t pair;
    uint32_t rank;
    int32_t into;
  };
  const Rule* find(int32_t left, int32_t right) const;
  void encode_part(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void start(std::string_view word, std::vector<int32_t>& symbols) const;
  void start_characters(std::string_view word, std::vector<int32_t>& symbols) const;
  void start_affixed(std::string_view word, std::vector<int32_t>& symbols) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(Scratch& scratch) const;

  std::vector<Rule> rules_ = std::vector<Rule>(1, Rule{none, 0, 0});  // open addressing, at most half full
  static constexpr uint64_t none = ~uint64_t{0};
};

}  // namespace text_data
