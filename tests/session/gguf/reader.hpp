// SPDX-License-Identifier: Apache-2.0
// A reader of GGUF files for tests, written from the format alone: throws for every deviation from it.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace gguf {

using Texts = std::vector<std::string>;
using Key = std::variant<uint32_t, float, bool, std::string, Texts, std::vector<float>, std::vector<int32_t>,
                         std::vector<uint8_t>>;

struct Tensor {
  std::vector<uint64_t> dims;  // the first is contiguous
  uint32_t type = 0;           // 0 f32, 1 f16, 8 q8_0, 30 bf16
  std::string bytes;
  std::vector<float> floats() const {
    std::vector<float> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
};

struct File {
  std::map<std::string, Key> keys;
  std::map<std::string, Tensor> tensors;
  std::vector<std::string> order;  // of the tensors
  template <class T>
  const T& get(const std::string& key) const {
    return std::get<T>(keys.at(key));
  }
  uint32_t number(const std::string& key) const { return get<uint32_t>(key); }
  float real(const std::string& key) const { return get<float>(key); }
  bool flag(const std::string& key) const { return get<bool>(key); }
  const std::string& text(const std::string& key) const { return get<std::string>(key); }
  const Texts& texts(const std::string& key) const { return get<Texts>(key); }
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  File read() {
    check(take(4) == "GGUF" && number<uint32_t>() == 3, "not GGUF 3");
    const auto tensors = number<uint64_t>(), keys = number<uint64_t>();
    File out;
    for (uint64_t k = 0; k < keys; ++k) {
      const std::string key = text();
      check(out.keys.emplace(key, value(number<uint32_t>())).second, "key twice: " + key);
    }
    const uint64_t alignment = out.keys.count("general.alignment") ? out.number("general.alignment") : 32;
    std::vector<uint64_t> offsets;
    for (uint64_t k = 0; k < tensors; ++k) {
      out.order.push_back(text());
      Tensor t;
      t.dims.resize(number<uint32_t>());
      check(!t.dims.empty() && t.dims.size() <= 4 && out.order.back().size() < 64, "tensor " + out.order.back());
      for (uint64_t& d : t.dims) d = number<uint64_t>();
      t.type = number<uint32_t>();
      offsets.push_back(number<uint64_t>());
      check(out.tensors.emplace(out.order.back(), std::move(t)).second, "tensor twice: " + out.order.back());
    }
    pad(alignment);
    const uint64_t start = at_;
    for (uint64_t k = 0; k < tensors; ++k) {
      Tensor& t = out.tensors.at(out.order[k]);
      check(offsets[k] == at_ - start, "offset of " + out.order[k]);
      uint64_t count = 1;
      for (const uint64_t d : t.dims) count *= d;
      check(t.type != 8 || t.dims[0] % 32 == 0, "rows of " + out.order[k]);
      t.bytes = take(t.type == 8 ? count / 32 * 34 : count * (t.type == 0 ? 4 : 2));
      pad(alignment);
    }
    check(at_ == bytes_.size(), "bytes behind the last tensor");
    return out;
  }

 private:
  static void check(bool good, const std::string& what) {
    if (!good) throw std::runtime_error("gguf: " + what);
  }
  std::string take(uint64_t size) {
    check(size <= bytes_.size() - at_, "cut short");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  void pad(uint64_t alignment) {
    const std::string zeros = take((alignment - at_ % alignment) % alignment);
    check(zeros.find_first_not_of('\0') == zeros.npos, "padding that is not zero");
  }
  template <class T>
  T number() {
    T out{};
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }
  std::string text() { return take(number<uint64_t>()); }
  template <class T>
  std::vector<T> numbers(uint64_t count) {
    std::vector<T> out;
    for (uint64_t k = 0; k < count; ++k) out.push_back(number<T>());
    return out;
  }
  Key value(uint32_t type) {
    switch (type) {
      case 4:
        return number<uint32_t>();
      case 6:
        return number<float>();
      case 7: {
        const auto byte = number<uint8_t>();
        check(byte < 2, "a boolean that is neither 0 nor 1");
        return byte == 1;
      }
      case 8:
        return text();
      case 9:
        break;
      default:
        check(false, "type of a value");
    }
    const auto of = number<uint32_t>();
    const auto count = number<uint64_t>();
    if (of == 0) return numbers<uint8_t>(count);
    if (of == 5) return numbers<int32_t>(count);
    if (of == 6) return numbers<float>(count);
    check(of == 8, "type of a list");
    Texts out;
    for (uint64_t k = 0; k < count; ++k) out.push_back(text());
    return out;
  }

  const std::string& bytes_;
  uint64_t at_ = 0;
};

inline File read_gguf(const std::string& bytes) {
  return Reader(bytes).read();
}

}  // namespace gguf
