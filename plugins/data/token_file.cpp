// SPDX-License-Identifier: Apache-2.0
#include "token_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <limits>
#include <type_traits>

#include "failure.hpp"

namespace text_data {
namespace {

constexpr char magic[8] = {'E', 'N', 'G', 'T', 'O', 'K', 'E', 'N'};
constexpr char megatron_magic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr uint64_t llmc_header = 1024;

[[noreturn]] void refuse(const std::string& path, const std::string& what, eng_status status = ENG_INVALID) {
  throw Failure(status, "[data] " + path + ": " + what);
}

std::string read_begin(const InputFile& file, uint64_t size) {
  std::string text;
  file.each_piece(0, std::min(size, file.size()), [&](std::string_view piece) { text += piece; });
  return text;
}

template <class T>
T number_at(std::string_view bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

void own(const InputFile& file, std::string_view begin, TokenFile& out) {
  const std::string& path = file.path();
  if (begin.size() < sizeof(TokenHeader)) refuse(path, "is cut short: build it again", ENG_DATA_LOSS);
  std::memcpy(&out.header, begin.data(), sizeof(TokenHeader));
  const TokenHeader& h = out.header;
  Hash hash;
  hash.add(begin.substr(0, offsetof(TokenHeader, header_hash)));
  if (hash.digest() != h.header_hash) refuse(path, "its header is damaged: build it again", ENG_DATA_LOSS);
  if (h.version != 1)
    refuse(path, "is of version " + std::to_string(h.version) + "; only version 1 can be read", ENG_UNSUPPORTED);
  const uint64_t size = file.size();
  const bool fits = (h.width == 2 || h.width == 4) && h.tokens <= size / h.width && h.documents <= size / 8 &&
                    h.table == (sizeof(TokenHeader) + h.tokens * h.width + 7) / 8 * 8 &&
                    h.table + h.documents * 8 == size;
  if (!fits) {
    refuse(path,
           "its header says " + std::to_string(h.tokens) + " tokens, which is not what its " + std::to_string(size) +
               " bytes hold: build it again",
           ENG_DATA_LOSS);
  }
  out.format = "engine";
  out.offset = sizeof(TokenHeader);
  out.tokens = h.tokens;
  out.documents = h.documents;
  out.width = h.width;
}

bool llmc(const InputFile& file, std::string_view begin, TokenFile& out) {
  if (begin.size() < 12) return false;
  const auto first = number_at<int32_t>(begin, 0), version = number_at<int32_t>(begin, 4);
  const auto count = number_at<int32_t>(begin, 8);
  if (first == 20240522)
    refuse(file.path(), "holds llm.c's multiple-choice questions, not a text to train on", ENG_UNSUPPORTED);
  if (first != 20240520 && first != 20240801) return false;
  const int32_t known = first == 20240520 ? 1 : 7;
  if (version != known) {
    refuse(
        file.path(),
        "has llm.c's version " + std::to_string(version) + "; only version " + std::to_string(known) + " can be read",
        ENG_UNSUPPORTED);
  }
  out.format = "llm.c";
  out.width = first == 20240520 ? 2 : 4;
  out.offset = llmc_header;
  const uint64_t size = file.size();
  const uint64_t held = size < llmc_header ? 0 : (size - llmc_header) / out.width;
  if (count < 0 || size < llmc_header || held != static_cast<uint64_t>(count) ||
      (size - llmc_header) % out.width != 0) {
    refuse(file.path(),
           "its header says " + std::to_string(count) + " tokens, but the file has room for " + std::to_string(held),
           ENG_DATA_LOSS);
  }
  out.tokens = held;
  return true;
}

}  // namespace

TokenFile open_token_file(const std::string& given) {
  namespace fs = std::filesystem;
  TokenFile out;
  std::error_code ignored;
  fs::path bin = given, index = given;
  const bool is_index = bin.extension() == ".idx";
  if (is_index) bin.replace_extension(".bin");
  if (!is_index) index.replace_extension(".idx");
  if (bin.extension() == ".bin" && (is_index || fs::exists(index, ignored))) {
    const InputFile tokens(bin.string()), lengths(index.string());
    out.path = bin.string();
    check_megatron(lengths, tokens.size(), out);
    return out;
  }
  const InputFile file(given);
  out.path = given;
  const std::string begin = read_begin(file, sizeof(TokenHeader));
  if (begin.size() >= sizeof(magic) && std::memcmp(begin.data(), magic, sizeof(magic)) == 0) {
    own(file, begin, out);
  } else if (!llmc(file, begin, out)) {
    if (bin.extension() != ".bin")
      refuse(given, "is not a file of tokens: nanoGPT's, llm.c's and Megatron's end in .bin, ours in .tokens");
    if (file.size() % 2 != 0)
      refuse(given, "has an odd number of bytes: nanoGPT's files hold two per token", ENG_DATA_LOSS);
    out.format = "nanoGPT";
    out.tokens = file.size() / 2;
  }
  return out;
}

void check_megatron(const InputFile& index, uint64_t bin_size, TokenFile& out) {
  const std::string& path = index.path();
  const uint64_t size = index.size(), header = 34;
  const std::string begin = read_begin(index, header);
  if (begin.size() < header || std::memcmp(begin.data(), megatron_magic, sizeof(megatron_magic)) != 0)
    refuse(path, "is not a Megatron index: it does not begin with MMIDIDX");
  if (const auto version = number_at<uint64_t>(begin, 9); version != 1)
    refuse(path, "is of version " + std::to_string(version) + "; only version 1 can be read", ENG_UNSUPPORTED);
  const int code = static_cast<unsigned char>(begin[17]);
  constexpr uint32_t widths[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
  if (code >= 9 || widths[code] == 0)
    refuse(path, "its type code is " + std::to_string(code) + ", which is not an integer type", ENG_UNSUPPORTED);
  out.format = "Megatron";
  out.width = widths[code];
  out.is_signed = code != 1 && code != 8;
  const auto sequences = number_at<uint64_t>(begin, 18), documents = number_at<uint64_t>(begin, 26);
  const bool counts = sequences <= size / 12 && documents <= size / 8;
  const uint64_t least = header + 12 * sequences + 8 * documents;
  if (!counts || (size != least && size != least + sequences)) {
    refuse(path,
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
        refuse(path,
               which + " has a length of " + std::to_string(length) + " (byte " +
                   std::to_string(header + 4 * (first + i)) + ")",
               ENG_DATA_LOSS);
      if (pointer < 0 || static_cast<uint64_t>(pointer) != at)
        refuse(path,
               which + " begins at byte " + std::to_string(pointer) + " of the .bin, but the one before it ends at " +
                   std::to_string(at),
               ENG_DATA_LOSS);
      at += static_cast<uint64_t>(length) * out.width;
      if (at > bin_size)
        refuse(path,
               which + " ends at byte " + std::to_string(at) + " of " + out.path + ", which has " +
                   std::to_string(bin_size),
               ENG_DATA_LOSS);
    }
  }
  if (at != bin_size) {
    refuse(path,
           "accounts for " + std::to_string(at) + " bytes of " + out.path + ", which has " + std::to_string(bin_size),
           ENG_DATA_LOSS);
  }
  int64_t before = 0;
  uint64_t bound = 0;
  const auto bounds = [&](std::string_view piece) {
    for (std::size_t i = 0; i < piece.size(); i += 8, ++bound) {
      const auto value = number_at<int64_t>(piece, i);
      if (value < before || value > static_cast<int64_t>(sequences) || (bound == 0 && value != 0))
        refuse(path,
               "document bound " + std::to_string(bound) + " is " + std::to_string(value) +
                   ", out of order or beyond its " + std::to_string(sequences) + " sequences",
               ENG_DATA_LOSS);
      before = value;
    }
  };
  const uint64_t table = header + 12 * sequences;
  index.each_piece(table, table + 8 * documents, bounds);
  if (documents > 0 && before != static_cast<int64_t>(sequences))
    refuse(path, "its last document ends at sequence " + std::to_string(before) + " of " + std::to_string(sequences),
           ENG_DATA_LOSS);
  out.tokens = at / out.width;
  out.documents = documents > 0 ? documents - 1 : 0;
}

namespace {

template <class T>
void scan_as(const InputFile& file, TokenFile& out, int64_t vocabulary, Hash& hash) {
  uint64_t offset = out.offset;
  file.each_piece(out.offset, out.offset + out.tokens * sizeof(T), [&](std::string_view piece) {
    hash.add(piece);
    const std::size_t count = piece.size() / sizeof(T);
    T largest = std::numeric_limits<T>::lowest(), smallest = std::numeric_limits<T>::max();
    for (std::size_t i = 0; i < count; ++i) {
      const T value = number_at<T>(piece, i * sizeof(T));
      largest = std::max(largest, value);
      smallest = std::min(smallest, value);
    }
    const auto wrong = [&](T value) {
      if constexpr (std::is_signed_v<T>)
        if (value < 0) return true;
      return static_cast<uint64_t>(value) >= static_cast<uint64_t>(vocabulary > 0 ? vocabulary : 0x7fffffff);
    };
    if (wrong(largest) || wrong(smallest)) {
      std::size_t i = 0;
      while (!wrong(number_at<T>(piece, i * sizeof(T)))) ++i;
      const std::string id = std::to_string(number_at<T>(piece, i * sizeof(T)));
      const uint64_t at = offset + i * sizeof(T);
      refuse(file.path(), "token " + std::to_string((at - out.offset) / sizeof(T)) + ", at byte " + std::to_string(at) +
                              ", is " + id + ", out of range: " +
                              (vocabulary > 0 ? "the model's vocabulary is " + std::to_string(vocabulary) +
                                                    "; set [model] vocab_size, or use the data that fits the model"
                                              : "an id cannot have this value"));
    }
    out.largest = std::max(out.largest, static_cast<int64_t>(largest));
    offset += piece.size();
  });
}

}  // namespace

void scan(TokenFile& out, int64_t vocabulary) {
  const InputFile file(out.path);
  const uint64_t end = out.offset + out.tokens * out.width;
  if (end > file.size()) refuse(out.path, "is shorter than it was", ENG_DATA_LOSS);
  const auto pass = [&](int64_t limit) {
    Hash hash;
    out.largest = -1;
    if (out.width == 1 && !out.is_signed) scan_as<uint8_t>(file, out, limit, hash);
    if (out.width == 1 && out.is_signed) scan_as<int8_t>(file, out, limit, hash);
    if (out.width == 2 && !out.is_signed) scan_as<uint16_t>(file, out, limit, hash);
    if (out.width == 2 && out.is_signed) scan_as<int16_t>(file, out, limit, hash);
    if (out.width == 4 && !out.is_signed) scan_as<uint32_t>(file, out, limit, hash);
    if (out.width == 4 && out.is_signed) scan_as<int32_t>(file, out, limit, hash);
    if (out.width == 8) scan_as<int64_t>(file, out, limit, hash);
    return hash.digest();
  };
  if (out.header.magic[0] == 0) {
    out.hash = hexadecimal(pass(vocabulary));
    return;
  }
  // In our own format the checksum is tested first: the ids of a damaged file say nothing.
  const std::string damaged = "is damaged: its tokens are not those that were written; build it again";
  Digest tokens;
  try {
    tokens = pass(0);
  } catch (const Failure& failure) {
    if (failure.status != ENG_INVALID) throw;
    refuse(out.path, damaged, ENG_DATA_LOSS);
  }
  Hash table;
  file.each_piece(out.header.table, file.size(), [&](std::string_view piece) { table.add(piece); });
  if (tokens != out.header.token_hash || table.digest() != out.header.table_hash || out.largest != out.header.largest)
    refuse(out.path, damaged, ENG_DATA_LOSS);
  out.hash = hexadecimal(tokens);
  if (vocabulary > 0 && out.largest >= vocabulary) pass(vocabulary);
}

std::string describe(const TokenFile& file, bool scanned) {
  std::string text = "format: " + file.format + "\ntokens: " + std::to_string(file.tokens) +
                     "\nbytes per token: " + std::to_string(file.width) + "\n";
  if (file.documents > 0) text += "documents: " + std::to_string(file.documents) + "\n";
  if (file.header.magic[0] != 0) {
    const TokenHeader& h = file.header;
    text += "vocabulary: " + std::to_string(h.vocabulary) + "\nlargest id: " + std::to_string(h.largest) + "\n";
    if (h.eot >= 0) text += "end of text: " + std::to_string(h.eot) + "\n";
    text += "tokenizer: " + hexadecimal(h.tokenizer) + "\nmade from: " + hexadecimal(h.key) + "\n";
    text += "content: " + hexadecimal(h.token_hash) + "\n";
  } else if (scanned) {
    text += "largest id: " + std::to_string(file.largest) + "\ncontent: " + file.hash + "\n";
  }
  return text;
}

}  // namespace text_data
