// SPDX-License-Identifier: Apache-2.0
// Tokenizers whose file has the bytes of each token, and merges what makes the token of the lowest number: tiktoken's
// rank files, and Mistral's tekken.json. Ids equal those of tiktoken 0.14.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "huggingface_file.hpp"

namespace text_data {

// A token that merges make, or a single byte.
struct RankedToken {
  std::string bytes;
  int32_t id;         // of two tokens, the smaller one is merged first
  std::string place;  // FILE: PLACE, for errors
};

struct RankedFile {
  std::vector<RankedToken> tokens;
  std::vector<FileToken> special;  // with ids; found in the text as they are
  std::string pattern;             // of tiktoken
  bool nfc = false;                // the text is normalised first
};

// Throws Failure("FILE: PLACE: what").
HuggingFaceFile make_ranked(RankedFile file, const std::string& path, std::string_view content,
                            const TokenizerFolder& folder, bool bos);
// True for patterns of which no match reaches over a space between two letters.
bool is_known_pattern(std::string_view pattern);
// True for lines of a token in base64 and its rank.
bool is_tiktoken(std::string_view text);
HuggingFaceFile read_tiktoken(const std::string& file);
HuggingFaceFile read_tekken(const std::string& file);

}  // namespace text_data
