// SPDX-License-Identifier: Apache-2.0
// A tokenizer as a GGUF file has it.
#pragma once

#include <filesystem>
#include <optional>

#include "session/config/config.hpp"
#include "session/data/tokenizer.hpp"
#include "session/gguf/layout.hpp"
#include "session/json.hpp"

namespace eng {

// Kinds of tokens by their numbers in the file, which are those of sentencepiece.
enum class GgufToken : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct GgufVocabulary {
  std::string model;                // "gpt2": byte-level BPE; "llama": BPE of sentencepiece; "t5": its unigram
  std::string pre;                  // of gpt2: llama.cpp's name for the way in which texts are split first
  std::vector<std::string> tokens;  // by id; those of gpt2 in GPT-2's characters for bytes
  std::vector<GgufToken> types;
  std::vector<float> scores;        // of sentencepiece
  std::vector<std::string> merges;  // of gpt2: "left right"
  int64_t unknown = -1, padding = -1;
  std::optional<bool> space_prefix, one_space;  // of sentencepiece: add_dummy_prefix, remove_extra_whitespaces
  std::string charsmap;                         // of sentencepiece: replacements of characters
  std::vector<std::string> notes;               // what llama.cpp does not do
  // Sets the token of an id, which may be above all others.
  void set(int64_t id, std::string text, GgufToken type);
  void note(std::string text);  // once
};

// The 256 bytes.
GgufVocabulary bytes_vocabulary();
// A tokenizer.json. Throws Error(Exit::usage) for one that llama.cpp does not know, Error(Exit::data) for one that is
// damaged.
GgufVocabulary json_vocabulary(const std::filesystem::path& file);
// Adds the tokens of tokenizer_config.json in the folder. Throws Error(Exit::data).
void add_tokens_beside(const std::filesystem::path& folder, GgufVocabulary& out);
// A tokenizer.model: `model` is its content. Throws Error(Exit::data), prefixed with `where`.
GgufVocabulary sentencepiece_vocabulary(std::string_view model, const std::string& where);
// llama.cpp's name for the pre-tokenizer of a tokenizer.json. Throws Error(Exit::usage) if there is none.
std::string pre_tokenizer_name(const Json& pre_tokenizer, bool ignore_merges, const std::string& where);
// A piece of sentencepiece with spaces in place of U+2581.
std::string with_spaces(std::string piece);
// The bytes of a token in GPT-2's characters for bytes; none if it has others.
std::optional<std::string> bytes_of_characters(const std::string& token);

// The tokenizer that a run was trained with.
struct GgufTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // none: the file has ids alone
  std::string name;                                      // "bytes", or the absolute path of its file or folder
  bool special = false;                                  // texts get the ids that the tokenizer puts around them
  std::filesystem::path texts;  // the directory with the chat template and the ids that end a text; "": none
};
// `origin`: the Hugging Face directory that the run comes from, "" if there is none. Throws Error(Exit::data).
GgufTokenizer gguf_tokenizer(Registry& registry, const Config& config, const std::filesystem::path& origin);
// Writes tokenizer.*, with an unused token for each id that a model of `rows` ids has beyond the tokenizer. Returns
// notes. Throws Error(Exit::usage or data).
std::vector<std::string> write_vocabulary(const GgufTokenizer& from, int64_t rows, GgufHeader& out);

}  // namespace eng
