// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/parts.hpp"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <set>

#include "session/checkpoint/layout.hpp"
#include "session/file.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

// Hash of names, types and shapes only.
std::string tensors_hash(const std::vector<ManifestTensor>& tensors) {
  Checksum sum;
  for (const TensorSpec& t : tensors) {
    const std::string text = Json::array({t.name, t.role, t.dtype, t.shape}).dump();
    sum.add(text.data(), text.size());
  }
  return sum.hex();
}

// The lines of a part, one after the other.
class PartReader {
 public:
  explicit PartReader(std::string text) : text_(std::move(text)) {}
  std::string_view line() {
    const size_t begin = at_, end = text_.find('\n', at_);
    if (end == text_.npos) wrong();
    at_ = end + 1;
    return std::string_view(text_).substr(begin, end - begin);
  }
  void files(std::vector<ManifestFile>& to) {
    for (std::string_view rest = line(); !rest.empty();) {
      ManifestFile& f = to.emplace_back();
      f.name = word(rest), f.bytes = number(rest), f.header_xxh3_128 = word(rest);
    }
  }
  // Appends the ranges of the next tensor.
  void ranges(ManifestTensor& t, uint32_t rank) {
    std::string_view rest = line();
    Columns columns;
    if (rest.starts_with('c')) {
      rest.remove_prefix(1);
      columns = {number(rest), number(rest), number(rest)};
    }
    while (!rest.empty()) {
      const Range range{number(rest), number(rest)};
      std::string sum(word(rest));
      t.ranges.push_back({range, part_file(t.role, rank), stored_as(t, range, columns).name, std::move(sum), columns});
    }
  }

 private:
  [[noreturn]] static void wrong() { throw Error(Exit::bug, "a rank's part of a checkpoint cannot be read"); }
  static std::string_view word(std::string_view& rest) {
    const size_t end = rest.find(' ');
    if (end == rest.npos) wrong();
    const std::string_view out = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    return out;
  }
  static uint64_t number(std::string_view& rest) {
    const std::string_view digits = word(rest);
    uint64_t out = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (error != std::errc() || end != digits.data() + digits.size()) wrong();
    return out;
  }

  const std::string text_;
  size_t at_ = 0;
};

}  // namespace

// A line for the tensors, one for the files, then one for each tensor: its columns if it is cut into such, then the
// first element, the count and the checksum of each range; a blank after each word.
std::string part_text(const Manifest& part) {
  std::string text = tensors_hash(part.tensors) + "\n";
  size_t ranges = 0;
  for (const ManifestTensor& t : part.tensors) ranges += t.ranges.size();
  text.reserve(text.size() + 200 * part.files.size() + part.tensors.size() + 60 * ranges);
  for (const ManifestFile& f : part.files) text += fmt::format("{} {} {} ", f.name, f.bytes, f.header_xxh3_128);
  text += '\n';
  const auto out = std::back_inserter(text);
  for (const ManifestTensor& t : part.tensors) {
    if (const Columns& c = t.ranges.empty() ? Columns() : t.ranges[0].columns; c.cut())
      fmt::format_to(out, "c{} {} {} ", c.run, c.part, c.parts);
    for (const StoredRange& s : t.ranges) fmt::format_to(out, "{} {} {} ", s.first, s.count, s.xxh3_128);
    text += '\n';
  }
  return text;
}

uint64_t write_manifest(const std::filesystem::path& path, const RunPoint& point,
                        const std::vector<ManifestTensor>& specs, std::vector<std::string> texts) {
  const std::string hash = tensors_hash(specs), where = path.parent_path().string();
  std::vector<PartReader> parts;
  parts.reserve(texts.size());
  std::vector<ManifestFile> files;
  for (std::string& text : texts) {
    PartReader& part = parts.emplace_back(std::move(text));
    if (part.line() != hash) throw Error(Exit::bug, "not all ranks hold the same tensors");
    part.files(files);
  }
  const std::set<std::string> names = check_files(files, where);
  std::set<std::pair<std::string_view, std::string_view>> seen;
  FileWriter file(path);
  ManifestWriter writer(point, files, [&](std::string_view text) { file.write(text.data(), text.size()); });
  for (const ManifestTensor& spec : specs) {
    if (!seen.insert({spec.name, spec.role}).second)
      refuse(where, fmt::format("tensor `{}` ({}) is listed twice", spec.name, spec.role));
    ManifestTensor whole{spec, {}};
    for (uint32_t rank = 0; rank < parts.size(); ++rank) parts[rank].ranges(whole, rank);
    check_ranges(whole, names, where);
    writer.add(whole);
  }
  uint64_t bytes = writer.finish();
  if (bytes > most_manifest)
    throw Error(
        Exit::usage,
        fmt::format("{}: the manifest has {} bytes, and {} are the most that is read", where, bytes, most_manifest),
        "raise zero.bucket: each bucket of each rank is a range of its own");
  file.finish();
  for (const ManifestFile& f : files) bytes += f.bytes;
  return bytes;
}

}  // namespace eng
