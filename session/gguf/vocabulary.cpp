// SPDX-License-Identifier: Apache-2.0
#include "session/gguf/vocabulary.hpp"

#include <algorithm>
#include <unordered_set>

#include "core/base/error.hpp"
#include "session/file.hpp"
#include "session/huggingface/chat.hpp"
#include "session/huggingface/export_tokenizer.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t most_model_bytes = uint64_t{256} << 20;

// A file, or in a folder the one that the tokenizer takes: a model of sentencepiece before a tokenizer.json.
GgufVocabulary read_vocabulary(const std::string& name) {
  if (name == "bytes") return bytes_vocabulary();
  fs::path file = name;
  if (const fs::path ranks = fs::is_directory(file) ? ranks_of(file) : file; is_ranks(ranks))
    throw Error(Exit::usage,
                fmt::format("{}: a GGUF file is made of a tokenizer.json or a tokenizer.model of sentencepiece, not of "
                            "ranks",
                            ranks.string()),
                "give data.tokenizer the tokenizer.json of the same model");
  const auto sentencepiece = [](const fs::path& path) {
    return fs::is_regular_file(path) && read_text(path, most_model_bytes, Exit::data).starts_with('\n');
  };
  if (fs::is_directory(file))
    file = sentencepiece(file / "tokenizer.model") ? file / "tokenizer.model" : file / "tokenizer.json";
  if (!fs::is_regular_file(file) || file.filename() == "vocab.json")
    throw Error(
        Exit::usage,
        fmt::format("{}: a GGUF file is made of a tokenizer.json or a tokenizer.model, not of a vocab.json with "
                    "a merges.txt",
                    name),
        "load the folder in transformers and save_pretrained it, which writes a tokenizer.json");
  GgufVocabulary out = sentencepiece(file)
                           ? sentencepiece_vocabulary(read_text(file, most_model_bytes, Exit::data), file.string())
                           : json_vocabulary(file);
  add_tokens_beside(file.parent_path(), out);
  return out;
}

// The bytes that a token stands for.
std::string bytes_of(const GgufVocabulary& v, size_t id) {
  std::string text = v.tokens[id];
  if (v.types[id] == GgufToken::byte && text.size() == 6)
    return std::string(1, static_cast<char>(std::stoi(text.substr(3, 2), nullptr, 16)));
  if (v.types[id] != GgufToken::normal) return text;
  if (v.model == "gpt2") return bytes_of_characters(text).value_or(text);
  return with_spaces(text);
}

// Each id must mean in the file what it means to the run. Ids that other files add, the tokenizer knows alone.
void compare(const Tokenizer& tokenizer, const std::string& name, GgufVocabulary& v) {
  const auto size = static_cast<size_t>(tokenizer.info().vocabulary);
  if (v.tokens.size() > size)
    throw Error(Exit::data,
                fmt::format("{}: the file has {} tokens, and the tokenizer in use {}", name, v.tokens.size(), size));
  for (size_t id = 0; id < size; ++id) {
    const bool known = id < v.tokens.size() && v.types[id] != GgufToken::unused;
    if (known && (v.types[id] == GgufToken::control || v.types[id] == GgufToken::unknown)) continue;
    const std::string meant = tokenizer.decode(static_cast<int32_t>(id));
    if (!known && !meant.empty()) v.set(static_cast<int64_t>(id), meant, GgufToken::user_defined);
    if (known && bytes_of(v, id) != meant)
      throw Error(Exit::data,
                  fmt::format("{}: token {} is {} in the file, and {} to the tokenizer in use", name, id,
                              Json(bytes_of(v, id)).dump(-1, true), Json(meant).dump(-1, true)),
                  "export with the tokenizer that the run was trained with");
  }
}

// llama.cpp refuses a text that two ids have.
void fill_up(int64_t rows, GgufVocabulary& v) {
  std::unordered_set<std::string> texts;
  for (size_t id = 0; id < v.tokens.size(); ++id)
    if (!v.tokens[id].empty() && !texts.insert(v.tokens[id]).second)
      throw Error(Exit::usage,
                  fmt::format("two tokens are {}, which llama.cpp refuses; the second has the id {}",
                              Json(v.tokens[id]).dump(-1, true), id),
                  "a GGUF file of this tokenizer cannot be read");
  v.tokens.resize(std::max(v.tokens.size(), static_cast<size_t>(rows)));
  v.types.resize(v.tokens.size(), GgufToken::unused);
  for (size_t id = 0; id < v.tokens.size(); ++id)
    for (std::string name = fmt::format("[PAD{}]", id); v.tokens[id].empty(); name += '_')
      if (texts.insert(name).second) v.tokens[id] = name;
  if (!v.scores.empty()) v.scores.resize(v.tokens.size());
}

// The id that llama.cpp gets as the end of a text if the tokenizer has none: otherwise it would take an id of its own,
// which has another meaning here. An unused one is never generated, and a NUL hardly.
int64_t stand_in(const GgufVocabulary& v) {
  for (size_t id = v.tokens.size(); id-- > 0;)
    if (v.types[id] == GgufToken::unused) return static_cast<int64_t>(id);
  for (size_t id = 0; id < v.tokens.size(); ++id)
    if (v.types[id] != GgufToken::control && bytes_of(v, id) == std::string(1, '\0')) return static_cast<int64_t>(id);
  throw Error(Exit::usage, "the tokenizer has no token that ends a text, and llama.cpp needs one",
              "name one as eos_token in the tokenizer_config.json beside the tokenizer");
}

void write_ends(const GgufTokenizer& from, GgufVocabulary& v, GgufHeader& out) {
  const std::string key = "tokenizer.ggml.";
  const eng_tokenizer_info& info = from.tokenizer->info();
  int64_t eos = info.eos;
  if (eos < 0) {
    eos = stand_in(v);
    v.note(fmt::format("the tokenizer has no token that ends a text; llama.cpp gets id {} as one", eos));
  }
  out.number(key + "eos_token_id", static_cast<uint32_t>(eos));
  if (info.bos >= 0) out.number(key + "bos_token_id", static_cast<uint32_t>(info.bos));
  if (v.unknown >= 0) out.number(key + "unknown_token_id", static_cast<uint32_t>(v.unknown));
  if (v.padding >= 0) out.number(key + "padding_token_id", static_cast<uint32_t>(v.padding));
  std::vector<int32_t> ends = from.texts.empty() ? std::vector<int32_t>() : end_ids(from.texts);
  ends.insert(ends.begin(), info.eot);
  for (const int32_t id : ends)
    if (id >= 0 && id != eos && id < static_cast<int64_t>(v.tokens.size())) {
      out.number(key + "eot_token_id", static_cast<uint32_t>(id));
      break;
    }
  std::vector<int32_t> around = from.tokenizer->encode("", from.special);
  const bool bos = !around.empty() && around.front() == info.bos && info.bos >= 0;
  if (bos) around.erase(around.begin());
  const bool end = !around.empty() && around.front() == info.eos && info.eos >= 0;
  if (end) around.erase(around.begin());
  if (!around.empty())
    throw Error(Exit::usage,
                fmt::format("the tokenizer puts ids around a text other than bos and eos: {}", fmt::join(around, ", ")),
                "with data.special_tokens = false they are left out");
  out.flag(key + "add_bos_token", bos);
  out.flag(key + "add_eos_token", end);
}

}  // namespace

std::string with_spaces(std::string piece) {
  const std::string_view space = "\xe2\x96\x81";
  for (size_t at = 0; (at = piece.find(space, at)) != piece.npos; ++at) piece.replace(at, space.size(), " ");
  return piece;
}

void GgufVocabulary::set(int64_t id, std::string text, GgufToken type) {
  const auto at = static_cast<size_t>(id);
  if (at >= tokens.size()) {
    tokens.resize(at + 1);
    types.resize(at + 1, GgufToken::unused);
  }
  tokens[at] = std::move(text);
  types[at] = type;
}

void GgufVocabulary::note(std::string text) {
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(std::move(text));
}

GgufVocabulary bytes_vocabulary() {
  GgufVocabulary out;
  out.model = "gpt2", out.pre = "gpt-2";
  for (unsigned byte = 0; byte < 256; ++byte) out.set(byte, byte_character(byte), GgufToken::normal);
  return out;
}

std::vector<std::string> write_vocabulary(const GgufTokenizer& from, int64_t rows, GgufHeader& out) {
  const std::string key = "tokenizer.ggml.";
  if (!from.tokenizer) {
    out.text(key + "model", "none");
    return {"the run has no tokenizer, so the file has none: llama.cpp takes and gives ids alone"};
  }
  GgufVocabulary v = read_vocabulary(from.name);
  compare(*from.tokenizer, from.name, v);
  fill_up(rows, v);
  if (static_cast<int64_t>(v.tokens.size()) > rows)
    throw Error(Exit::usage, fmt::format("the tokenizer has {} tokens, and the model {} rows", v.tokens.size(), rows));
  std::vector<int32_t> types;
  for (const GgufToken type : v.types) types.push_back(static_cast<int32_t>(type));
  out.text(key + "model", v.model);
  out.text(key + "pre", v.pre.empty() ? "default" : v.pre);
  out.texts(key + "tokens", v.tokens);
  out.integers(key + "token_type", types);
  if (!v.scores.empty()) out.reals(key + "scores", v.scores);
  if (v.model == "gpt2") out.texts(key + "merges", v.merges);
  if (v.space_prefix) out.flag(key + "add_space_prefix", *v.space_prefix);
  if (v.one_space) out.flag(key + "remove_extra_whitespaces", *v.one_space);
  if (!v.charsmap.empty()) out.bytes(key + "precompiled_charsmap", v.charsmap);
  write_ends(from, v, out);
  if (!from.texts.empty())
    if (const std::string text = chat_template(from.texts); !text.empty()) out.text("tokenizer.chat_template", text);
  return v.notes;
}

}  // namespace eng
