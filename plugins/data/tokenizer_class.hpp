// SPDX-License-Identifier: Apache-2.0
// Classes of transformers whose vocab.json and merges.txt are read: what each does around the model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "json_reader.hpp"

namespace text_data {

struct TokenizerFolder;

// Says if a class adds the tokens that have names once more: as they are named, or so that they take no white space.
enum class Again { never, as_named, plain };

struct TokenizerClass {
  const char* name;
  const char* normalizer;  // its type, or NULL
  const char* pattern;     // a Split before ByteLevel; NULL: ByteLevel's own
  bool digits;             // digits one by one, before ByteLevel
  Again again;
  bool around;           // cls and sep around each text
  const char* named[7];  // bos, eos, unk, sep, pad, cls, mask, where the files name none; NULL: no token
};

const TokenizerClass* find_tokenizer_class(std::string_view name);
std::string known_tokenizer_classes();
// The class that transformers takes for a model_type, whatever `named` (by the tokenizer's files) is; "" if that
// counts.
std::string tokenizer_class_of_model(const std::string& model_type, const std::string& named);

// A tokenizer.json of the vocabulary and the merges of such a class. Named tokens that the folder does not name get the
// class's.
json assemble_tokenizer(json vocabulary, json merges, const TokenizerClass& of, TokenizerFolder& folder);

}  // namespace text_data
