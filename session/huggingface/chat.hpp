// SPDX-License-Identifier: Apache-2.0
// What a Hugging Face directory says of texts: which ids end one, and how a chat is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace eng {

// eos_token_id of config.json and generation_config.json, a number or a list in either; none where there is no such
// file. Throws Error(Exit::usage) for a file that is no JSON.
std::vector<int32_t> end_ids(const std::filesystem::path& directory);

// One message of a user, and a system message before it where there is one, as the chat template of the directory
// writes them, up to where the answer begins. The template is chat_template.jinja, or chat_template of
// tokenizer_config.json. Templates are not run but known: ChatML, Zephyr, Llama 2, Llama 3 and Mistral, as they are
// commonly shipped. nullopt: there is no template. Throws Error(Exit::usage) for one that is not known.
std::optional<std::string> chat_prompt(const std::filesystem::path& directory, const std::optional<std::string>& system,
                                       const std::string& user);

// What a template makes of one message of a user, with a system message before it (NULL: it refuses one) and without.
// $b $e: the bos and eos tokens; $s the system message, $u the user's, $d `own_system`; $S and $U: trimmed, $R: at its
// end.
struct ChatPieces {
  const char *with_system = nullptr, *without = nullptr;
  std::string own_system;
};
// nullopt: not one of those that are known.
std::optional<ChatPieces> known_chat(std::string text);

}  // namespace eng
