// SPDX-License-Identifier: Apache-2.0
// engine generate --prompts: many texts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/text/continuation.hpp"

namespace eng {

struct GenerateFlags {
  std::vector<std::string> overrides;
  std::string target, prompt, prompts, tokenizer;
  int64_t tokens = 128, max_length = 0, batch = 8;
  Sampling sampling;
  std::vector<std::string> stop;
  std::optional<std::string> system;
  bool chat = false, ids = false, prompt_given = false;
};

// The prompts of a command, and how they are continued.
struct Texts {
  const Tokenizer& tokenizer;
  std::vector<std::vector<int32_t>> prompts;
  Continuation how;
};

// The prompts of a file: one a line; of a file that ends in .jsonl, a text or an object with `prompt` a line. Throws
// Error(Exit::usage) that names the line.
std::vector<std::string> read_prompts(const std::string& file);
// Continues all of them, decoder.rows() at a time, and prints a JSON object for each, in their order. `texts`: the
// prompts as they were given.
void print_all(const Texts& of, Decoder& decoder, const GenerateFlags& flags, const std::vector<std::string>& texts);

}  // namespace eng
