// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_class.hpp"

#include <iterator>
#include <utility>

#include "tokenizer_folder.hpp"

namespace text_data {
namespace {

constexpr const char* end_text = "<|endoftext|>";
constexpr const char* qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* class_tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

// The first has no name: a folder of which no file class_tokens a class is read as GPT-2's, with the tokens that it
// class_tokens.
constexpr TokenizerClass classes[] = {
    {"", nullptr, nullptr, false, Again::never, false, {}},
    {"GPT2Tokenizer", nullptr, nullptr, false, Again::never, false, {end_text, end_text, end_text}},
    {"CodeGenTokenizer", nullptr, nullptr, false, Again::never, false, {end_text, end_text, end_text}},
    {"GPTNeoXTokenizer",
     "NFC",
     nullptr,
     false,
     Again::never,
     false,
     {end_text, end_text, end_text, nullptr, "<|padding|>"}},
    {"Qwen2Tokenizer", "NFC", qwen2, false, Again::plain, false, {nullptr, end_text, end_text, nullptr, end_text}},
    {"CohereTokenizer",
     "NFC",
     nullptr,
     true,
     Again::as_named,
     false,
     {"<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<SEP>", "<PAD>", "<CLS>", "<MASK_TOKEN>"}},
    {"RobertaTokenizer",
     nullptr,
     nullptr,
     false,
     Again::never,
     true,
     {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}},
    {"BartTokenizer",
     nullptr,
     nullptr,
     false,
     Again::never,
     true,
     {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}},
};

// Models whose files may name no class, and those whose files name a wrong one.
struct ModelClass {
  const char *model_type, *name;
  bool always;
};
constexpr ModelClass models[] = {
    {"gpt2", "GPT2Tokenizer", false},
    {"gpt_neo", "GPT2Tokenizer", false},
    {"gptj", "GPT2Tokenizer", false},
    {"opt", "GPT2Tokenizer", false},
    {"phi", "GPT2Tokenizer", false},
    {"codegen", "GPT2Tokenizer", false},
    {"starcoder2", "GPT2Tokenizer", false},
    {"dbrx", "GPT2Tokenizer", false},
    {"gpt_neox", "GPTNeoXTokenizer", false},
    {"mamba", "GPTNeoXTokenizer", false},
    {"mamba2", "GPTNeoXTokenizer", false},
    {"rwkv", "GPTNeoXTokenizer", false},
    {"falcon_mamba", "GPTNeoXTokenizer", false},
    {"mpt", "GPTNeoXTokenizer", false},
    {"olmo", "GPTNeoXTokenizer", false},
    {"olmoe", "GPTNeoXTokenizer", false},
    {"roberta", "RobertaTokenizer", false},
    {"bart", "RobertaTokenizer", false},
    {"cohere", "CohereTokenizer", false},
    {"cohere2", "CohereTokenizer", false},
    {"qwen2", "Qwen2Tokenizer", true},
    {"qwen2_moe", "Qwen2Tokenizer", false},
    {"qwen3", "Qwen2Tokenizer", false},
    {"qwen3_moe", "Qwen2Tokenizer", false},
    {"qwen3_next", "Qwen2Tokenizer", false},
};

json special_piece(const std::string& token) {
  return {{"SpecialToken", {{"id", token}}}};
}

}  // namespace

const TokenizerClass* find_tokenizer_class(std::string_view name) {
  for (const TokenizerClass& c : classes)
    if (name == c.name) return &c;
  return nullptr;
}

std::string known_tokenizer_classes() {
  std::string out;
  for (const TokenizerClass& c : classes)
    if (*c.name) out += (out.empty() ? "" : ", ") + std::string(c.name);
  return out;
}

std::string tokenizer_class_of_model(const std::string& model_type, const std::string& named) {
  for (const ModelClass& m : models)
    if (model_type == m.model_type && (m.always || named.empty())) return m.name;
  return "";
}

json assemble_tokenizer(json vocabulary, json merges, const TokenizerClass& of, TokenizerFolder& folder) {
  for (std::size_t i = 0; i < std::size(class_tokens); ++i) {
    if (!of.named[i] || folder.named.count(class_tokens[i]) != 0) continue;
    FileToken token;
    token.content = of.named[i];
    token.special = token.bare = true;
    token.place = folder.class_place;
    for (const FileToken& added : folder.added)
      if (added.content == token.content) token = added;
    folder.named[class_tokens[i]] = token;
  }
  json steps = json::array();
  if (of.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (of.pattern) steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", of.pattern}}}, {"behavior", "Isolated"}});
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", folder.flag("add_prefix_space", false)},
                   {"use_regex", of.pattern == nullptr}});
  json all{{"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", std::move(merges)}}},
           {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}}};
  if (of.normalizer) all["normalizer"] = {{"type", of.normalizer}};
  const bool cls = of.around || folder.flag("add_bos_token", false),
             sep = of.around || folder.flag("add_eos_token", false);
  const std::string before = folder.text(of.around ? "cls_token" : "bos_token");
  const std::string after = folder.text(of.around ? "sep_token" : "eos_token");
  json around = json::array();
  if (cls && !before.empty()) around.push_back(special_piece(before));
  around.push_back({{"Sequence", {{"id", "A"}}}});
  if (sep && !after.empty()) around.push_back(special_piece(after));
  all["post_processor"] = {{"type", "TemplateProcessing"}, {"single", around}, {"special_tokens", json::object()}};
  return all;
}

}  // namespace text_data
