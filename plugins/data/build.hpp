// SPDX-License-Identifier: Apache-2.0
// Makes a file of tokens from text files. The bytes are the same for any number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kept_tokens.hpp"
#include "text_format.hpp"

namespace text_data {

struct BuildRequest {
  std::vector<std::string> files;
  Reading reading;
  std::string separator;  // text between two documents if there is no eot
  int32_t eot = -1;       // token after each document; -1: none
  bool special = false;   // with the tokenizer's ids around each document
  std::string folder;     // where the file goes
};

// Finds the file that was made from the same texts, by the same tokenizer, in the same way; otherwise makes it. A file
// that exists but is damaged is made again. Throws Failure, with ENG_UNAVAILABLE if the watch asked to stop.
Built build(const BuildRequest& request, const Tokenizer& tokenizer, const eng_data_watch* watch);

}  // namespace text_data
