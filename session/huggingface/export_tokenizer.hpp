// SPDX-License-Identifier: Apache-2.0
// Exports the tokenizer of [data] with the weights, so that transformers' AutoTokenizer loads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace eng {

// The tokenizer that a run was trained with.
struct TokenizerSource {
  std::string name;            // "bytes", or the absolute path of its file or folder; "" if there is none
  int64_t bos = -1, eos = -1;  // ids; -1: there is none
  std::string bos_text, eos_text;
};

// GPT-2's printable character for a byte, as UTF-8: the character itself if it is printable in Latin-1, otherwise
// U+0100 and following.
std::string byte_character(unsigned byte);
// True for a file of ranks: *.tiktoken, tekken.json, or tiktoken's file with the name tokenizer.model.
bool is_ranks(const std::filesystem::path& file);
// That of a directory, if nothing else there is its tokenizer; otherwise an empty path.
std::filesystem::path ranks_of(const std::filesystem::path& folder);
// True if the directory has all files of a tokenizer.
bool has_tokenizer(const std::filesystem::path& directory);
// Copies its files into `to`, or writes files that mean "bytes", and returns their names. tokenizer_config.json is
// completed as below.
std::vector<std::string> export_tokenizer(const TokenizerSource& tokenizer, const std::filesystem::path& to);
// Lets AutoTokenizer give the ids of the files that were copied from `from` to `to`: without a class it takes the one
// for model_type, and most classes take only the vocabulary of a tokenizer.json. So tokenizer_config.json gets a class
// that takes all of it. What else it says is kept; if there was none, its name is added to `out`.
void complete_tokenizer_config(const TokenizerSource& tokenizer, const std::filesystem::path& from,
                               const std::filesystem::path& to, std::vector<std::string>& out);

}  // namespace eng
