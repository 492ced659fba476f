// SPDX-License-Identifier: Apache-2.0
#include "sentencepiece_check.hpp"

#include <cstdint>
#include <cstring>

#include "failure.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

constexpr uint64_t most_pieces = uint64_t{1} << 21;

// The fields of a protobuf message, in order.
class Fields {
 public:
  Fields(std::string_view message, const std::string& file) : rest_(message), file_(file) {}

  uint64_t number = 0;
  std::string_view bytes;  // of a field with a length, else empty

  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = varint();
    number = tag >> 3;
    bytes = {};
    switch (tag & 7) {
      case 0:
        varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        take(4);
        break;
      default:
        fail("is not a sentencepiece model");
    }
    if (number == 0) fail("is not a sentencepiece model");
    return true;
  }
  [[noreturn]] void fail(const std::string& what) const { throw Failure(ENG_INVALID, file_ + ": " + what); }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("is not a sentencepiece model");
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) fail("is cut short, or is not a sentencepiece model");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  const std::string& file_;
};

// The table of character replacements: a u32 size, a double array of that many bytes, and texts that end in NUL. The
// library follows the array's offsets without checking them against its size.
void check_charsmap(std::string_view map, const Fields& fields) {
  if (map.empty()) return;
  const char* const wrong = "its table of characters (precompiled_charsmap) is damaged";
  uint32_t size = 0;
  if (map.size() < sizeof(size)) fields.fail(wrong);
  std::memcpy(&size, map.data(), sizeof(size));
  map.remove_prefix(sizeof(size));
  if (size > map.size() || size % 1024 != 0 || size == 0) fields.fail(wrong);
  const std::string_view texts = map.substr(size);
  if (texts.empty() || texts.back() != '\0') fields.fail(wrong);
  const uint64_t units = size / 4;
  const auto unit_at = [&](uint64_t i) {
    uint32_t unit = 0;
    std::memcpy(&unit, map.data() + 4 * i, sizeof(unit));
    return unit;
  };
  for (uint64_t i = 0; i < units; ++i) {
    const uint32_t unit = unit_at(i);
    if (i > 0 && unit >> 31 != 0) continue;  // a leaf, which nothing follows further; the root is followed in any case
    // All children of a node lie within one block of 256. The first of them may give the position of a text.
    const uint64_t children = i ^ (uint64_t{unit >> 10} << ((unit & 0x200u) >> 6));
    if ((children | 255) >= units) fields.fail(wrong);
    if ((unit & 0x100u) != 0 && (unit_at(children) & 0x7fffffffu) >= texts.size()) fields.fail(wrong);
  }
}

}  // namespace

void check_sentencepiece(std::string_view model, const std::string& file) {
  Fields fields(model, file);
  uint64_t pieces = 0;
  bool trainer = false, normalizer = false;  // without them the library would take defaults, and give other ids
  while (fields.next()) {
    if (fields.number == 1) {
      if (++pieces > most_pieces) fields.fail("has too many pieces");
      for (Fields piece(fields.bytes, file); piece.next();)
        if (piece.number == 1 &&
            (utf8_prefix(piece.bytes) != piece.bytes.size() || piece.bytes.find('\0') != std::string_view::npos))
          fields.fail("a piece is not UTF-8, or holds NUL");
    }
    trainer = trainer || fields.number == 2;
    normalizer = normalizer || fields.number == 3;
    if (fields.number == 3 || fields.number == 5)
      for (Fields spec(fields.bytes, file); spec.next();)
        if (spec.number == 2) check_charsmap(spec.bytes, fields);
  }
  if (pieces == 0) fields.fail("is not a sentencepiece model: it has no pieces");
  if (!trainer || !normalizer) fields.fail("is cut short: it does not say how it was trained");
}

}  // namespace text_data
