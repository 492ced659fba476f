// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a tokenizer.model, by the sentencepiece library.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <unordered_map>

#include "failure.hpp"
#include "hash.hpp"
#include "sentencepiece_check.hpp"
#include "sentencepiece_library.hpp"
#include "tokenizer.hpp"
#include "tokenizer_folder.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

// The tokens that a tokenizer.json beside the model adds to it.
std::vector<FileToken> tokens_beside(const fs::path& folder) {
  const JsonReader reader((folder / "tokenizer.json").string());
  const std::string text = read_if_there(reader.file());
  std::vector<FileToken> out;
  if (text.empty()) return out;
  const json all = parse_json(text, reader.file());
  const auto list = all.is_object() ? all.find("added_tokens") : all.end();
  if (!all.is_object() || list == all.end() || !list->is_array()) return out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = "added_tokens[" + std::to_string(i) + "]";
    out.push_back(read_file_token(reader, (*list)[i], place));
    out.back().id = reader.id_of((*list)[i].value("id", json()), place + ".id");
  }
  return out;
}

// A model that puts no space before a text: the same one, with a second normalizer_spec, whose add_dummy_prefix counts.
std::string without_prefix(const std::string& model) {
  return model + std::string("\x1a\x02\x18\x00", 4);
}

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(const std::string& file) {
    const std::string model = read_whole(file);
    check_sentencepiece(model, file);
    model_ = open(model, file);
    const int size = library_.pieces(model_.get());
    if (size < 1) throw Failure(ENG_INVALID, file + ": the model has no pieces");
    std::unordered_map<std::string, int32_t> pieces;
    for (int id = 0; id < size; ++id) {
      std::size_t bytes = 0;
      const char* const begin = library_.piece(model_.get(), id, &bytes);
      pieces.emplace(std::string(begin, bytes), id);
      pieces_.push_back(bytes_of(id));
    }
    const fs::path beside = fs::path(file).parent_path();
    const TokenizerFolder folder = read_tokenizer_folder(beside.string(), [&] { return tokens_beside(beside); });
    TokenTable table(
        [&](const std::string& token) {
          const auto found = pieces.find(token);
          return found == pieces.end() ? -1 : found->second;
        },
        pieces_.size());
    table.add(folder);
    add(table);
    // Behind a token, where the text goes on, LlamaTokenizer puts a space before it only if `legacy` is true, and none
    // before a space. Others always put one.
    const bool llama = folder.class_name == "LlamaTokenizer";
    prefix_inside_ = folder.flag("legacy", !llama);
    if ((llama || !prefix_inside_) && !tokens_.empty()) inner_ = open(without_prefix(model), file);
    const auto named = [&](const char* name, int32_t otherwise) {
      const std::string text = folder.text(name);
      const int32_t id = text.empty() ? -1 : table.id(text);
      return id < 0 ? otherwise : id;
    };
    info_.vocabulary = static_cast<int64_t>(pieces_.size());
    info_.extended = info_.vocabulary > size;
    info_.bos = named("bos_token", library_.bos(model_.get()));
    info_.eos = named("eos_token", library_.eos(model_.get()));
    info_.eot = info_.eos;
    const bool bos = folder.flag("add_bos_token", info_.bos >= 0), eos = folder.flag("add_eos_token", false);
    if (bos && info_.bos >= 0) prefix_.push_back(info_.bos);
    if (eos && info_.eos >= 0) suffix_.push_back(info_.eos);
    Hash hash;
    hash.add_field(model);
    hash.add_field((bos ? "bos" : "") + std::string(eos ? "eos" : ""));
    for (const FileToken& token : table.tokens()) hash.add_field(token.key());
    if (inner_) hash.add_field(prefix_inside_ ? "prefix inside" : "no prefix inside");
    if (info_.bos != library_.bos(model_.get()) || info_.eos != library_.eos(model_.get()))
      hash.add_field(std::to_string(info_.bos) + "," + std::to_string(info_.eos));
    info_.hash = hash.text();
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string kept;
    text = valid_utf8(text, kept);
    tokens_.each_part(text, ids, [&](std::string_view part) {
      const bool inside = inner_ && part.data() != text.data() && (!prefix_inside_ || part[0] == ' ');
      encode_part(inside ? inner_.get() : model_.get(), part, ids);
    });
  }

  void decode(int32_t id, std::string& text) const override { text += pieces_[static_cast<std::size_t>(id)]; }
  bool cuttable() const override { return cuttable_; }
  std::string libraries() const override { return std::string("sentencepiece ") + library_.version; }

 private:
  using Model = std::unique_ptr<void, void (*)(void*)>;

  Model open(const std::string& model, const std::string& file) const {
    char why[1024] = "";
    Model out(library_.open(model.data(), model.size(), why, sizeof why), library_.close);
    if (!out) throw Failure(ENG_INVALID, file + ": is not a sentencepiece model: " + printable(why));
    return out;
  }

  void add(const TokenTable& table) {
    std::vector<AddedToken> all;
    for (const FileToken& token : table.tokens()) {
      all.push_back(token.found());
      const auto id = static_cast<std::size_t>(token.id);
      if (id < pieces_.size()) {
        if (!library_.control(model_.get(), static_cast<int>(id))) pieces_[id] = token.content;
      } else {
        pieces_.resize(id + 1);
        pieces_[id] = token.content;
      }
    }
    tokens_.set(std::move(all));
    cuttable_ = table.cuttable();
  }

  void encode_part(const void* model, std::string_view text, std::vector<int32_t>& ids) const {
    // There are about as many ids as bytes at most; where there are more, their number is known after the first try.
    const std::size_t before = ids.size();
    std::size_t room = text.size() + 16;
    for (;;) {
      char why[1024] = "";
      ids.resize(before + room);
      const std::ptrdiff_t found =
          library_.encode(model, text.data(), text.size(), ids.data() + before, room, why, sizeof why);
      if (found < 0) ids.resize(before);
      if (found < 0) throw Failure(ENG_INTERNAL, "sentencepiece: " + printable(why));
      ids.resize(before + std::min(room, static_cast<std::size_t>(found)));
      if (static_cast<std::size_t>(found) <= room) return;
      room = static_cast<std::size_t>(found);
    }
  }

  std::string bytes_of(int id) const {
    const void* const m = model_.get();
    if (library_.control(m, id) || library_.unused(m, id)) return "";
    if (library_.unknown(m, id)) return " \xe2\x81\x87 ";  // as the library shows it
    std::size_t bytes = 0;
    const char* const begin = library_.piece(m, id, &bytes);
    const std::string piece(begin, bytes);
    if (unsigned byte = 0; library_.byte(m, id) && std::sscanf(piece.c_str(), "<0x%2X>", &byte) == 1)
      return std::string(1, static_cast<char>(byte));
    std::string text;
    const std::string_view space = "\xe2\x96\x81";  // U+2581 stands for a space
    for (std::size_t at = 0; at < piece.size();) {
      const bool is_space = piece.compare(at, space.size(), space) == 0;
      text += is_space ? ' ' : piece[at];
      at += is_space ? space.size() : 1;
    }
    return text;
  }

  const SentencePieceLibrary& library_ = sentencepiece_library();
  Model model_{nullptr, library_.close}, inner_{nullptr, library_.close};
  std::vector<std::string> pieces_;
  AddedTokens tokens_;
  bool prefix_inside_ = true, cuttable_ = true;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& file) {
  return std::make_unique<SentencePiece>(file);
}

}  // namespace text_data
