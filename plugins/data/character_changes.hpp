// SPDX-License-Identifier: Apache-2.0
// Normalizers of a tokenizer.json that look at one character at a time: Lowercase, StripAccents, the parts of
// BertNormalizer, Nmt and ByteLevel.
#pragma once

#include <bitset>
#include <string>
#include <string_view>

namespace text_data {

class CharacterChange {
 public:
  // Appends what becomes of a character to the text and returns true, or returns false where it stays.
  using Change = bool (*)(char32_t, std::string&);
  explicit CharacterChange(Change change);
  // False if nothing changes. `*moved` becomes true if the first characters of the text are gone.
  bool apply(std::string_view text, std::string& kept, bool* moved) const;

 private:
  Change change_;
  std::bitset<128> stays_;  // characters of ASCII
};

// Each lives as long as the process.
const CharacterChange& lowercase_change();
const CharacterChange& strip_accents_change();
const CharacterChange& clean_text_change();        // BertNormalizer: control characters go, white space is a space
const CharacterChange& space_ideographs_change();  // spaces around ideographs
const CharacterChange& strip_nonspacing_change();  // marks go
const CharacterChange& nmt_change();
const CharacterChange& byte_level_change();

}  // namespace text_data
