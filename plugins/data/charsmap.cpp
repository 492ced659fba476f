// SPDX-License-Identifier: Apache-2.0
#include "charsmap.hpp"

#include <cstring>

#include "failure.hpp"
#include "graphemes.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

constexpr std::size_t longest_cluster = 5;  // bytes, of those that are looked up as a whole

// A unit of the double array (Darts): the byte that leads to it, whether a value hangs on it, and how far its children
// are away; or, with the highest bit, a value.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t label(uint32_t unit) {
  return unit & 0x800000ffu;
}
uint32_t offset(uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200u) >> 6);
}

}  // namespace

Charsmap::Charsmap(const std::string& bytes, std::string where) : where_(std::move(where)) {
  uint32_t size = 0;
  if (bytes.size() < sizeof(size)) damaged();
  std::memcpy(&size, bytes.data(), sizeof(size));  // little-endian, as all files of this plugin
  if (size % 4 != 0 || size == 0 || size > bytes.size() - sizeof(size)) damaged();
  units_.resize(size / 4);
  std::memcpy(units_.data(), bytes.data() + sizeof(size), size);
  texts_ = bytes.substr(sizeof(size) + size);
  if (utf8_prefix(texts_) != texts_.size()) damaged();
}

void Charsmap::damaged() const {
  throw Failure(ENG_INVALID, where_ + " is damaged: it is not a charsmap of sentencepiece's");
}

// The text of the shortest rule that `part` begins with.
std::optional<std::string_view> Charsmap::find(std::string_view part) const {
  std::size_t node = offset(units_[0]);
  for (const char c : part) {
    if (c == 0) break;
    node ^= static_cast<unsigned char>(c);
    if (node >= units_.size()) damaged();
    const uint32_t unit = units_[node];
    if (label(unit) != static_cast<unsigned char>(c)) return std::nullopt;
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) damaged();
    const std::size_t begin = units_[node] & 0x7fffffffu;
    if (begin > texts_.size()) damaged();
    const std::size_t end = texts_.find('\0', begin);
    const std::string_view found = std::string_view(texts_).substr(begin, end == std::string::npos ? end : end - begin);
    if (!found.empty() && (static_cast<unsigned char>(found[0]) & 0xc0) == 0x80) damaged();
    return found;
  }
  return std::nullopt;
}

bool Charsmap::apply(std::string_view text, std::string& kept) const {
  kept.clear();
  bool changed = false;
  const auto replaced = [&](std::string_view part) {
    const auto found = find(part);
    if (found) kept.append(*found);
    changed = changed || found;
    return found.has_value();
  };
  while (!text.empty()) {
    std::string_view cluster = text.substr(0, grapheme_length(text));
    text.remove_prefix(cluster.size());
    std::size_t length = 0;
    utf8_decode(cluster, &length);
    if (length < cluster.size() && cluster.size() <= longest_cluster && replaced(cluster)) continue;
    for (; !cluster.empty(); cluster.remove_prefix(length)) {
      utf8_decode(cluster, &length);
      const std::string_view character = cluster.substr(0, length);
      if (!replaced(character)) kept.append(character);
    }
  }
  return changed;
}

}  // namespace text_data
