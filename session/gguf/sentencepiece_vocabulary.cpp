// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a tokenizer.model, a protobuf message of sentencepiece.
#include <bit>
#include <cstring>

#include "core/base/error.hpp"
#include "session/gguf/vocabulary.hpp"

namespace eng {
namespace {

constexpr size_t most_pieces = size_t{1} << 21;

// The fields of a message, in order.
class MessageFields {
 public:
  MessageFields(std::string_view message, const std::string& where) : rest_(message), where_(where) {}

  uint64_t number = 0;
  uint64_t whole = 0;      // of a field that is one
  float real = 0;          // of a field of four bytes
  std::string_view bytes;  // of a field with a length

  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = varint();
    number = tag >> 3, whole = 0, real = 0, bytes = {};
    if (number == 0) fail();
    switch (tag & 7) {
      case 0:
        whole = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        std::memcpy(&real, take(4).data(), sizeof real);
        break;
      default:
        fail();
    }
    return true;
  }
  [[noreturn]] void fail() const { throw Error(Exit::data, where_ + ": is no model of sentencepiece, or cut short"); }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) fail();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  const std::string& where_;
};

// Numbers of fields, of sentencepiece_model.proto.
enum SentencepieceField : uint64_t {
  kPieces = 1,
  kTrainer = 2,
  kNormalizer = 3,
  kPieceText = 1,
  kPieceScore = 2,
  kPieceType = 3,
  kModelType = 3,
  kByteFallback = 35,
  kUnknown = 40,
  kPadding = 43,
  kCharsmap = 2,
  kDummyPrefix = 3,
  kOneSpace = 4
};
constexpr uint64_t unigram = 1, bpe = 2;

void read_piece(MessageFields piece, GgufVocabulary& out) {
  std::string text;
  uint64_t type = static_cast<uint64_t>(GgufToken::normal);
  float score = 0;
  while (piece.next())
    if (piece.number == kPieceText)
      text = piece.bytes;
    else if (piece.number == kPieceScore)
      score = piece.real;
    else if (piece.number == kPieceType)
      type = piece.whole;
  if (out.tokens.size() >= most_pieces || type < 1 || type > 6) piece.fail();
  if (type == static_cast<uint64_t>(GgufToken::user_defined))
    text = with_spaces(text);  // it is found in texts as it is
  out.set(static_cast<int64_t>(out.tokens.size()), text, static_cast<GgufToken>(type));
  out.scores.push_back(score);
}

}  // namespace

GgufVocabulary sentencepiece_vocabulary(std::string_view model, const std::string& where) {
  GgufVocabulary out;
  out.space_prefix = out.one_space = true;
  out.unknown = 0;
  uint64_t type = unigram;
  bool fallback = false;
  for (MessageFields all(model, where); all.next();) {
    MessageFields inside(all.bytes, where);
    if (all.number == kPieces) read_piece(inside, out);
    while (all.number == kTrainer && inside.next())
      if (inside.number == kModelType)
        type = inside.whole;
      else if (inside.number == kByteFallback)
        fallback = inside.whole != 0;
      else if (inside.number == kUnknown)
        out.unknown = static_cast<int32_t>(inside.whole);
      else if (inside.number == kPadding)
        out.padding = static_cast<int32_t>(inside.whole);
    while (all.number == kNormalizer && inside.next())
      if (inside.number == kCharsmap)
        out.charsmap = inside.bytes;
      else if (inside.number == kDummyPrefix)
        out.space_prefix = inside.whole != 0;
      else if (inside.number == kOneSpace)
        out.one_space = inside.whole != 0;
  }
  if (out.tokens.empty()) throw Error(Exit::data, where + ": is no model of sentencepiece: it has no pieces");
  if (type != unigram && type != bpe)
    throw Error(Exit::usage, where + ": llama.cpp reads only models of sentencepiece of type BPE and unigram",
                "a GGUF file of this tokenizer would give other ids");
  out.model = type == bpe ? "llama" : "t5";
  if (type == unigram && fallback)
    out.note("llama.cpp gives the unknown token where the tokenizer falls back to bytes");
  if (type == bpe && *out.one_space) out.note("llama.cpp keeps runs of spaces, which the tokenizer makes one");
  if (type == bpe && !out.charsmap.empty()) {
    out.note("llama.cpp does not replace characters before it splits, as the tokenizer does");
    out.charsmap.clear();
  }
  return out;
}

}  // namespace eng
