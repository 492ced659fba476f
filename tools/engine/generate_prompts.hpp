// SPDX-License-Identifier: Apache-2.0
// engine generate --prompts: many texts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/json.hpp"
#include "session/text/continuation.hpp"

namespace eng {

struct GenerateFlags {
  std::vector<std::string> overrides;
  std::string target, prompt, prompts, tokenizer, chat_template;
  int64_t tokens = 128, max_length = 0, batch = 8;
  Sampling sampling;
  std::vector<std::string> stop;
  std::optional<std::string> system;
  bool chat = false, ids = false, prompt_given = false;
};

// A prompt as it was given: a text, or, of a file of conversations, an object.
struct Prompt {
  std::string text;
  Json row = {};
};

// The prompts of a command, and how they are continued.
struct Texts {
  const Tokenizer& tokenizer;
  std::vector<std::vector<int32_t>> prompts;
  Continuation how;
};

// The prompts of a file: one a line; of a file that ends in .jsonl, a text or an object with `prompt` a line, or, if
// `chats`, an object with a conversation. Throws Error(Exit::usage) that names the line.
std::vector<Prompt> read_prompts(const std::string& file, bool chats);
// Continues the one prompt of `of`, and writes the new text as it is made.
struct WrittenText {
  std::string text;
  std::vector<int64_t> ids;
  double reading = 0, writing = 0;  // seconds
};
WrittenText show_text(const Texts& of, Decoder& decoder, const GenerateFlags& flags);
// Continues all of them, decoder.rows() at a time, and prints a JSON object for each, in their order. `texts`: the
// prompts as they were given.
void print_all(const Texts& of, Decoder& decoder, const GenerateFlags& flags, const std::vector<Prompt>& texts);

}  // namespace eng
