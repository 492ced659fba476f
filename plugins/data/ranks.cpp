// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>

#include "fancy_regex.hpp"
#include "hash.hpp"
#include "json_text.hpp"

namespace text_data {
namespace {

using Ids = std::unordered_map<std::string_view, int32_t>;

// Every pair of tokens that make a third one.
std::vector<Bpe::Merge> merges_of(const std::vector<RankedToken>& tokens, const Ids& ids) {
  std::vector<Bpe::Merge> out;
  for (const RankedToken& token : tokens)
    for (std::size_t cut = 1; cut < token.bytes.size(); ++cut) {
      const std::string_view all = token.bytes;
      const auto left = ids.find(all.substr(0, cut)), right = ids.find(all.substr(cut));
      if (left != ids.end() && right != ids.end()) out.push_back({left->second, right->second, token.id});
    }
  return out;
}

Ids ids_of(const std::vector<RankedToken>& tokens, const std::string& path) {
  Ids out;
  out.reserve(tokens.size());
  for (const RankedToken& token : tokens)
    if (!out.emplace(token.bytes, token.id).second)
      throw Failure(ENG_INVALID, token.place + ": has the bytes of another token");
  for (unsigned byte = 0; byte < 256; ++byte)
    if (const std::string one(1, static_cast<char>(byte)); !out.count(one))
      throw Failure(ENG_INVALID,
                    path + ": no token is the byte " + std::to_string(byte) + " alone, so a text with it has no ids");
  return out;
}

// Tokens by their ids; a number that is between others and has no token means nothing.
void place_pieces(const RankedFile& file, std::vector<std::string>& pieces) {
  std::vector<bool> taken;
  const auto add = [&](int64_t id, const std::string& text, const std::string& place) {
    if (id < 0 || id >= JsonReader::most_ids)
      throw Failure(ENG_INVALID, place + ": the id " + std::to_string(id) + " is out of range: ids are from 0 to " +
                                     std::to_string(JsonReader::most_ids - 1));
    const auto at = static_cast<std::size_t>(id);
    if (at >= pieces.size()) pieces.resize(at + 1), taken.resize(at + 1);
    if (taken[at])
      throw Failure(ENG_INVALID, place + ": the id " + std::to_string(id) + " is that of another token too");
    taken[at] = true;
    pieces[at] = text;
  };
  for (const RankedToken& token : file.tokens) add(token.id, token.bytes, token.place);
  for (const FileToken& token : file.special) add(token.id, token.content, token.place);
}

int32_t find_special(const RankedFile& file, const std::string& text) {
  const auto found = std::find_if(file.special.begin(), file.special.end(),
                                  [&](const FileToken& token) { return token.content == text; });
  return found == file.special.end() || text.empty() ? -1 : static_cast<int32_t>(found->id);
}

void find_ends(const RankedFile& file, const TokenizerFolder& folder, Tokenizer::Info& info) {
  const auto first_of = [&](const char* key, std::initializer_list<const char*> names) {
    int32_t id = find_special(file, folder.text(key));
    for (const char* name : names)
      if (id < 0) id = find_special(file, name);
    return id;
  };
  info.bos = first_of("bos_token", {"<s>", "<|begin_of_text|>", "<|startoftext|>"});
  info.eos = first_of("eos_token", {"<|end_of_text|>", "<|endoftext|>", "</s>"});
  info.eot = info.eos;
}

}  // namespace

HuggingFaceFile make_ranked(RankedFile file, const std::string& path, std::string_view content,
                            const TokenizerFolder& folder, bool bos) {
  HuggingFaceFile out;
  const Ids ids = ids_of(file.tokens, path);
  place_pieces(file, out.pieces);
  for (const auto& [bytes, id] : ids) {
    if (bytes.size() == 1) out.bpe.bytes[static_cast<unsigned char>(bytes[0])] = id;
    out.bpe.whole.emplace(bytes, id);
  }
  out.bpe.set_merges(merges_of(file.tokens, ids), Bpe::Order::token);
  if (file.nfc) {
    Normaliser::Step step;
    step.form = Normaliser::Form::nfc;
    out.normaliser.add(std::move(step));
  }
  Splitter::Step split;
  split.pattern = std::make_shared<Pattern>(translate_fancy_regex(file.pattern, path), path);
  if (split.pattern->empty())
    throw Failure(ENG_UNSUPPORTED, path + ": the pattern may match nothing, which is not supported");
  split.behaviour = Splitter::Behaviour::removed;  // as tiktoken drops what the pattern does not match
  split.invert = true;
  out.splitter.add(std::move(split));
  find_ends(file, folder, out.info);
  if (bos && out.info.bos >= 0) out.prefix.push_back(out.info.bos);
  if (folder.flag("add_eos_token", false) && out.info.eos >= 0) out.suffix.push_back(out.info.eos);
  out.info.vocabulary = static_cast<int64_t>(out.pieces.size());
  out.cuttable = is_known_pattern(file.pattern) &&
                 std::all_of(file.special.begin(), file.special.end(), [](const FileToken& token) {
                   const std::string& text = token.content;
                   return text.find(' ') == text.npos && text.front() == '<' && text.back() == '>';
                 });
  Hash hash;
  hash.add_field("ranks");
  hash.add_field(content);
  hash.add_field(file.pattern);
  for (const FileToken& token : file.special) hash.add_field(token.key());
  for (const auto* list : {&out.prefix, &out.suffix})
    for (const int32_t id : *list) hash.add_field(std::to_string(id));
  hash.add_field(std::to_string(out.info.bos) + "," + std::to_string(out.info.eos));
  out.info.hash = hash.text();
  out.added = std::move(file.special);
  return out;
}

}  // namespace text_data
