// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <tuple>

#include "core/tensor/dtype.hpp"
#include "session/checksum.hpp"
#include "session/dtypes.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit

StoredTensor read_entry(const std::string& name, const Json& entry, const std::string& where) {
  StoredTensor t{name, 0, {}, 0, 0};
  try {
    const std::string& type = entry.at("dtype").text();
    t.dtype = dtype_from_safetensors(type).value_or(0);
    if (!t.dtype) refuse(where, fmt::format("element type `{}` is not supported", type));
    for (const Json& n : entry.at("shape").list()) t.shape.push_back(n.integer());
    t.begin = entry.at("data_offsets")[0].whole();
    t.end = entry.at("data_offsets")[1].whole();
  } catch (const JsonError& e) {
    refuse(where, e.what());
  }
  if (entry.size() != 3 || entry.at("data_offsets").size() != 2)
    refuse(where, "has more than dtype, shape and two data_offsets");
  return t;
}

}  // namespace

uint64_t StoredTensor::count() const {
  return element_count(shape, name);
}

uint64_t element_count(const std::vector<int64_t>& shape, const std::string& where) {
  uint64_t count = 1;
  for (int64_t d : shape) {
    if (d < 0) refuse(where, fmt::format("negative dimension {}", d));
    if (d > 0 && count > uint64_t(INT64_MAX / d)) refuse(where, "the shape is too large");
    if (d > 0) count *= uint64_t(d);
  }
  return std::count(shape.begin(), shape.end(), 0) ? 0 : count;
}

uint64_t safetensors_header_length(const unsigned char first[8], uint64_t file_bytes, const std::string& where) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | first[i];
  if (file_bytes < 8 || length < 2 || length > kMaxHeader || length > file_bytes - 8)
    refuse(where,
           fmt::format("not a safetensors file, or truncated: {} bytes with a header of {}", file_bytes, length));
  return length;
}

SafetensorsHeader parse_safetensors_header(const char* json, uint64_t length, uint64_t file_bytes,
                                           const std::string& where) {
  SafetensorsHeader out;
  out.data_start = 8 + length;
  out.data_bytes = file_bytes - out.data_start;
  if (length == 0 || json[0] != '{') refuse(where, "the header does not start with `{`");
  const Json document = parse_strictly({json, length}, where);
  for (const auto& [name, entry] : document.members()) {
    if (name == "__metadata__") continue;
    const std::string at = fmt::format("{}: tensor `{}`", where, name);
    const StoredTensor t = read_entry(name, entry, at);
    if (t.begin > t.end || t.end > out.data_bytes)
      refuse(at, fmt::format("bytes {} to {} do not lie in the {} of data", t.begin, t.end, out.data_bytes));
    const uint64_t count = element_count(t.shape, at), size = dtype_size(t.dtype);
    if (count > UINT64_MAX / size || count * size != t.end - t.begin)
      refuse(at,
             fmt::format("{} elements of {} do not make {} bytes", count, dtype_safetensors(t.dtype), t.end - t.begin));
    out.tensors.push_back(t);
  }
  std::sort(out.tensors.begin(), out.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const auto& t : out.tensors) {
    if (t.begin != end)
      refuse(where,
             fmt::format("tensor `{}` {}", t.name, t.begin < end ? "overlaps another" : "leaves a hole before it"));
    end = t.end;
  }
  if (end != out.data_bytes)
    refuse(where, fmt::format("{} bytes at the end belong to no tensor", out.data_bytes - end));
  return out;
}

std::string safetensors_header(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  // Written by hand to keep the order of the file.
  std::string text(8, '\0');  // of its length
  text += "{\"__metadata__\":" + Json(metadata).dump();
  std::set<std::string_view> names{"", "__metadata__"};
  uint64_t at = 0;
  for (auto& t : tensors) {
    t.begin = at;
    t.end = at = at + t.count() * dtype_size(t.dtype);
    if (!names.insert(t.name).second)
      throw Error(Exit::bug, "tensor name `" + t.name + "` cannot be stored: empty, reserved or used twice");
    const Json entry = Json::object(
        {{"dtype", dtype_safetensors(t.dtype)}, {"shape", t.shape}, {"data_offsets", Json::array({t.begin, t.end})}});
    text += "," + Json(t.name).dump() + ":" + entry.dump();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  for (size_t i = 0; i < 8; ++i) text[i] = char(uint64_t(text.size() - 8) >> (8 * i) & 0xff);
  return text;
}

std::string header_checksum(const FileReader& file) {
  std::array<unsigned char, 16384> piece = {};
  if (file.size() >= 8) file.read(piece.data(), 0, 8);
  const uint64_t all = 8 + safetensors_header_length(piece.data(), file.size(), file.path().string());
  Checksum sum;
  for (uint64_t at = 0, n = 0; at < all; at += n) {
    n = std::min<uint64_t>(piece.size(), all - at);
    file.read(piece.data(), at, n);
    sum.add(piece.data(), n);
  }
  return sum.hex();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path, Exit::checkpoint) {
  unsigned char first[8] = {};
  if (file_.size() >= 8) file_.read(first, 0, 8);
  const uint64_t length = safetensors_header_length(first, file_.size(), path.string());
  text_.resize(size_t(8 + length));
  file_.read(text_.data(), 0, text_.size());
  header_ = parse_safetensors_header(text_.data() + 8, length, file_.size(), path.string());
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &header_.tensors[it->second];
}

void SafetensorsFile::read(const StoredTensor& tensor, uint64_t first, uint64_t count, void* out) const {
  const uint64_t all = tensor.count(), size = dtype_size(tensor.dtype);
  if (first > all || count > all - first)
    refuse(path().string(), fmt::format("tensor `{}` has {} elements, not {} from {}", tensor.name, all, count, first));
  file_.read(out, header_.data_start + tensor.begin + first * size, count * size);
}

}  // namespace eng
