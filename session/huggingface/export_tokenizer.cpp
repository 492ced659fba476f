// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/export_tokenizer.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "session/file.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

constexpr const char* tokenizer_parts[] = {"tokenizer.json",    "tokenizer_config.json",
                                           "tokenizer.model",   "special_tokens_map.json",
                                           "added_tokens.json", "vocab.json",
                                           "merges.txt",        "chat_template.jinja",
                                           "tekken.json"};

// Byte-level BPE without merges: ids 0 to 255 are the bytes.
Json bytes_as_bpe() {
  Json vocabulary = Json::ordered();
  for (unsigned byte = 0; byte < 256; ++byte) vocabulary[byte_character(byte)] = byte;
  const Json level = Json::ordered(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}});
  return Json::ordered({{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", Json::array()},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", level},
                        {"post_processor", nullptr},
                        {"decoder", level},
                        {"model", Json::ordered({{"type", "BPE"},
                                                 {"dropout", nullptr},
                                                 {"unk_token", nullptr},
                                                 {"continuing_subword_prefix", nullptr},
                                                 {"end_of_word_suffix", nullptr},
                                                 {"fuse_unk", false},
                                                 {"byte_fallback", false},
                                                 {"ignore_merges", false},
                                                 {"vocab", vocabulary},
                                                 {"merges", Json::array()}})}});
}

// The files of which one is the tokenizer, with its usual name; the others of tokenizer_parts go with any of them.
constexpr const char* main_parts[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "tekken.json"};

// Classes that take a tokenizer.json as it is. Others build its steps themselves and take only its vocabulary and
// merges, so that a file with other steps, such as Digits before ByteLevel, would give other ids.
constexpr const char* plain_classes[] = {"PreTrainedTokenizerFast", "TokenizersBackend"};

// Classes that vocab.json and merges.txt have by the model_type of the folder they come from, if no file names one; of
// some models always.
struct ModelClass {
  const char *model_type, *name;
  bool always = false;
};
constexpr ModelClass model_classes[] = {{"qwen2", "Qwen2Tokenizer", true}, {"qwen2_moe", "Qwen2Tokenizer"},
                                        {"qwen3", "Qwen2Tokenizer"},       {"qwen3_moe", "Qwen2Tokenizer"},
                                        {"gpt_neox", "GPTNeoXTokenizer"},  {"mamba", "GPTNeoXTokenizer"},
                                        {"mamba2", "GPTNeoXTokenizer"},    {"roberta", "RobertaTokenizer"}};

bool is_one_of(const auto& list, std::string_view name) {
  return std::any_of(std::begin(list), std::end(list), [&](const char* one) { return name == one; });
}

std::string text_of(const Json& object, const char* key) {
  return object.contains(key) && object.at(key).is_string() ? object.at(key).text() : "";
}

Json config_object(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  Json out = Json::parse_or_null(std::string(std::istreambuf_iterator<char>(in), {}), true);
  return out.is_object() ? out : Json::ordered();
}

// The class that gives the ids with which the run was trained; "" if the one that is there does.
std::string needed_class(const fs::path& to, const fs::path& from, const std::string& given) {
  if (fs::exists(to / "tokenizer.json")) return is_one_of(plain_classes, given) ? "" : plain_classes[0];
  const Json source = config_object(from / "config.json");
  const std::string type = text_of(source, "model_type");
  const auto of_model = std::find_if(std::begin(model_classes), std::end(model_classes),
                                     [&](const ModelClass& m) { return type == m.model_type; });
  const bool known = of_model != std::end(model_classes), model = fs::exists(to / "tokenizer.model");
  if (!model && known && of_model->always) return given == of_model->name ? "" : of_model->name;
  if (!given.empty()) return "";
  // SentencePieceBackend, since transformers 5, gives the library's ids; LlamaTokenizer treats spaces differently.
  if (model) return "SentencePieceBackend";
  if (const std::string name = text_of(source, "tokenizer_class"); !name.empty()) return name;
  if (known) return of_model->name;
  return "GPT2Tokenizer";
}

}  // namespace

bool is_ranks(const fs::path& file) {
  if (file.extension() == ".tiktoken") return true;
  if (file.filename() != "tokenizer.model" && file.filename() != "tekken.json") return false;
  std::ifstream in(file, std::ios::binary);
  return in.good() && in.peek() != '\n';
}

fs::path ranks_of(const fs::path& folder) {
  for (const char* better : {"tokenizer.json", "vocab.json"})
    if (fs::is_regular_file(folder / better)) return {};
  for (const char* file : {"tokenizer.model", "tekken.json"})
    if (fs::is_regular_file(folder / file)) return is_ranks(folder / file) ? folder / file : fs::path();
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".tiktoken") return entry.path();
  return {};
}

std::string byte_character(unsigned byte) {
  unsigned other = 0x100, c = 0;
  for (unsigned b = 0; b <= byte; ++b) {
    const bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    c = plain ? b : other++;
  }
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
}

bool has_tokenizer(const fs::path& directory) {
  const auto there = [&](const char* file) { return fs::is_regular_file(directory / file); };
  return there("tokenizer.json") || there("tokenizer.model") || (there("vocab.json") && there("merges.txt")) ||
         !ranks_of(directory).empty();
}

void complete_tokenizer_config(const TokenizerSource& tokenizer, const fs::path& from, const fs::path& to,
                               std::vector<std::string>& out) {
  const fs::path config_file = to / "tokenizer_config.json";
  Json config = config_object(config_file);
  const std::string needed = needed_class(to, from, text_of(config, "tokenizer_class"));
  if (needed.empty()) return;
  const bool made = !fs::exists(config_file), named = config.contains("tokenizer_class");
  config["tokenizer_class"] = needed;
  const Json given = config;
  for (const auto& [key, value] : given.members())  // an object counts as a token only if it is marked as one
    if (key.ends_with("_token") && !value.contains("__type") && value.contains("content"))
      config[key] = value.at("content");
  if (made) {
    config["clean_up_tokenization_spaces"] = false;
    if (!tokenizer.bos_text.empty()) config["bos_token"] = tokenizer.bos_text;
    if (!tokenizer.eos_text.empty()) config["eos_token"] = tokenizer.eos_text;
    out.emplace_back("tokenizer_config.json");
  }
  if (needed == "GPT2Tokenizer" && !named) {  // it would add <|endoftext|> for tokens that no file names
    const Json special = config_object(to / "special_tokens_map.json");
    for (const char* key : {"bos_token", "eos_token", "unk_token"})
      if (!config.contains(key) && !special.contains(key)) config[key] = nullptr;
  }
  fs::remove(config_file);
  write_text(config_file, config.dump(2) + "\n");
}

std::vector<std::string> export_tokenizer(const TokenizerSource& tokenizer, const fs::path& to) {
  std::vector<std::string> out;
  fs::path from;
  if (tokenizer.name.empty()) return out;
  if (tokenizer.name == "bytes") {
    write_text(to / "tokenizer.json", bytes_as_bpe().dump() + "\n");
    out.emplace_back("tokenizer.json");
  } else {
    const fs::path path = tokenizer.name;
    const fs::path folder = from = fs::is_directory(path) ? path : path.parent_path();
    // A folder may hold several tokenizers: of a file that is named, only that one.
    const bool parts = path.filename() == "vocab.json";
    const auto other = [&](std::string_view file) {
      if (folder == path || !is_one_of(main_parts, file)) return false;
      return parts ? file.starts_with("tokenizer.") : file != path.filename();
    };
    for (const char* file : tokenizer_parts) {
      if (!fs::is_regular_file(folder / file) || fs::exists(to / file) || other(file)) continue;
      fs::copy_file(folder / file, to / file);
      out.emplace_back(file);
    }
    // A file of ranks keeps its name. No class of transformers is known to give its ids.
    if (const fs::path ranks = folder == path ? ranks_of(folder) : path; is_ranks(ranks)) {
      if (!fs::exists(to / ranks.filename())) {
        fs::copy_file(ranks, to / ranks.filename());
        out.push_back(ranks.filename().string());
      }
      return out;
    }
    // A file with another name is exported under the usual name.
    const std::string usual = path.extension() == ".json" ? "tokenizer.json" : "tokenizer.model";
    if (folder != path && path.filename() != "vocab.json" && path.filename() != usual) {
      fs::copy_file(path, to / usual, fs::copy_options::overwrite_existing);
      if (std::find(out.begin(), out.end(), usual) == out.end()) out.push_back(usual);
    }
  }
  complete_tokenizer_config(tokenizer, from, to, out);
  return out;
}

}  // namespace eng
