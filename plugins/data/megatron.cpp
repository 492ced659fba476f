// SPDX-License-Identifier: Apache-2.0
// Megatron's files of tokens, which NeMo and GPT-NeoX have too: ids in PREFIX.bin, their type and documents in
// PREFIX.idx.
#include <algorithm>
#include <cstring>

#include "failure.hpp"
#include "token_file.hpp"
#include "token_parts.hpp"

namespace text_data {

void check_megatron(const InputFile& index, uint64_t bin_size, TokenFile& out) {
  constexpr std::string_view magic("MMIDIDX\0\0", 9);
  const std::string& path = index.path();
  const uint64_t size = index.size(), header = 34;
  const std::string begin = read_begin(index, header);
  if (begin.size() < header || std::memcmp(begin.data(), magic.data(), magic.size()) != 0)
    refuse_tokens(
        path,
        "is not a Megatron index: it does not begin with MMIDIDX" +
            std::string(
                begin.substr(0, 6) == "TNTIDX"
                    ? "; it is one of fairseq or of an old Megatron, to be made anew with Megatron's present tools"
                    : ""));
  if (const auto version = number_at<uint64_t>(begin, 9); version != 1)
    refuse_tokens(path, "is of version " + std::to_string(version) + "; only version 1 can be read", ENG_UNSUPPORTED);
  const int code = static_cast<unsigned char>(begin[17]);
  constexpr uint32_t widths[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
  if (code >= 9 || widths[code] == 0)
    refuse_tokens(path, "its type code is " + std::to_string(code) + ", which is not an integer type", ENG_UNSUPPORTED);
  out.format = "Megatron";
  out.width = widths[code];
  out.is_signed = code != 1 && code != 8;
  const auto sequences = number_at<uint64_t>(begin, 18), documents = number_at<uint64_t>(begin, 26);
  const bool counts = sequences <= size / 12 && documents <= size / 8;
  const uint64_t least = header + 12 * sequences + 8 * documents;
  if (!counts || (size != least && size != least + sequences)) {
    refuse_tokens(path,
                  "says " + std::to_string(sequences) + " sequences and " + std::to_string(documents) +
                      " document bounds, which its " + std::to_string(size) + " bytes do not hold",
                  ENG_DATA_LOSS);
  }
  // Lengths and pointers are read in step, a block at a time, because an index may be larger than memory.
  constexpr uint64_t stretch = 65536;
  uint64_t at = 0;
  std::string lengths, pointers;
  for (uint64_t first = 0; first < sequences; first += stretch) {
    const uint64_t count = std::min(stretch, sequences - first);
    const auto read = [&](std::string& to, uint64_t offset, uint64_t bytes) {
      to.clear();
      index.each_piece(offset, offset + bytes, [&](std::string_view piece) { to += piece; });
    };
    read(lengths, header + 4 * first, 4 * count);
    read(pointers, header + 4 * sequences + 8 * first, 8 * count);
    for (uint64_t i = 0; i < count; ++i) {
      const auto length = number_at<int32_t>(lengths, 4 * i);
      const auto pointer = number_at<int64_t>(pointers, 8 * i);
      const std::string which = "sequence " + std::to_string(first + i);
      if (length < 0)
        refuse_tokens(path,
                      which + " has a length of " + std::to_string(length) + " (byte " +
                          std::to_string(header + 4 * (first + i)) + ")",
                      ENG_DATA_LOSS);
      if (pointer < 0 || static_cast<uint64_t>(pointer) != at)
        refuse_tokens(path,
                      which + " begins at byte " + std::to_string(pointer) +
                          " of the .bin, but the one before it ends at " + std::to_string(at),
                      ENG_DATA_LOSS);
      at += static_cast<uint64_t>(length) * out.width;
      if (at > bin_size)
        refuse_tokens(path,
                      which + " ends at byte " + std::to_string(at) + " of " + out.path + ", which has " +
                          std::to_string(bin_size),
                      ENG_DATA_LOSS);
    }
  }
  if (at != bin_size) {
    refuse_tokens(
        path,
        "accounts for " + std::to_string(at) + " bytes of " + out.path + ", which has " + std::to_string(bin_size),
        ENG_DATA_LOSS);
  }
  int64_t before = 0;
  uint64_t bound = 0;
  const auto bounds = [&](std::string_view piece) {
    for (std::size_t i = 0; i < piece.size(); i += 8, ++bound) {
      const auto value = number_at<int64_t>(piece, i);
      if (value < before || value > static_cast<int64_t>(sequences) || (bound == 0 && value != 0))
        refuse_tokens(path,
                      "document bound " + std::to_string(bound) + " is " + std::to_string(value) +
                          ", out of order or beyond its " + std::to_string(sequences) + " sequences",
                      ENG_DATA_LOSS);
      before = value;
    }
  };
  const uint64_t table = header + 12 * sequences;
  index.each_piece(table, table + 8 * documents, bounds);
  if (documents > 0 && before != static_cast<int64_t>(sequences))
    refuse_tokens(path,
                  "its last document ends at sequence " + std::to_string(before) + " of " + std::to_string(sequences),
                  ENG_DATA_LOSS);
  out.tokens = at / out.width;
  out.documents = documents > 0 ? documents - 1 : 0;
}

}  // namespace text_data
