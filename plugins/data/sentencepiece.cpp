// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a tokenizer.model, by the sentencepiece library.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "failure.hpp"
#include "hash.hpp"
#include "json_text.hpp"
#include "sentencepiece_check.hpp"
#include "sentencepiece_library.hpp"
#include "tokenizer.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(const std::string& file) {
    const std::string model = read_whole(file);
    check_sentencepiece(model, file);
    char why[1024] = "";
    model_.reset(library_.open(model.data(), model.size(), why, sizeof why));
    if (!model_) throw Failure(ENG_INVALID, file + ": is not a sentencepiece model: " + printable(why));
    const int size = library_.pieces(model_.get());
    if (size < 1) throw Failure(ENG_INVALID, file + ": the model has no pieces");
    info_.vocabulary = size;
    info_.bos = library_.bos(model_.get());
    info_.eos = library_.eos(model_.get());
    info_.eot = info_.eos;
    bool bos = info_.bos >= 0, eos = false;
    read_config((std::filesystem::path(file).parent_path() / "tokenizer_config.json").string(), bos, eos);
    if (bos && info_.bos >= 0) prefix_.push_back(info_.bos);
    if (eos && info_.eos >= 0) suffix_.push_back(info_.eos);
    for (int id = 0; id < size; ++id) pieces_.push_back(bytes_of(id));
    Hash hash;
    hash.add_field(model);
    hash.add_field((bos ? "bos" : "") + std::string(eos ? "eos" : ""));
    info_.hash = hash.text();
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string kept;
    text = valid_utf8(text, kept);
    if (text.empty()) return;
    // There are about as many ids as bytes at most; where there are more, their number is known after the first try.
    const std::size_t before = ids.size();
    std::size_t room = text.size() + 16;
    for (;;) {
      char why[1024] = "";
      ids.resize(before + room);
      const std::ptrdiff_t found =
          library_.encode(model_.get(), text.data(), text.size(), ids.data() + before, room, why, sizeof why);
      if (found < 0) ids.resize(before);
      if (found < 0) throw Failure(ENG_INTERNAL, "sentencepiece: " + printable(why));
      ids.resize(before + std::min(room, static_cast<std::size_t>(found)));
      if (static_cast<std::size_t>(found) <= room) return;
      room = static_cast<std::size_t>(found);
    }
  }

  void decode(int32_t id, std::string& text) const override { text += pieces_[static_cast<std::size_t>(id)]; }
  std::string libraries() const override { return std::string("sentencepiece ") + library_.version; }

 private:
  static void read_config(const std::string& path, bool& bos, bool& eos) {
    const std::string text = read_if_there(path);
    if (text.empty()) return;
    const nlohmann::json config = parse_json(text, path);
    if (!config.is_object()) throw Failure(ENG_INVALID, path + ": is not an object");
    const auto take = [&](const char* key, bool& out) {
      if (const auto found = config.find(key); found != config.end() && found->is_boolean()) out = found->get<bool>();
    };
    take("add_bos_token", bos);
    take("add_eos_token", eos);
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
  std::unique_ptr<void, void (*)(void*)> model_{nullptr, library_.close};
  std::vector<std::string> pieces_;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& file) {
  return std::make_unique<SentencePiece>(file);
}

}  // namespace text_data
