// SPDX-License-Identifier: Apache-2.0
#include "session/gguf/layout.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "core/base/error.hpp"
#include "session/checkpoint/convert.hpp"

namespace eng {
namespace {

static_assert(std::endian::native == std::endian::little);

// Types of values.
enum GgufValueType : uint32_t { kU8 = 0, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8, kList = 9 };

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, const std::string& text) {
  put(out, uint64_t{text.size()});
  out += text;
}

template <class T>
void put_list(std::string& out, uint32_t type, const std::vector<T>& values) {
  put(out, type);
  put(out, uint64_t{values.size()});
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void encode_q8_0(const float* values, uint64_t blocks, char* out) {
  for (uint64_t b = 0; b < blocks; ++b, values += gguf_block) {
    float most = 0;
    for (uint64_t i = 0; i < gguf_block; ++i) most = std::max(most, std::fabs(values[i]));
    const float scale = most / 127.0f, inverse = scale != 0 ? 1.0f / scale : 0.0f;
    convert(ENG_F32, &scale, ENG_F16, out, 1);
    out += 2;
    for (uint64_t i = 0; i < gguf_block; ++i) *out++ = static_cast<char>(std::lround(values[i] * inverse));
  }
}

}  // namespace

uint64_t gguf_bytes(GgufType type, uint64_t count) {
  if (type == GgufType::q8_0) return count / gguf_block * (gguf_block + 2);
  return count * (type == GgufType::f32 ? 4 : 2);
}

void gguf_encode(GgufType type, const float* values, uint64_t count, void* out) {
  if (type == GgufType::q8_0) return encode_q8_0(values, count / gguf_block, static_cast<char*>(out));
  convert(ENG_F32, values, type == GgufType::f32 ? ENG_F32 : type == GgufType::f16 ? ENG_F16 : ENG_BF16, out, count);
}

void GgufHeader::key(const std::string& key, uint32_t type) {
  put_text(keys_, key);
  put(keys_, type);
  ++count_;
}

void GgufHeader::number(const std::string& name, uint32_t value) {
  key(name, kU32), put(keys_, value);
}

void GgufHeader::real(const std::string& name, float value) {
  key(name, kF32), put(keys_, value);
}

void GgufHeader::flag(const std::string& name, bool value) {
  key(name, kBool), put(keys_, uint8_t{value});
}

void GgufHeader::text(const std::string& name, const std::string& value) {
  key(name, kText), put_text(keys_, value);
}

void GgufHeader::texts(const std::string& name, const std::vector<std::string>& values) {
  key(name, kList), put(keys_, uint32_t{kText}), put(keys_, uint64_t{values.size()});
  for (const std::string& value : values) put_text(keys_, value);
}

void GgufHeader::reals(const std::string& name, const std::vector<float>& values) {
  key(name, kList), put_list(keys_, kF32, values);
}

void GgufHeader::integers(const std::string& name, const std::vector<int32_t>& values) {
  key(name, kList), put_list(keys_, kI32, values);
}

void GgufHeader::bytes(const std::string& name, const std::string& values) {
  key(name, kList), put_list(keys_, kU8, std::vector<char>(values.begin(), values.end()));
}

void GgufHeader::value(const std::string& name, const Value& value) {
  if (const auto* yes = std::get_if<bool>(&value)) return flag(name, *yes);
  if (const auto* fraction = std::get_if<double>(&value)) return real(name, static_cast<float>(*fraction));
  const auto* whole = std::get_if<int64_t>(&value);
  if (!whole || *whole < 0 || *whole > INT64_C(0xffffffff))
    throw Error(Exit::usage, fmt::format("`{}` of a GGUF file is a number from 0 to 4294967295, a real number, or true "
                                         "or false; the model's value is none of these",
                                         name));
  number(name, static_cast<uint32_t>(*whole));
}

std::string GgufHeader::finish(const std::vector<GgufTensor>& tensors) const {
  std::string out = "GGUF";
  put(out, uint32_t{3});
  put(out, uint64_t{tensors.size()});
  put(out, count_);
  out += keys_;
  uint64_t at = 0;
  std::set<std::string> names;
  for (const GgufTensor& t : tensors) {
    if (t.name.size() > gguf_most_name || t.shape.size() > gguf_most_dimensions || !names.insert(t.name).second)
      throw Error(Exit::usage, fmt::format("tensor `{}` cannot be in a GGUF file: its name is used twice or has more "
                                           "than {} bytes, or it has more than {} dimensions",
                                           t.name, gguf_most_name, gguf_most_dimensions));
    put_text(out, t.name);
    put(out, static_cast<uint32_t>(std::max<size_t>(t.shape.size(), 1)));
    if (t.shape.empty()) put(out, uint64_t{1});
    for (size_t d = t.shape.size(); d-- > 0;) put(out, static_cast<uint64_t>(t.shape[d]));
    put(out, static_cast<uint32_t>(t.type));
    put(out, at);
    at += (t.bytes + gguf_alignment - 1) / gguf_alignment * gguf_alignment;
  }
  out.resize((out.size() + gguf_alignment - 1) / gguf_alignment * gguf_alignment, '\0');
  return out;
}

}  // namespace eng
