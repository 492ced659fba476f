// SPDX-License-Identifier: Apache-2.0
// A Hugging Face directory's settings for texts: which ids end a text, and the template of its chats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace eng {

// eos_token_id of config.json and generation_config.json, a number or a list in each; empty without such files. Throws
// Error(Exit::usage) for a file that is not JSON.
std::vector<int32_t> end_ids(const std::filesystem::path& directory);

// The chat template of a directory, "" if it has none: chat_template.jinja, or chat_template of tokenizer_config.json.
// Throws Error(Exit::usage) for a file that is not JSON.
std::string chat_template(const std::filesystem::path& directory);

}  // namespace eng
