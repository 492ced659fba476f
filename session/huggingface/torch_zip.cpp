// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/torch_zip.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

constexpr uint64_t kMostDirectory = 16u << 20;  // bytes: about 200,000 entries
// Sizes of the records without what varies.
constexpr uint64_t kLocalBytes = 30, kListedBytes = 46, kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr uint64_t kIn64 = 0xffffffff;  // the true number is in a zip64 record

uint64_t little_endian(std::string_view bytes, size_t at, size_t width) {
  uint64_t out = 0;
  for (size_t k = width; k-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[at + k]);
  return out;
}

struct ZipDirectory {
  uint64_t begin, bytes, entries;
};

// An entry as the central directory has it.
struct ListedEntry {
  std::string name;
  uint64_t flags = 0, method = 0, packed = 0, bytes = 0, offset = 0;
};

class ZipReader {
 public:
  ZipReader(uint64_t size, const ReadAt& read, const std::string& where) : size_(size), read_(read), where_(where) {}

  std::map<std::string, ZipEntry> entries() const {
    const ZipDirectory directory = find_directory();
    const std::string text = bytes(directory.begin, directory.bytes);
    std::map<std::string, ZipEntry> out;
    std::vector<std::pair<uint64_t, uint64_t>> taken;  // of the file, by each entry with its header
    uint64_t at = 0, count = 0;
    for (; at < text.size(); ++count) {
      const ListedEntry listed = next_entry(text, at);
      const ZipEntry entry = locate(listed, directory.begin);
      taken.emplace_back(listed.offset, entry.begin + entry.bytes);
      if (!out.emplace(listed.name, entry).second) refuse(named(listed), "appears twice");
    }
    if (count != directory.entries)
      refuse(where_, fmt::format("its directory lists {} entries, not {} as it says", count, directory.entries));
    std::sort(taken.begin(), taken.end());
    for (size_t i = 1; i < taken.size(); ++i)
      if (taken[i].first < taken[i - 1].second)
        refuse(where_, fmt::format("two entries overlap at byte {}", taken[i].first));
    return out;
  }

 private:
  std::string bytes(uint64_t from, uint64_t count) const {
    if (from > size_ || count > size_ - from)
      refuse(where_, fmt::format("{} bytes at {} do not lie in the file of {}", count, from, size_));
    std::string out(size_t(count), '\0');
    read_(out.data(), from, count);
    return out;
  }

  std::string named(const ListedEntry& entry) const { return where_ + ": entry `" + printable(entry.name) + "`"; }

  // From the last records of the file, with their zip64 twins if there are any.
  ZipDirectory find_directory() const {
    const std::string end = size_ < kEndBytes ? "" : bytes(size_ - kEndBytes, kEndBytes);
    if (!end.starts_with("PK\5\6") || little_endian(end, 20, 2) != 0)
      refuse(where_, "does not end as a file of torch.save ends: it is truncated, or something else");
    ZipDirectory out{little_endian(end, 16, 4), little_endian(end, 12, 4), little_endian(end, 10, 2)};
    uint64_t behind = size_ - kEndBytes;  // where the directory has to end
    const std::string locator = behind < kLocatorBytes ? "" : bytes(behind - kLocatorBytes, kLocatorBytes);
    if (locator.starts_with("PK\6\7")) {
      behind -= kLocatorBytes;
      const uint64_t at = little_endian(locator, 8, 8);
      const std::string more = at > behind || behind - at < kEnd64Bytes ? "" : bytes(at, kEnd64Bytes);
      if (!more.starts_with("PK\6\6") || little_endian(more, 4, 8) != behind - at - 12)
        refuse(where_, "its zip64 end record is not where its locator says");
      const ZipDirectory large{little_endian(more, 48, 8), little_endian(more, 40, 8), little_endian(more, 32, 8)};
      if ((out.begin != kIn64 && out.begin != large.begin) || (out.bytes != kIn64 && out.bytes != large.bytes) ||
          (out.entries != 0xffff && out.entries != large.entries))
        refuse(where_, "its two end records contradict each other");
      out = large;
      behind = at;
    }
    if (out.begin > behind || out.bytes != behind - out.begin)
      refuse(where_, fmt::format("its directory, {} bytes at {}, does not end at byte {}, where its end record begins",
                                 out.bytes, out.begin, behind));
    if (out.bytes > kMostDirectory)
      refuse(where_, fmt::format("its directory has {} bytes; the limit is {}", out.bytes, kMostDirectory));
    return out;
  }

  // Moves `at` to the next one.
  ListedEntry next_entry(std::string_view text, uint64_t& at) const {
    const auto cut = [&] { refuse(where_, fmt::format("its directory is damaged at its byte {}", at)); };
    if (text.size() - at < kListedBytes || text.substr(at, 4) != "PK\1\2") cut();
    const std::string_view fixed = text.substr(at, kListedBytes);
    const uint64_t name = little_endian(fixed, 28, 2), extra = little_endian(fixed, 30, 2);
    const uint64_t comment = little_endian(fixed, 32, 2);
    if (text.size() - at - kListedBytes < name + extra + comment) cut();
    ListedEntry out;
    out.name = text.substr(at + kListedBytes, name);
    out.flags = little_endian(fixed, 8, 2);
    out.method = little_endian(fixed, 10, 2);
    out.packed = little_endian(fixed, 20, 4);
    out.bytes = little_endian(fixed, 24, 4);
    out.offset = little_endian(fixed, 42, 4);
    read_zip64(text.substr(at + kListedBytes + name, extra), out);
    at += kListedBytes + name + extra + comment;
    return out;
  }

  // The numbers that need more than 32 bits, in this order, those alone.
  void read_zip64(std::string_view extra, ListedEntry& entry) const {
    while (extra.size() >= 4) {
      const uint64_t id = little_endian(extra, 0, 2), length = little_endian(extra, 2, 2);
      if (length > extra.size() - 4) break;
      std::string_view body = extra.substr(4, length);
      extra.remove_prefix(4 + length);
      if (id != 1) continue;
      for (uint64_t* number : {&entry.bytes, &entry.packed, &entry.offset}) {
        if (*number != kIn64) continue;
        if (body.size() < 8) refuse(named(entry), "its zip64 record is too short");
        *number = little_endian(body, 0, 8);
        body.remove_prefix(8);
      }
      return;
    }
    if (entry.bytes == kIn64 || entry.packed == kIn64 || entry.offset == kIn64)
      refuse(named(entry), "its zip64 record is missing");
  }

  // Checks the entry and finds its content behind its own header, which repeats the name.
  ZipEntry locate(const ListedEntry& entry, uint64_t limit) const {
    if (entry.flags & 1) refuse(named(entry), "is encrypted");
    if (entry.method != 0 || entry.packed != entry.bytes)
      refuse(named(entry), "is compressed; torch.save stores its entries as they are");
    const uint64_t fixed = kLocalBytes + entry.name.size();
    if (entry.offset > limit || limit - entry.offset < fixed) refuse(named(entry), "does not lie before the directory");
    const std::string header = bytes(entry.offset, fixed);
    if (!header.starts_with("PK\3\4") || little_endian(header, 26, 2) != entry.name.size() ||
        header.substr(kLocalBytes) != entry.name || little_endian(header, 8, 2) != 0)
      refuse(named(entry), fmt::format("its header at byte {} is another than the directory says", entry.offset));
    const uint64_t begin = entry.offset + fixed + little_endian(header, 28, 2);
    if (begin > limit || entry.bytes > limit - begin) refuse(named(entry), "does not lie before the directory");
    return {begin, entry.bytes};
  }

  uint64_t size_;
  const ReadAt& read_;
  const std::string& where_;
};

}  // namespace

std::map<std::string, ZipEntry> read_stored_zip(uint64_t file_bytes, const ReadAt& read, const std::string& where) {
  return ZipReader(file_bytes, read, where).entries();
}

}  // namespace eng
