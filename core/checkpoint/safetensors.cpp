// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/tensor/dtype.hpp"

namespace eng {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr size_t kMaxDims = 32;

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw Error(Exit::checkpoint, where + ": " + why);
}

// Reads the header event by event: the shape of the document is fixed, so depth is bounded by construction and
// duplicate keys are seen, both of which a parsed document would hide.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& out, const std::string& where) : out_(out), where_(where) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(double, const std::string&) override { return unexpected("a fractional number"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_integer(int64_t value) override {
    return refuse_entry(fmt::format("negative number {} in `{}`", value, key_));
  }

  bool number_unsigned(uint64_t value) override {
    if (state_ == State::shape) {
      if (value > uint64_t(std::numeric_limits<int64_t>::max())) refuse_entry("a dimension is too large");
      if (tensor_.shape.size() == kMaxDims) refuse_entry("too many dimensions");
      tensor_.shape.push_back(int64_t(value));
    } else if (state_ == State::offsets) {
      if (n_offsets_ == 2) refuse_entry("`data_offsets` has more than two numbers");
      (n_offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(std::string& value) override {
    if (state_ == State::metadata) {
      if (!out_.metadata.emplace(key_, value).second) refuse_entry(fmt::format("key `{}` appears twice", key_));
    } else if (state_ == State::tensor && key_ == "dtype") {
      tensor_.dtype = dtype_from_safetensors(value).value_or(0);
      if (!tensor_.dtype) refuse_entry(fmt::format("element type `{}` is not supported", value.substr(0, 20)));
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool key(std::string& name) override {
    if (state_ == State::top) {
      if (!names_.insert(name).second) refuse(where_, fmt::format("tensor `{}` appears twice", name));
      name_ = name;
    } else if (state_ == State::tensor) {
      if (name != "dtype" && name != "shape" && name != "data_offsets") {
        refuse_entry(fmt::format("unknown key `{}`", name.substr(0, 40)));
      }
      if (!keys_.insert(name).second) refuse_entry(fmt::format("key `{}` appears twice", name));
    }
    key_ = name;
    return true;
  }

  bool start_object(size_t) override {
    if (state_ == State::outside) {
      state_ = State::top;
    } else if (state_ == State::top) {
      state_ = name_ == "__metadata__" ? State::metadata : State::tensor;
      tensor_ = StoredTensor();
      tensor_.name = name_;
      n_offsets_ = 0;
      keys_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor) {
      if (keys_.size() != 3) refuse_entry("needs dtype, shape and data_offsets");
      if (n_offsets_ != 2) refuse_entry("`data_offsets` needs two numbers");
      out_.tensors.push_back(std::move(tensor_));
    }
    state_ = state_ == State::top ? State::outside : State::top;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ != State::tensor || key_ == "dtype") unexpected("a list");
    state_ = key_ == "shape" ? State::shape : State::offsets;
    return true;
  }

  bool end_array() override {
    state_ = State::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse(where_, fmt::format("the header is not valid JSON at byte {}", position));
  }

 private:
  enum class State { outside, top, metadata, tensor, shape, offsets };

  bool refuse_entry(const std::string& why) {
    refuse(where_, name_.empty() ? why : fmt::format("tensor `{}`: {}", name_.substr(0, 200), why));
  }
  bool unexpected(const char* what) {
    return refuse_entry(
        fmt::format("{} where the format has none{}", what, key_.empty() ? "" : " (key `" + key_.substr(0, 40) + "`)"));
  }

  SafetensorsHeader& out_;
  const std::string& where_;
  State state_ = State::outside;
  std::string name_, key_;
  StoredTensor tensor_;
  int n_offsets_ = 0;
  std::set<std::string> names_, keys_;
};

void check_layout(SafetensorsHeader& header, const std::string& where) {
  for (const auto& t : header.tensors) {
    const std::string name = fmt::format("{}: tensor `{}`", where, t.name.substr(0, 200));
    if (t.begin > t.end || t.end > header.data_bytes) {
      refuse(name, fmt::format("bytes {} to {} do not lie in the file's {} bytes of data", t.begin, t.end,
                               header.data_bytes));
    }
    const uint64_t count = element_count(t.shape, name), size = dtype_size(t.dtype);
    if (count > std::numeric_limits<uint64_t>::max() / size || count * size != t.end - t.begin) {
      refuse(name,
             fmt::format("{} elements of {} do not make {} bytes", count, dtype_safetensors(t.dtype), t.end - t.begin));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t at = 0;
  for (const auto& t : header.tensors) {
    if (t.begin != at) {
      refuse(where, fmt::format("tensor `{}` {} at byte {} of the data", t.name.substr(0, 200),
                                t.begin < at ? "overlaps another" : "leaves a hole before it", t.begin));
    }
    at = t.end;
  }
  if (at != header.data_bytes) {
    refuse(where, fmt::format("{} bytes behind the last tensor belong to none", header.data_bytes - at));
  }
}

}  // namespace

uint64_t StoredTensor::count() const {
  return element_count(shape, name);
}

uint64_t element_count(const std::vector<int64_t>& shape, const std::string& where) {
  uint64_t count = 1;
  bool zero = false;
  for (int64_t d : shape) {
    if (d < 0) refuse(where, fmt::format("negative dimension {}", d));
    if (d == 0) zero = true;
    if (d > 0 && count > uint64_t(std::numeric_limits<int64_t>::max() / d)) refuse(where, "the shape is too large");
    if (d > 0) count *= uint64_t(d);
  }
  return zero ? 0 : count;
}

uint64_t safetensors_header_length(const unsigned char first[8], uint64_t file_bytes, const std::string& where) {
  if (file_bytes < 8) refuse(where, fmt::format("{} bytes are too few for a safetensors file", file_bytes));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | first[i];
  if (length < 2 || length > kMaxHeader || length > file_bytes - 8) {
    refuse(where,
           fmt::format("a header of {} bytes cannot be in a file of {} bytes (limit {}): no safetensors file, or "
                       "truncated",
                       length, file_bytes, kMaxHeader));
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(const char* json, uint64_t length, uint64_t file_bytes,
                                           const std::string& where) {
  SafetensorsHeader header;
  if (length > kMaxHeader || file_bytes < 8 || length > file_bytes - 8) refuse(where, "the header is not in the file");
  header.data_start = 8 + length;
  header.data_bytes = file_bytes - header.data_start;
  if (length == 0 || json[0] != '{') refuse(where, "the header does not start with `{`");
  HeaderReader reader(header, where);
  if (!nlohmann::json::sax_parse(json, json + length, &reader)) refuse(where, "the header is not valid JSON");
  check_layout(header, where);
  return header;
}

std::string safetensors_header(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  // Written by hand: the order is the file's, and the library's ordered object searches linearly for every key.
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::set<std::string> names{"", "__metadata__"};
  uint64_t at = 0;
  for (auto& t : tensors) {
    t.begin = at;
    t.end = at = at + t.count() * dtype_size(t.dtype);
    if (!names.insert(t.name).second) {
      throw Error(Exit::bug, "tensor name `" + t.name + "` cannot be stored: empty, reserved or used twice");
    }
    text +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", text.size() > 1 ? "," : "",
                    nlohmann::json(t.name).dump(), dtype_safetensors(t.dtype), fmt::join(t.shape, ","), t.begin, t.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[size_t(i)] = char(uint64_t(text.size()) >> (8 * i) & 0xff);
  return length + text;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path, Exit::checkpoint) {
  const std::string where = path.string();
  unsigned char first[8] = {};
  if (file_.size() >= 8) file_.read(first, 0, 8);
  const uint64_t length = safetensors_header_length(first, file_.size(), where);
  text_.resize(size_t(8 + length));
  file_.read(text_.data(), 0, text_.size());
  header_ = parse_safetensors_header(text_.data() + 8, length, file_.size(), where);
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &header_.tensors[it->second];
}

void SafetensorsFile::read(const StoredTensor& tensor, uint64_t first, uint64_t count, void* out) const {
  const uint64_t all = tensor.count(), size = dtype_size(tensor.dtype);
  if (first > all || count > all - first) {
    refuse(file_.path().string(),
           fmt::format("tensor `{}` has {} elements; {} from {} were asked for", tensor.name, all, count, first));
  }
  file_.read(out, header_.data_start + tensor.begin + first * size, count * size);
}

}  // namespace eng
