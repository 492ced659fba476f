// SPDX-License-Identifier: Apache-2.0
// Rows of chat data: messages of OpenAI's form, ShareGPT's conversations, alpaca's instructions, prompts and
// completions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../jinja/value.hpp"

namespace text_data {

struct Message {
  jinja::Value value;  // a dict, for the template
  std::string role;
  bool trains = true;          // the row does not say otherwise
  float weight = 1;            // of its tokens in the loss, if weights are read
  bool calls = false;          // it has tool_calls
  bool empty_content = false;  // no content, or nothing but white space
};

struct Conversation {
  std::vector<Message> messages;
  jinja::Value tools = jinja::None();
  bool has_tools = false;
  bool flagged = false;  // a message has a flag about training
  float weight = 1;      // of the row, by which those of its messages are multiplied; if weights are read
  bool unread = false;   // the row has a weight other than 1, and weights are not read
};

// Reads a row, an object of JSON. `field` is the name of the field with the messages. Throws Failure, with a text that
// names the row (`where`); ENG_NOT_FOUND: the row has no messages at all. `weights`: that of a message, or of the row
// (weight or loss_weight), may be 0 or any number from 1e-9 to 1e9, so that their product is one in f32.
Conversation read_conversation(const std::string& text, const std::string& field, const std::string& where,
                               bool weights = false);

// The message with another content.
Message with_content(const Message& message, const std::string& content);
// The message without the entry `key`.
Message without_entry(const Message& message, std::string_view key);

}  // namespace text_data
