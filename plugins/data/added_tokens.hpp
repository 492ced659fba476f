// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text as they are, before anything else is done with it.
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
  // The first match from `from` on: the leftmost, of those the longest. It takes no white space before `taken`, the end
  // of the last one, which may lie behind `from`: a token in white space that another one took is found all the same,
  // as the library does it.
  bool next(std::string_view text, std::size_t from, std::size_t taken, Found* found) const;

 private:
  const AddedToken* at(std::string_view rest) const;
  std::vector<AddedToken> tokens_;  // longest first
  std::bitset<65536> beginnings_;   // of two bytes; a token of one byte has all that begin with it
};

bool ends_in_word(std::string_view text);
bool begins_with_word(std::string_view text);

}  // namespace text_data
