// SPDX-License-Identifier: Apache-2.0
// Makes a file of masked tokens from rows of chat data.
#pragma once

#include <string>
#include <vector>

#include "../kept_tokens.hpp"
#include "../text_format.hpp"
#include "chat_template.hpp"
#include "spans.hpp"

namespace text_data {

enum class Policy { stop, cut, skip };

struct ChatRequest {
  std::vector<std::string> files;
  Reading reading;  // its field is that of the messages
  const ChatTemplate* chat = nullptr;
  TrainOn train_on = TrainOn::assistant;
  bool weights = false;  // those of messages and rows are read
  Policy too_long = Policy::stop, on_empty = Policy::stop;
  uint64_t length = 0;  // [train] sequence_length
  std::string folder;   // where the file goes
};

// Finds the file that was made from the same rows in the same way, or makes it; see build(). The rows are documents of
// the file. A token's value is 2 * id, and 1 more if it is trained; its weight is that of TokenFile. Throws Failure for
// the first row that is refused.
Built build_chat(const ChatRequest& request, const Tokenizer& tokenizer, const eng_data_watch* watch);

}  // namespace text_data
