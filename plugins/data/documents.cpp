// SPDX-License-Identifier: Apache-2.0
#include "documents.hpp"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "failure.hpp"

namespace text_data {
namespace {

[[noreturn]] void refuse(const TokenFile& file, const std::string& what, eng_status status) {
  throw Failure(status, "[data] " + file.path + ": " + what);
}

// Passes on `count` little-endian numbers of 8 bytes.
template <class Take>
void each_number(const InputFile& file, uint64_t offset, uint64_t count, Take take) {
  file.each_piece(offset, offset + 8 * count, [&](std::string_view piece) {
    for (std::size_t at = 0; at + 8 <= piece.size(); at += 8) {
      uint64_t value = 0;
      std::memcpy(&value, piece.data() + at, 8);
      take(value);
    }
  });
}

// Bounds of documents count sequences; the place of each sequence is in bytes.
void megatron(const TokenFile& file, uint64_t base, std::vector<uint64_t>& starts) {
  std::filesystem::path path = file.path;
  const InputFile index(path.replace_extension(".idx").string());
  constexpr uint64_t header = 34;
  uint64_t counts[2] = {0, 0}, k = 0;  // sequences, bounds
  each_number(index, 18, 2, [&](uint64_t n) { counts[k++] = n; });
  if (counts[1] != file.documents + 1 && counts[1] != 0)
    refuse(file, "its index changed while it was read", ENG_DATA_LOSS);
  std::vector<uint64_t> bounds;  // without the last one, which is the end
  each_number(index, header + 12 * counts[0], counts[1], [&](uint64_t n) { bounds.push_back(n); });
  if (bounds.empty()) refuse(file, "its index has no documents, which pack = true needs", ENG_INVALID);
  bounds.pop_back();
  uint64_t sequence = 0;
  std::size_t next = 0;
  each_number(index, header + 4 * counts[0], counts[0], [&](uint64_t byte) {
    for (; next < bounds.size() && bounds[next] == sequence; ++next) starts.push_back(base + byte / file.width);
    ++sequence;
  });
}

template <class T>
void search(const TokenFile& file, int64_t eot, bool begins, uint64_t base, std::vector<uint64_t>& starts) {
  const InputFile tokens(file.path);
  uint64_t token = 0, found = 0;
  starts.push_back(base);
  tokens.each_piece(file.offset, file.offset + file.tokens * sizeof(T), [&](std::string_view piece) {
    for (std::size_t at = 0; at + sizeof(T) <= piece.size(); at += sizeof(T), ++token) {
      T value{};
      std::memcpy(&value, piece.data() + at, sizeof(T));
      if (static_cast<int64_t>(value) != eot) continue;
      ++found;
      const uint64_t start = base + token + (begins ? 0 : 1);
      if (start != starts.back() && start < base + file.tokens) starts.push_back(start);
    }
  });
  if (!found)
    refuse(file,
           "the token " + std::to_string(eot) + " separates documents but does not occur in it, so pack = true would " +
               "see one document: set [data] eot to the id that is, or pack = false",
           ENG_INVALID);
}

}  // namespace

void add_documents(const TokenFile& file, int64_t eot, uint64_t base, std::vector<uint64_t>& starts) {
  if (file.tokens == 0) return;
  const std::size_t before = starts.size();
  if (file.header.magic[0] != 0) {
    const InputFile own(file.path);
    each_number(own, file.header.table, file.header.documents, [&](uint64_t token) { starts.push_back(base + token); });
  } else if (file.format == "Megatron") {
    megatron(file, base, starts);
  } else {
    const bool llmc = file.format == "llm.c", begins = llmc || file.format == "NeMo";
    if (eot < 0 && llmc) eot = file.width == 2 ? 50256 : 128000;  // GPT-2's and Llama 3's
    if (eot < 0)
      refuse(file,
             "does not say where its documents end, which pack = true needs: set [data] eot to the id of the token "
             "that is between them, such as 50256 (GPT-2), or name [data] tokenizer",
             ENG_INVALID);
    if (file.width == 1) search<uint8_t>(file, eot, begins, base, starts);
    if (file.width == 2) search<uint16_t>(file, eot, begins, base, starts);
    if (file.width == 4) search<uint32_t>(file, eot, begins, base, starts);
    if (file.width == 8) search<uint64_t>(file, eot, begins, base, starts);
  }
  if (starts.size() == before || starts[before] != base) starts.insert(starts.begin() + long(before), base);
  for (std::size_t i = before + 1; i < starts.size(); ++i)
    if (starts[i] < starts[i - 1] || starts[i] > base + file.tokens)
      refuse(file, "changed while it was read", ENG_DATA_LOSS);
}

void add_weights(const TokenFile& file, std::vector<WeightFrom>& out) {
  if (file.header.weights == 0) return;
  const uint64_t first = file.header.table + 8 * file.header.documents;
  const InputFile own(file.path);
  own.each_piece(first, first + sizeof(WeightFrom) * file.header.weights, [&](std::string_view piece) {
    for (std::size_t at = 0; at + sizeof(WeightFrom) <= piece.size(); at += sizeof(WeightFrom)) {
      WeightFrom next{};
      std::memcpy(&next, piece.data() + at, sizeof(next));
      const bool later = out.empty() || next.token > out.back().token;
      if (!later || next.token >= file.tokens || !std::isfinite(next.weight) || next.weight < 0)
        refuse(file, "its weights are damaged: build it again", ENG_DATA_LOSS);
      out.push_back(next);
    }
  });
}

}  // namespace text_data
