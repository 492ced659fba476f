// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text as they are, before any other step.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace text_data {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false, lstrip = false, rstrip = false;
};

class AddedTokens {
 public:
  struct Found {
    std::size_t begin, end;  // with the white space that the token takes
    std::size_t after;       // of the token itself: where the next one is looked for
    int32_t id;
  };
  void set(std::vector<AddedToken> tokens);
  bool empty() const { return tokens_.empty(); }
  // The first match from `from` on: the leftmost one, and of several there the longest. It takes no white space before
  // `taken`, where the previous match ended, which may be later than `from`. A token inside white space that the
  // previous match took is therefore still found, as the library does.
  bool next(std::string_view text, std::size_t from, std::size_t taken, Found* found) const;
  // Appends the ids of the tokens in `text` and calls take(part) for each part between them.
  template <class Take>
  void each_part(std::string_view text, std::vector<int32_t>& ids, Take take) const {
    std::size_t at = 0;
    Found found{};
    while (next(text, found.after, at, &found)) {
      if (found.begin > at) take(text.substr(at, found.begin - at));
      ids.push_back(found.id);
      at = found.end;
    }
    if (at < text.size()) take(text.substr(at));
  }

 private:
  const AddedToken* at(std::string_view rest) const;
  std::vector<AddedToken> tokens_;  // sorted
  bool one_first_ = false;          // all begin with the same byte
  std::bitset<65536> beginnings_;   // of two bytes; a token of one byte has all that begin with it
};

bool ends_in_word(std::string_view text);
bool begins_with_word(std::string_view text);

}  // namespace text_data
