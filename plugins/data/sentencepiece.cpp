// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a tokenizer.model, by the sentencepiece library.
#include <sentencepiece_processor.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "failure.hpp"
#include "hash.hpp"
#include "json_text.hpp"
#include "sentencepiece_check.hpp"
#include "tokenizer.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(const std::string& file) {
    const std::string model = read_whole(file);
    check_sentencepiece(model, file);
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok())
      throw Failure(ENG_INVALID, file + ": is not a sentencepiece model: " + printable(status.ToString()));
    const int size = processor_.GetPieceSize();
    if (size < 1) throw Failure(ENG_INVALID, file + ": the model has no pieces");
    info_.vocabulary = size;
    info_.bos = processor_.bos_id();
    info_.eos = processor_.eos_id();
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
    std::vector<int> found;
    if (!text.empty()) {
      const auto status = processor_.Encode({text.data(), text.size()}, &found);
      if (!status.ok()) throw Failure(ENG_INTERNAL, "sentencepiece: " + printable(status.ToString()));
    }
    ids.insert(ids.end(), found.begin(), found.end());
  }

  void decode(int32_t id, std::string& text) const override { text += pieces_[static_cast<std::size_t>(id)]; }
  std::string libraries() const override { return "sentencepiece " SENTENCEPIECE_VERSION; }

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
    if (processor_.IsControl(id) || processor_.IsUnused(id)) return "";
    if (processor_.IsUnknown(id)) return " \xe2\x81\x87 ";  // as the library shows it
    const std::string& piece = processor_.IdToPiece(id);
    if (unsigned byte = 0; processor_.IsByte(id) && std::sscanf(piece.c_str(), "<0x%2X>", &byte) == 1)
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

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> pieces_;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& file) {
  return std::make_unique<SentencePiece>(file);
}

}  // namespace text_data
