// SPDX-License-Identifier: Apache-2.0
// A Hugging Face directory's settings for texts: which ids end a text, and how a chat is formatted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace eng {

// eos_token_id of config.json and generation_config.json, a number or a list in each; empty without such files. Throws
// Error(Exit::usage) for a file that is not JSON.
std::vector<int32_t> end_ids(const std::filesystem::path& directory);

// The chat template of a directory, "" if it has none: chat_template.jinja, or chat_template of tokenizer_config.json.
// Throws Error(Exit::usage) for a file that is not JSON.
std::string chat_template(const std::filesystem::path& directory);

// A user's message, after a system message if there is one, formatted with the chat template of the directory up to the
// start of the answer. The template is chat_template.jinja, or chat_template of tokenizer_config.json. Templates are
// not executed but recognised: ChatML, Zephyr, Llama 2, Llama 3 and Mistral, as they are commonly shipped. nullopt:
// there is no template. Throws Error(Exit::usage) for any other template.
std::optional<std::string> chat_prompt(const std::filesystem::path& directory, const std::optional<std::string>& system,
                                       const std::string& user);

// The output of a template for a user's message, with a system message before it (NULL: not supported) and without.
// $b $e: the bos and eos tokens; $s the system message, $u the user's, $d `own_system`; $S and $U: trimmed, $R: at its
// end.
struct ChatPieces {
  const char *with_system = nullptr, *without = nullptr;
  std::string own_system;
};
// nullopt: not a known template.
std::optional<ChatPieces> known_chat(std::string text);

}  // namespace eng
