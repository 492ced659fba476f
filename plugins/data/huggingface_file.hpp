// SPDX-License-Identifier: Apache-2.0
// The content of a tokenizer.json, or of a vocab.json with its merges.txt, and of the files beside it, in the form that
// this plugin uses.
#pragma once

#include <string>
#include <vector>

#include "bpe.hpp"
#include "normaliser.hpp"
#include "splitter.hpp"
#include "tokenizer.hpp"
#include "tokenizer_folder.hpp"
#include "unigram.hpp"
#include "word_piece.hpp"

namespace text_data {

struct HuggingFaceFile {
  Bpe bpe;
  Unigram unigram;       // instead, if it is not empty
  WordPiece word_piece;  // instead, if it is not empty
  Normaliser normaliser;
  std::vector<FileToken> added;
  Splitter splitter;
  std::vector<int32_t> prefix, suffix;  // ids around a text
  std::vector<std::string> pieces;      // bytes of each id
  Tokenizer::Info info;
  bool cuttable = true;  // see Tokenizer
};

// Throws Failure("FILE: PLACE: what").
HuggingFaceFile read_huggingface(const std::string& file);

}  // namespace text_data
