// SPDX-License-Identifier: Apache-2.0
// The files beside a tokenizer's main one: tokenizer_config.json, special_tokens_map.json, added_tokens.json and
// config.json, read as transformers 5 reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "added_tokens.hpp"
#include "json_reader.hpp"
#include "tokenizer_class.hpp"

namespace text_data {

// Tokens that the files of a tokenizer name.
inline constexpr const char* token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                              "pad_token", "cls_token", "mask_token"};

// A token that a file adds to the vocabulary, or marks as one that is found in the text as it is.
struct FileToken {
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalised = false, special = false;
  bool bare = false;  // only its text is given
  int64_t id = -1;    // as the file says; -1: it says none
  std::string place;  // FILE: PLACE
  AddedToken found() const { return {content, static_cast<int32_t>(id), single_word, lstrip, rstrip}; }
  // Everything that can change ids.
  std::string key() const {
    return content + "," + std::to_string(id) + (single_word ? "w" : "") + (lstrip ? "l" : "") + (rstrip ? "r" : "") +
           (normalised ? "n" : "") + (special ? "s" : "");
  }
  bool plain() const { return !single_word && !lstrip && !rstrip && !normalised; }
};

struct TokenizerFolder {
  std::string class_name;                                 // without "Fast"; "" if no file names a class
  std::string class_given, class_place;                   // the same with it; FILE: KEY
  std::map<std::string, std::optional<FileToken>> named;  // bos_token and others; empty: the file says null
  std::vector<std::string> more_names;                    // names of this model alone, in their order
  std::vector<FileToken> extra;                           // additional_special_tokens
  std::vector<FileToken> added;                           // with ids, in their order
  std::map<std::string, bool> flags;
  bool flag(const char* name, bool fallback) const {
    const auto found = flags.find(name);
    return found == flags.end() ? fallback : found->second;
  }
  // The text of a named token, or "".
  std::string text(const char* name) const {
    const auto found = named.find(name);
    return found == named.end() || !found->second ? "" : found->second->content;
  }
};

// `own` gives the added_tokens of a tokenizer.json in the folder, which count where tokenizer_config.json has no
// added_tokens_decoder. Throws Failure.
TokenizerFolder read_tokenizer_folder(const std::string& folder, const std::function<std::vector<FileToken>()>& own);
// {"content": ..., "lstrip": ...}
FileToken read_file_token(const JsonReader& reader, const json& entry, const std::string& place);

// Tokens beside a vocabulary, with the ids that the `tokenizers` library gives them: the id of the vocabulary if the
// text is in it, else the next one. A file that says another id is refused.
class TokenTable {
 public:
  using Find = std::function<int32_t(const std::string&)>;  // the id in the vocabulary, or -1
  TokenTable(Find find, std::size_t vocabulary) : find_(std::move(find)), vocabulary_(vocabulary) {}
  void add(const FileToken& token);
  // Adds what a folder's files have beyond what is there.
  void add(const TokenizerFolder& folder, Again again = Again::never);
  int32_t id(const std::string& content) const;  // -1: there is none
  // One for each text, as it was added last.
  const std::vector<FileToken>& tokens() const { return tokens_; }
  // True if no token may reach over a single space between two letters, or end beside it.
  bool cuttable() const;

 private:
  Find find_;
  std::size_t vocabulary_;
  int64_t largest_ = -1;
  std::vector<FileToken> tokens_;
  std::map<std::string, std::size_t> by_text_;  // to the place in tokens_
};

}  // namespace text_data
