// SPDX-License-Identifier: Apache-2.0
// The tokenizer of [data] beside exported weights, so that transformers' AutoTokenizer loads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace eng {

// What is known of the tokenizer that a run was trained with.
struct TokenizerSource {
  std::string name;            // "bytes", or the absolute path of its file or folder; "" if there is none
  int64_t bos = -1, eos = -1;  // ids; -1: there is none
  std::string bos_text, eos_text;
};

// Whether the directory has all that a tokenizer is read from.
bool has_tokenizer(const std::filesystem::path& directory);
// Copies its files into `to`, or writes those that say "bytes", and returns their names. tokenizer_config.json is made,
// or completed by the class, where it does not say which class reads them. What is there already stays.
std::vector<std::string> export_tokenizer(const TokenizerSource& tokenizer, const std::filesystem::path& to);

}  // namespace eng
