// SPDX-License-Identifier: Apache-2.0
#include "token_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <limits>
#include <type_traits>

#include "failure.hpp"
#include "sniff.hpp"
#include "token_parts.hpp"

namespace text_data {
namespace {

constexpr char magic[8] = {'E', 'N', 'G', 'T', 'O', 'K', 'E', 'N'};
constexpr uint64_t long_header = 1024;

void own(const InputFile& file, std::string_view begin, TokenFile& out) {
  const std::string& path = file.path();
  if (begin.size() < sizeof(TokenHeader)) refuse_tokens(path, "is cut short: build it again", ENG_DATA_LOSS);
  std::memcpy(&out.header, begin.data(), sizeof(TokenHeader));
  const TokenHeader& h = out.header;
  Hash hash;
  hash.add(begin.substr(0, offsetof(TokenHeader, header_hash)));
  if (hash.digest() != h.header_hash) refuse_tokens(path, "its header is damaged: build it again", ENG_DATA_LOSS);
  if (h.version != 1)
    refuse_tokens(path, "is of version " + std::to_string(h.version) + "; only version 1 can be read", ENG_UNSUPPORTED);
  const uint64_t size = file.size();
  const bool fits = (h.width == 2 || h.width == 4) && h.tokens <= size / h.width && h.documents <= size / 8 &&
                    h.weights <= size / sizeof(WeightFrom) &&
                    h.table == (sizeof(TokenHeader) + h.tokens * h.width + 7) / 8 * 8 &&
                    h.table + h.documents * 8 + h.weights * sizeof(WeightFrom) == size;
  if (!fits) {
    refuse_tokens(path,
                  "its header says " + std::to_string(h.tokens) + " tokens, which is not what its " +
                      std::to_string(size) + " bytes hold: build it again",
                  ENG_DATA_LOSS);
  }
  out.format = "engine";
  out.offset = sizeof(TokenHeader);
  out.tokens = h.tokens;
  out.documents = h.documents;
  out.width = h.width;
}

// Headers of 256 numbers: a magic one, a version, the number of tokens, and in some the bytes per token.
struct Headed {
  int32_t magic, version;
  uint32_t width;  // 0: the header says it
  const char* format;
};
constexpr Headed headed[] = {{20240520, 1, 2, "llm.c"}, {20240801, 7, 4, "llm.c"}, {278895051, 1, 0, "NeMo"}};

bool headed_file(const InputFile& file, std::string_view begin, TokenFile& out) {
  if (begin.size() < 16) return false;
  const auto first = number_at<int32_t>(begin, 0), version = number_at<int32_t>(begin, 4);
  const auto count = number_at<int32_t>(begin, 8);
  if (first == 20240522)
    refuse_tokens(file.path(), "holds llm.c's multiple-choice questions, not a text to train on", ENG_UNSUPPORTED);
  const auto* const kind =
      std::find_if(std::begin(headed), std::end(headed), [&](const Headed& h) { return h.magic == first; });
  if (kind == std::end(headed)) return false;
  if (version != kind->version)
    refuse_tokens(file.path(),
                  std::string("has ") + kind->format + "'s version " + std::to_string(version) + "; only version " +
                      std::to_string(kind->version) + " can be read",
                  ENG_UNSUPPORTED);
  const auto told = number_at<int32_t>(begin, 12);
  if (kind->width == 0 && told != 2 && told != 4)
    refuse_tokens(file.path(), "its header says " + std::to_string(told) + " bytes per token; it must be 2 or 4",
                  ENG_DATA_LOSS);
  out.format = kind->format;
  out.width = kind->width ? kind->width : static_cast<uint32_t>(told);
  out.offset = long_header;
  const uint64_t size = file.size();
  const uint64_t held = size < long_header ? 0 : (size - long_header) / out.width;
  if (count < 0 || size < long_header || held != static_cast<uint64_t>(count) ||
      (size - long_header) % out.width != 0) {
    refuse_tokens(
        file.path(),
        "its header says " + std::to_string(count) + " tokens, but the file has room for " + std::to_string(held),
        ENG_DATA_LOSS);
  }
  out.tokens = held;
  return true;
}

// The file beside `path` with another ending, in small or capital letters; `path` without one if there is none.
std::filesystem::path beside(const std::filesystem::path& path, const char* ending, const char* capital) {
  std::filesystem::path small = path, large = path;
  small.replace_extension(ending), large.replace_extension(capital);
  std::error_code ignored;
  return !std::filesystem::exists(small, ignored) && std::filesystem::exists(large, ignored) ? large : small;
}

}  // namespace

TokenFile open_token_file(const std::string& given, const std::string& dtype, int64_t vocabulary) {
  namespace fs = std::filesystem;
  TokenFile out;
  const InputFile file(given);
  out.path = given;
  const std::string begin = read_begin(file, head_bytes);
  const bool index = begin.compare(0, 7, "MMIDIDX") == 0;
  const bool is_bin = has_ending(given, ".bin");
  std::error_code ignored;
  const fs::path other = index ? beside(given, ".bin", ".BIN") : beside(given, ".idx", ".IDX");
  if (index || (is_bin && fs::exists(other, ignored))) {
    const InputFile second(other.string());
    out.path = index ? other.string() : given;
    check_megatron(index ? file : second, index ? second.size() : file.size(), out);
  } else if (begin.compare(0, sizeof(magic), magic, sizeof(magic)) == 0) {
    own(file, begin, out);
  } else if (begin.compare(0, 6, "\x93NUMPY") == 0) {
    open_numpy(file, begin, out);
  } else if (!headed_file(file, begin, out)) {
    open_raw(file, begin, dtype, vocabulary, out);
  }
  if (const Dtype* const wanted = find_dtype(dtype); wanted && wanted->width != out.width)
    refuse_tokens(out.path, "holds ids of " + std::to_string(out.width) +
                                " bytes, as its header says, but [data] dtype = \"" + dtype +
                                "\": remove dtype, which is for files without a header");
  return out;
}

namespace {

template <class T>
void scan_as(const InputFile& file, TokenFile& out, int64_t vocabulary, Hash& hash) {
  uint64_t offset = out.offset;
  file.each_piece(out.offset, out.offset + out.tokens * sizeof(T), [&](std::string_view piece) {
    hash.add(piece);
    const std::size_t count = piece.size() / sizeof(T);
    T largest = std::numeric_limits<T>::lowest(), smallest = std::numeric_limits<T>::max();
    if (count == 0) return;
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
      refuse_tokens(file.path(),
                    "token " + std::to_string((at - out.offset) / sizeof(T)) + ", at byte " + std::to_string(at) +
                        ", is " + id + ", out of range: " +
                        (vocabulary > 0 ? "the model's vocabulary is " + std::to_string(vocabulary) +
                                              "; set [model] vocab_size, or use the data that fits the model"
                                        : "an id cannot have this value") +
                        out.doubt);
    }
    out.smallest = std::min(out.smallest, static_cast<int64_t>(smallest));
    out.largest = std::max(out.largest, static_cast<int64_t>(largest));
    offset += piece.size();
  });
}

}  // namespace

void scan(TokenFile& out, int64_t vocabulary) {
  const InputFile file(out.path);
  const uint64_t end = out.offset + out.tokens * out.width;
  if (end > file.size()) refuse_tokens(out.path, "is shorter than it was", ENG_DATA_LOSS);
  const auto pass = [&](int64_t limit) {
    Hash hash;
    out.largest = -1;
    out.smallest = std::numeric_limits<int64_t>::max();
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
    constexpr uint64_t few = 64;
    if (!out.doubt.empty() && out.tokens >= few && out.largest == out.smallest)
      refuse_tokens(out.path, "each of its " + std::to_string(out.tokens) + " ids is " + std::to_string(out.largest) +
                                  ", as in a file that was made but not written" + out.doubt);
    return;
  }
  // In our own format the checksum is tested first: the ids of a damaged file say nothing.
  const std::string damaged = "is damaged: its tokens are not those that were written; build it again";
  Digest tokens;
  try {
    tokens = pass(0);
  } catch (const Failure& failure) {
    if (failure.status != ENG_INVALID) throw;
    refuse_tokens(out.path, damaged, ENG_DATA_LOSS);
  }
  Hash table;
  file.each_piece(out.header.table, file.size(), [&](std::string_view piece) { table.add(piece); });
  if (tokens != out.header.token_hash || table.digest() != out.header.table_hash || out.largest != out.header.largest)
    refuse_tokens(out.path, damaged, ENG_DATA_LOSS);
  out.hash = hexadecimal(tokens);
  if (vocabulary > 0 && out.largest >= vocabulary) pass(vocabulary);
}

std::string describe(const TokenFile& file, bool scanned) {
  std::string text = "format: " + file.format + "\ntokens: " + std::to_string(file.tokens) +
                     "\nbytes per token: " + std::to_string(file.width) + "\n";
  if (file.documents > 0) text += "documents: " + std::to_string(file.documents) + "\n";
  if (file.header.magic[0] != 0) {
    const TokenHeader& h = file.header;
    text += "vocabulary: " + std::to_string(h.vocabulary) +
            "\nlargest id: " + std::to_string(h.masked != 0 ? h.largest / 2 : h.largest) + "\n";
    if (h.masked != 0) {
      text += "trained tokens: " + std::to_string(h.trained) + "\n";
      if (h.weights > 0) text += "changes of the weight: " + std::to_string(h.weights) + "\n";
      for (const auto& [what, rows] : {std::pair("without messages", h.skipped),
                                       std::pair("that train no token", h.empty), std::pair("too long", h.too_long)})
        if (rows > 0) text += std::string("left out, ") + what + ": " + std::to_string(rows) + "\n";
      if (h.cut > 0) text += "cut: " + std::to_string(h.cut) + "\n";
    }
    if (h.eot >= 0) text += "end of text: " + std::to_string(h.eot) + "\n";
    text += "tokenizer: " + hexadecimal(h.tokenizer) + "\nmade from: " + hexadecimal(h.key) + "\n";
    text += "content: " + hexadecimal(h.token_hash) + "\n";
  } else if (scanned) {
    text += "largest id: " + std::to_string(file.largest) + "\ncontent: " + file.hash + "\n";
  }
  return text;
}

}  // namespace text_data
