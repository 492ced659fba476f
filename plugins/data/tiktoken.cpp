// SPDX-License-Identifier: Apache-2.0
// Files of tiktoken: on each line a token in base64 and its rank, which is its id. The pattern and the special tokens
// are not in the file: tokenizer_config.json beside it says them, or the file is that of a published encoding.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base64.hpp"
#include "json_reader.hpp"
#include "ranks.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

// Patterns, as tiktoken 0.14 (openai_public.py), llama-models, Qwen-1 and mistral-common have them.
constexpr const char *
    gpt2_pattern = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
   *cl100k_pattern =
       R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
   *o200k_pattern =
       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
   *llama3_pattern =
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
   *qwen_pattern =
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
   *tekken_pattern =
       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Special {
  const char* text;
  int64_t id;
};

// A published encoding. Its file has so many tokens.
struct Encoding {
  const char* name;
  std::size_t tokens;
  const char* pattern;
  std::vector<Special> special;
  bool nfc = false, bos = false;
};

const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> all = {
      {"r50k_base", 50256, gpt2_pattern, {{"<|endoftext|>", 50256}}},
      {"p50k_base", 50280, gpt2_pattern, {{"<|endoftext|>", 50256}}},
      {"cl100k_base",
       100256,
       cl100k_pattern,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base", 199998, o200k_pattern, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"llama3",
       128000,
       llama3_pattern,
       {{"<|begin_of_text|>", 128000},
        {"<|end_of_text|>", 128001},
        {"<|start_header_id|>", 128006},
        {"<|end_header_id|>", 128007},
        {"<|eot_id|>", 128009}},
       false,
       true},
      {"qwen",
       151643,
       qwen_pattern,
       {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}},
       true}};
  return all;
}

// Special tokens that are numbered, and mean nothing yet.
void add_numbered(const std::string& name, std::vector<FileToken>& out) {
  const auto add = [&](const std::string& front, int64_t number, const char* back, int64_t id) {
    FileToken token;
    token.content = front + std::to_string(number) + back;
    token.special = true, token.id = id, token.place = name;
    out.push_back(std::move(token));
  };
  if (name == "qwen")
    for (int64_t k = 0; k < 205; ++k) add("<|extra_", k, "|>", 151646 + k);
  for (int64_t k = 0; name == "llama3" && k < 251; ++k)
    add("<|reserved_special_token_", k, "|>", 128000 + k + (k < 4 ? 2 : k == 4 ? 4 : 5));
}

class TiktokenReader {
 public:
  explicit TiktokenReader(const std::string& file) : path_(file), folder_(fs::path(file).parent_path().string()) {}

  HuggingFaceFile read() {
    const std::string content = read_whole(path_);
    read_lines(content);
    const TokenizerFolder beside = read_tokenizer_folder(folder_, [] { return std::vector<FileToken>(); });
    const std::string own = own_pattern();
    const Encoding* const known = find_encoding();
    if (own.empty() && !known) {
      std::string names;
      for (const Encoding& one : encodings())
        names += std::string(names.empty() ? "" : ", ") + one.name + " (" + std::to_string(one.tokens) + ")";
      throw Failure(
          ENG_UNSUPPORTED,
          path_ + ": is a vocabulary of tiktoken with " + std::to_string(out_.tokens.size()) +
              " tokens, and its pattern is not in it. Give it as pat_str in a tokenizer_config.json beside the "
              "file, or use the tokenizer.json of the same model. Known by their tokens are " +
              names);
    }
    out_.pattern = own.empty() ? known->pattern : own;
    if (known) out_.nfc = known->nfc;
    take_special(beside, known);
    return make_ranked(std::move(out_), path_, content, beside, beside.flag("add_bos_token", known && known->bos));
  }

 private:
  [[noreturn]] void refuse(std::size_t line, const std::string& what) const {
    throw Failure(ENG_INVALID, path_ + ": line " + std::to_string(line) + ": " + what);
  }

  void read_lines(std::string_view content) {
    std::size_t number = 0;
    std::vector<std::size_t> lines;  // by rank: the line that has it
    for (std::size_t begin = 0; begin < content.size();) {
      const std::size_t end = std::min(content.find('\n', begin), content.size());
      std::string_view line = content.substr(begin, end - begin);
      begin = end + 1;
      ++number;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) read_line(line, number, lines);
    }
    if (out_.tokens.empty()) throw Failure(ENG_INVALID, path_ + ": is empty");
  }

  void read_line(std::string_view line, std::size_t number, std::vector<std::size_t>& lines) {
    const std::size_t space = line.find(' ');
    if (space == line.npos) refuse(number, "is not a token in base64, a space and a rank");
    RankedToken token{"", -1, path_ + ": line " + std::to_string(number)};
    if (!base64_decode(line.substr(0, space), token.bytes) || token.bytes.empty())
      refuse(number, "the token is not base64 of at least one byte");
    const std::string_view digits = line.substr(space + 1);
    const auto [rest, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), token.id);
    if (wrong != std::errc() || rest != digits.data() + digits.size() || token.id < 0)
      refuse(number, "the rank is not a whole number");
    if (token.id >= JsonReader::most_ids)
      refuse(number, "the rank is out of range: ids are from 0 to " + std::to_string(JsonReader::most_ids - 1));
    const auto at = static_cast<std::size_t>(token.id);
    if (at >= lines.size()) lines.resize(at + 1);
    if (lines[at])
      refuse(number, "the rank " + std::to_string(at) + " is that of line " + std::to_string(lines[at]) + " too");
    lines[at] = number;
    out_.tokens.push_back(std::move(token));
  }

  // That of tokenizer_config.json, or "".
  std::string own_pattern() const {
    const std::string name = (fs::path(folder_) / "tokenizer_config.json").string(), text = read_if_there(name);
    if (text.empty()) return "";
    const json config = parse_json(text, name);
    const auto found = config.is_object() ? config.find("pat_str") : config.end();
    if (!config.is_object() || found == config.end() || found->is_null()) return "";
    if (!found->is_string()) throw Failure(ENG_INVALID, name + ": pat_str is not a text");
    return found->get<std::string>();
  }

  // A file that has the name of an encoding, and not all of its tokens, is damaged.
  const Encoding* find_encoding() const {
    const std::string stem = fs::path(path_).stem().string();
    for (const Encoding& one : encodings()) {
      if (one.tokens == out_.tokens.size()) return &one;
      if (stem == one.name && fs::path(path_).extension() == ".tiktoken" && own_pattern().empty())
        throw Failure(ENG_INVALID, path_ + ": has " + std::to_string(out_.tokens.size()) + " tokens, and " + one.name +
                                       " has " + std::to_string(one.tokens) + ": it is damaged, or has another name");
    }
    return nullptr;
  }

  void take_special(const TokenizerFolder& beside, const Encoding* known) {
    out_.special = beside.added;
    if (!out_.special.empty() || !known) return;
    for (const Special& one : known->special) {
      FileToken token;
      token.content = one.text;
      token.special = true, token.id = one.id, token.place = known->name;
      out_.special.push_back(std::move(token));
    }
    add_numbered(known->name, out_.special);
  }

  std::string path_, folder_;
  RankedFile out_;
};

}  // namespace

bool is_known_pattern(std::string_view pattern) {
  for (const char* known : {gpt2_pattern, cl100k_pattern, o200k_pattern, llama3_pattern, qwen_pattern, tekken_pattern})
    if (pattern == known) return true;
  return false;
}

bool is_tiktoken(std::string_view text) {
  const std::size_t space = text.find(' '), end = text.find('\n');
  if (space == 0 || space == std::string_view::npos || space > 400 || end == std::string_view::npos || end < space + 2)
    return false;
  const auto all = [](std::string_view part, std::string_view of) {
    return part.find_first_not_of(of) == std::string_view::npos;
  };
  return all(text.substr(0, space), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") &&
         all(text.substr(space + 1, end - space - 1), "0123456789\r");
}

HuggingFaceFile read_tiktoken(const std::string& file) {
  return TiktokenReader(file).read();
}

}  // namespace text_data
