// SPDX-License-Identifier: Apache-2.0
// From text files to a file of tokens: the same bytes whatever the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data.h"
#include "input.hpp"
#include "token_file.hpp"
#include "tokenizer.hpp"

namespace text_data {

struct BuildRequest {
  std::vector<std::string> files;
  Reading reading;
  std::string separator;  // text between two documents, where there is no eot
  int32_t eot = -1;       // behind each document; -1: none
  bool special = false;   // with the tokenizer's ids around each document
  std::string folder;     // where the file goes
};

struct Built {
  TokenFile file;  // scanned
  bool reused = false;
};

// Finds the file that was made from the same texts, by the same tokenizer, in the same way; or makes it. A file that is
// there and damaged is made again. Throws Failure; ENG_UNAVAILABLE where the watch asked to stop.
Built build(const BuildRequest& request, const Tokenizer& tokenizer, const eng_data_watch* watch);

}  // namespace text_data
