// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a tokenizer.json.
#include <unordered_map>

#include "core/base/error.hpp"
#include "session/file.hpp"
#include "session/gguf/vocabulary.hpp"
#include "session/huggingface/export_tokenizer.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t most_bytes = uint64_t{256} << 20;
constexpr int64_t most_ids = int64_t{1} << 24;

int64_t id_of(const Json& id, const std::string& what) {
  if (!id.is_unsigned() || id.whole() >= uint64_t(most_ids))
    throw JsonError(fmt::format("{} has an id that is no whole number below {}", what, most_ids));
  return static_cast<int64_t>(id.whole());
}

// A normalizer changes texts before they are split. NFC changes few of them; llama.cpp knows no normalizer here.
void check_normalizer(const Json& normalizer, const std::string& where, GgufVocabulary& out) {
  if (normalizer.is_null()) return;
  const std::string type = normalizer.text_at("type");
  const Json& list = normalizer.get("normalizers");
  if (type == "Sequence" && list.is_array()) {
    for (const Json& one : list.list()) check_normalizer(one, where, out);
  } else if (type == "NFC") {
    out.note("llama.cpp does not normalise texts to NFC, as the tokenizer does");
  } else {
    throw Error(Exit::usage, fmt::format("{}: llama.cpp does not have the normalizer {}", where, type),
                "a GGUF file of this tokenizer would give other ids");
  }
}

void add_token(const Json& token, int64_t id, GgufVocabulary& out) {
  const std::string content = token.text_at("content");
  if (content.empty()) return;
  const Json& special = token.get("special");
  const bool control = special.is_boolean() && special.boolean();
  for (const char* key : {"lstrip", "rstrip", "single_word"})
    if (const Json& given = token.get(key); given.is_boolean() && given.boolean())
      out.note(fmt::format("llama.cpp finds `{}` without the rule {} of the tokenizer", content, key));
  out.set(id, content, control ? GgufToken::control : GgufToken::user_defined);
}

void read_merges(const Json& merges, GgufVocabulary& out) {
  for (const Json& merge : merges.list())
    if (merge.is_string())
      out.merges.push_back(merge.text());
    else
      out.merges.push_back(merge[0].text() + " " + merge[1].text());
}

void read_file(const Json& all, const std::string& where, GgufVocabulary& out) {
  const Json& model = all.at("model");
  const Json& words = model.at("vocab");
  const std::string type = model.text_at("type");
  if (!words.is_object() || (type != "BPE" && !type.empty()))
    throw Error(Exit::usage,
                fmt::format("{}: llama.cpp reads a tokenizer of type {} only from its tokenizer.model", where,
                            words.is_array() ? "Unigram" : type),
                "give data.tokenizer the tokenizer.model of the same model");
  const Json& ignore = model.get("ignore_merges");
  check_normalizer(all.get("normalizer"), where, out);
  out.model = "gpt2";
  out.pre = pre_tokenizer_name(all.get("pre_tokenizer"), ignore.is_boolean() && ignore.boolean(), where);
  for (const auto& [text, id] : words.members()) out.set(id_of(id, text), text, GgufToken::normal);
  read_merges(model.at("merges"), out);
  if (const Json& unknown = model.get("unk_token"); unknown.is_string() && words.contains(unknown.text()))
    out.unknown = id_of(words.at(unknown.text()), unknown.text());
  if (const Json& added = all.get("added_tokens"); added.is_array())
    for (const Json& token : added.list()) add_token(token, id_of(token.at("id"), token.text_at("content")), out);
}

}  // namespace

GgufVocabulary json_vocabulary(const fs::path& file) {
  GgufVocabulary out;
  try {
    read_file(Json::parse(read_text(file, most_bytes, Exit::data)), file.string(), out);
  } catch (const JsonError& error) {
    throw Error(Exit::data, fmt::format("{}: {}", file.string(), error.what()));
  }
  return out;
}

void add_tokens_beside(const fs::path& folder, GgufVocabulary& out) {
  const fs::path file = folder / "tokenizer_config.json";
  if (!fs::is_regular_file(file)) return;
  try {
    const Json config = Json::parse(read_text(file, most_bytes, Exit::data));
    const Json& added = config.get("added_tokens_decoder");
    if (!added.is_object()) return;
    for (const auto& [id, token] : added.members())
      if (!id.empty() && id.size() < 9 && id.find_first_not_of("0123456789") == id.npos)
        add_token(token, std::stoll(id), out);
  } catch (const JsonError& error) {
    throw Error(Exit::data, fmt::format("{}: {}", file.string(), error.what()));
  }
}

std::optional<std::string> bytes_of_characters(const std::string& token) {
  static const std::unordered_map<std::string, char> bytes = [] {
    std::unordered_map<std::string, char> all;
    for (unsigned byte = 0; byte < 256; ++byte) all[byte_character(byte)] = static_cast<char>(byte);
    return all;
  }();
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const size_t length = static_cast<unsigned char>(token[at]) < 0x80 ? 1 : 2;
    const auto found = bytes.find(token.substr(at, length));
    if (found == bytes.end()) return std::nullopt;
    out += found->second;
    at += length;
  }
  return out;
}

}  // namespace eng
