// SPDX-License-Identifier: Apache-2.0
// The pre_tokenizer of a tokenizer.json: a list of steps, each of which splits every part that the one before it left.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pattern.hpp"

namespace text_data {

class Splitter {
 public:
  enum class Behaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  enum class Prefix { never, first, always };  // first: only at the beginning of the whole text
  struct Step {
    // Spaces become `space`, and a part that does not begin with it gets one before it (Metaspace).
    std::string space;
    Prefix prefix = Prefix::never;
    bool prefix_space = false;  // before a part that does not begin with one (ByteLevel)
    // Splits a part: at the matches of a pattern, or into characters.
    std::shared_ptr<const Pattern> pattern;
    bool (*character)(char32_t) = nullptr;
    Behaviour behaviour = Behaviour::isolated;  // of the matches
    bool invert = false;                        // what does not match counts as a match
    bool scripts = false;                       // where the script changes (UnicodeScripts)
    bool byte_characters = false;  // each byte becomes its character (ByteLevel, if it is not the last step)
  };
  struct Scratch {
    struct Piece {
      std::size_t begin, end;
      bool match;
    };
    struct Level {
      std::string changed, characters;
      std::vector<Piece> pieces;
    };
    std::vector<Level> levels;
    bool exact = false;
  };
  using Take = std::function<void(std::string_view)>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  std::size_t size() const { return steps_.size(); }
  Step& last() { return steps_.back(); }
  // True if a step must know where the whole text begins.
  bool asks_for_first() const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const Step& step) { return !step.space.empty() && step.prefix == Prefix::first; });
  }
  // Leaves out steps that do nothing.
  void drop_idle() {
    std::erase_if(steps_, [](const Step& s) {
      return s.space.empty() && !s.prefix_space && !s.pattern && !s.character && !s.scripts && !s.byte_characters;
    });
  }
  // Calls `take` for each part of the text; `first`: it is where the whole text begins.
  void split(std::string_view text, bool first, Scratch& scratch, const MatchState& state, const Take& take) const;

 private:
  void split_at(std::size_t step, std::string_view text, bool first, Scratch& scratch, const MatchState& state,
                const Take& take) const;
  void pieces(const Step& step, std::string_view text, std::vector<Scratch::Piece>& out, const Scratch& scratch,
              const MatchState& state) const;
  std::vector<Step> steps_;
};

// Punctuation as the library's Punctuation counts it, and the characters of words as its Whitespace does.
bool is_punctuation(char32_t c);
bool is_word(char32_t c);

}  // namespace text_data
