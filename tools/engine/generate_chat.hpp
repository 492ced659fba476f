// SPDX-License-Identifier: Apache-2.0
// engine generate --chat: conversations.
#pragma once

#include "session/data/chat.hpp"
#include "tools/engine/generate_prompts.hpp"

namespace eng {

// The template of --chat-template; else that of the run's data; else that of the first directory that has one. Throws
// Error(Exit::usage) if there is none.
Chat::Files chat_files(const GenerateFlags& flags, const Config& config, const std::string& tokenizer,
                       const std::vector<std::filesystem::path>& directories);
// A conversation, as JSON: the row, or the text as the message of a user. --system is its first message.
std::string conversation_of(const Prompt& prompt, const std::optional<std::string>& system);
// Reads messages from the terminal and answers each, until the input ends. `texts.prompts` is not read.
void converse(const Texts& texts, Decoder& decoder, const GenerateFlags& flags, const Chat& chat);

}  // namespace eng
