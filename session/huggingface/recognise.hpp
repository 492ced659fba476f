// SPDX-License-Identifier: Apache-2.0
// Files and folders that lie where those of a model are expected, and are something else: told by their first bytes,
// or by what a folder has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace eng {

// The formats that are read; a file is no mistake if it has the one that is wanted.
enum class ModelFile { json, safetensors, torch, tokenizer };

// "is a Git LFS pointer ...", and what to do. `help` may be "".
struct Mistaken {
  std::string what, help;
};

// `first`: the first bytes of the file, 512 or all of them. nullopt if it may be what is wanted.
std::optional<Mistaken> recognise(std::string_view first, uint64_t file_bytes, ModelFile wanted);
// Throws Error(exit) that names the file if it is recognised as something else, or a broken link; a file that is
// missing or cannot be read is left to its reader.
void refuse_mistaken(const std::filesystem::path& file, ModelFile wanted, Exit exit);
// Refuses other files in place of a tokenizer's: `path` itself, or those in a folder.
void refuse_mistaken_tokenizer(const std::filesystem::path& path);

// The reason why a folder, or a file in a folder's place, gives no weights. nullopt: nothing that is known here.
std::optional<Mistaken> recognise_folder(const std::filesystem::path& folder);
// A LoRA adapter, also beside the files of a whole model: transformers would load the adapter's base model.
std::optional<Mistaken> recognise_adapter(const std::filesystem::path& folder);

}  // namespace eng
