// SPDX-License-Identifier: Apache-2.0
// The normalizer of a tokenizer.json: a list of changes to the text before it is split.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "character_changes.hpp"
#include "charsmap.hpp"
#include "pattern.hpp"

namespace text_data {

class Normaliser {
 public:
  enum class Form { none, nfc, nfd, nfkc, nfkd };
  struct Step {
    Form form = Form::none;                  // one of Unicode's normalisation forms
    std::shared_ptr<const Pattern> pattern;  // whose matches are replaced by `text`
    std::string literal, text;               // what is replaced by `text`; if both are empty, nothing
    std::string prepend;                     // before a text that is not empty
    bool strip_left = false, strip_right = false;
    const CharacterChange* change = nullptr;
    std::shared_ptr<const Charsmap> charsmap;
  };
  struct Buffers {
    std::string first, second;
    std::vector<int32_t> characters;
  };
  void add(Step step) { steps_.push_back(std::move(step)); }
  bool prepends() const {
    return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return !step.prepend.empty(); });
  }
  // Returns `text` itself where nothing changes, else a text in `buffers`. The text must be valid UTF-8. `*moved`
  // becomes true if its first characters are gone, so that the result does not begin where the text does.
  std::string_view apply(std::string_view text, Buffers& buffers, const MatchState& state, bool* moved) const;

 private:
  std::vector<Step> steps_;
};

// White space as the library strips it and as added tokens take it.
bool is_space(char32_t c);

}  // namespace text_data
