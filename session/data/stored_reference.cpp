// SPDX-License-Identifier: Apache-2.0
#include "session/data/stored_reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "engine/data.h"
#include "session/checksum.hpp"
#include "session/file.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

// Little-endian. The entries follow, in the order of their keys, each of which occurs once.
struct Head {
  char magic[8];  // "ENGREFER"
  uint32_t version;
  uint32_t length;
  uint64_t sequences;
  char data[40], weights[40], model[40], entries[40];  // text that ends in NUL; entries: checksum of what follows
  char reserved[32];
  char checksum[40];  // of all bytes before
};
constexpr char magic[8] = {'E', 'N', 'G', 'R', 'E', 'F', 'E', 'R'};
constexpr uint32_t version = 1;
static_assert(sizeof(Head) == 256 && sizeof(StoredReference::Entry) == 16);

[[noreturn]] void refuse_file(const fs::path& path, const std::string& what) {
  throw Error(Exit::data, fmt::format("[reference] store: {} {}", path.string(), what),
              "compute it again: engine data reference CONFIG");
}

std::string checksum_of(const void* data, uint64_t bytes) {
  Checksum sum;
  sum.add(data, bytes);
  return sum.hex();
}

void put(char (&to)[40], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), sizeof(to) - 1));
}

std::string text_of(const char (&from)[40]) {
  return {from, std::find(from, std::end(from), '\0')};
}

FileReader open(const fs::path& path) {
  if (!fs::exists(path))
    throw Error(Exit::data, fmt::format("[reference] store: there is no {}", path.string()),
                "compute it: engine data reference CONFIG");
  return FileReader(path, Exit::data);
}

Head read_head(const FileReader& file) {
  Head head;
  if (file.size() < sizeof(head)) refuse_file(file.path(), "is too short for a file of log-probabilities");
  file.read(&head, 0, sizeof(head));
  if (std::memcmp(head.magic, magic, sizeof(magic)) != 0) refuse_file(file.path(), "is no file of log-probabilities");
  if (head.version != version)
    refuse_file(file.path(), fmt::format("is of version {}; only version {} can be read", head.version, version));
  char checksum[sizeof(head.checksum)] = {};
  put(checksum, checksum_of(&head, offsetof(Head, checksum)));
  if (std::memcmp(checksum, head.checksum, sizeof(checksum)) != 0)
    refuse_file(file.path(), "is damaged: its head is not what was written");
  const uint64_t room = file.size() - sizeof(head);
  if (room % sizeof(StoredReference::Entry) || room / sizeof(StoredReference::Entry) != head.sequences)
    refuse_file(file.path(), fmt::format("is damaged: it is said to hold {} sequences and has room for {}",
                                         head.sequences, room / sizeof(StoredReference::Entry)));
  return head;
}

StoredReference::Facts facts_in(const Head& head) {
  return {head.length, text_of(head.data), text_of(head.weights), text_of(head.model)};
}

}  // namespace

uint64_t StoredReference::key(int64_t length, const int32_t* tokens, const int32_t* labels) {
  const std::size_t bytes = static_cast<std::size_t>(length) * sizeof(int32_t);
  return XXH3_64bits_withSeed(labels, bytes, XXH3_64bits(tokens, bytes));
}

StoredReference::Facts StoredReference::facts_of(const fs::path& path) {
  return facts_in(read_head(open(path)));
}

StoredReference::StoredReference(const fs::path& path) {
  const FileReader file = open(path);
  const Head head = read_head(file);
  facts_ = facts_in(head);
  entries_.resize(head.sequences);
  file.read(entries_.data(), sizeof(head), entries_.size() * sizeof(Entry));
  if (text_of(head.entries) != checksum_of(entries_.data(), entries_.size() * sizeof(Entry)))
    refuse_file(path, "is damaged: its values are not those that were written");
  for (std::size_t k = 0; k < entries_.size(); ++k)
    if (!std::isfinite(entries_[k].sum) || (k && entries_[k - 1].key >= entries_[k].key))
      refuse_file(path, "is wrong: its sequences are not in order, or a value is not finite");
}

bool StoredReference::fill(const int32_t* tokens, const int32_t* labels, float* out) const {
  const uint64_t wanted = key(facts_.length, tokens, labels);
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), wanted,
                                      [](const Entry& entry, uint64_t with) { return entry.key < with; });
  if (found == entries_.end() || found->key != wanted) return false;
  // The sum of a label is an f32. That of two is f32(sum) and what this leaves out, which is an f32 as well; of more,
  // three times the 24 bits of an f32 hold all of its 53.
  double rest = found->sum;
  for (int64_t t = 0; t < facts_.length; ++t) {
    out[t] = labels[t] == ENG_IGNORE_LABEL ? 0.0F : static_cast<float>(rest);
    rest -= double{out[t]};
  }
  return true;
}

void StoredReference::write(const fs::path& path, const Facts& facts, std::vector<Entry> entries) {
  const auto before = [](const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : std::bit_cast<uint64_t>(a.sum) < std::bit_cast<uint64_t>(b.sum);
  };
  std::sort(entries.begin(), entries.end(), before);
  const auto same = [](const Entry& a, const Entry& b) {
    return a.key == b.key && std::bit_cast<uint64_t>(a.sum) == std::bit_cast<uint64_t>(b.sum);
  };
  entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
  for (std::size_t k = 1; k < entries.size(); ++k)
    if (entries[k - 1].key == entries[k].key)
      throw Error(Exit::data,
                  fmt::format("[reference] store: two sequences with the same tokens and labels have the "
                              "log-probabilities {} and {}: the model reads more than tokens",
                              entries[k - 1].sum, entries[k].sum),
                  "leave reference.store out: the reference is then computed in every step");
  Head head{};
  std::memcpy(head.magic, magic, sizeof(magic));
  head.version = version, head.length = static_cast<uint32_t>(facts.length), head.sequences = entries.size();
  put(head.data, facts.data), put(head.weights, facts.weights), put(head.model, facts.model);
  put(head.entries, checksum_of(entries.data(), entries.size() * sizeof(Entry)));
  put(head.checksum, checksum_of(&head, offsetof(Head, checksum)));
  std::string text(reinterpret_cast<const char*>(&head), sizeof(head));
  text.append(reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(Entry));
  if (path.has_parent_path()) make_directories(path.parent_path());
  write_atomic(path, text);
}

}  // namespace eng
