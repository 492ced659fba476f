// SPDX-License-Identifier: Apache-2.0
// Files of tokens that are made once from text files and found again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/data.h"
#include "hash.hpp"
#include "input.hpp"
#include "token_file.hpp"
#include "tokenizer.hpp"

namespace text_data {

struct Built {
  TokenFile file;  // scanned
  bool reused = false;
};

// Tells the host how far a build is. The host may be NULL.
class Watch {
 public:
  // The files are read twice: for the name, and for the tokens.
  Watch(const eng_data_watch* watch, const std::vector<std::string>& files);
  void add(uint64_t bytes);
  void tell() const;  // throws Failure, ENG_UNAVAILABLE, if the host asks to stop
  uint64_t tokens = 0;
  mutable bool stopped = false;  // the host asked to stop

 private:
  const eng_data_watch* watch_;
  uint64_t total_ = 0, done_ = 0;
  std::chrono::steady_clock::time_point last_{};
};

// The hash of a file, read at most once in the life of this process.
Digest digest_of(InputFile& file, Watch& watch);
// Throws Failure if the file is not the one whose digest was taken.
void check_same(const InputFile& file);

// Opens the file of tokens that has this key, or makes it: `make` writes it to a path. A file that is damaged is made
// again.
Built find_or_make(const std::string& folder, const Digest& key, const std::function<void(const std::string&)>& make);

void set_tokenizer(TokenHeader& header, const Tokenizer& tokenizer);
// Fills the result of eng_data.build.
void tell_built(const Built& done, eng_data_built& out);

}  // namespace text_data
