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
  bool calls = false;          // it has tool_calls
  bool empty_content = false;  // no content, or nothing but white space
};

struct Conversation {
  std::vector<Message> messages;
  jinja::Value tools = jinja::None();
  bool has_tools = false;
  bool flagged = false;  // a message has a flag about training
};

// Reads a row, an object of JSON. `field` is the name of the field with the messages. Throws Failure, with a text that
// names the row (`where`); ENG_NOT_FOUND: the row has no messages at all.
Conversation read_conversation(const std::string& text, const std::string& field, const std::string& where);

// The message with another content.
Message with_content(const Message& message, const std::string& content);
// The message without the entry `key`.
Message without_entry(const Message& message, std::string_view key);

}  // namespace text_data
