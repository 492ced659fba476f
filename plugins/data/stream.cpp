// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace text_data {
namespace {

static_assert(std::endian::native == std::endian::little, "files of tokens are little-endian");

template <class T>
void widen(const unsigned char* from, uint64_t count, uint64_t done, uint64_t length, int32_t* tokens,
           int32_t* labels) {
  for (uint64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    const auto id = static_cast<int32_t>(value);  // ids were compared with the vocabulary when the file was opened
    if (done + i < length) tokens[done + i] = id;
    if (done + i > 0) labels[done + i - 1] = id;
  }
}

}  // namespace

void Stream::add(std::unique_ptr<InputFile> file, uint64_t offset, uint64_t count, uint32_t width) {
  if (count == 0) return;
  segments_.push_back({size_, offset, width, file.get(), nullptr});
  files_.push_back(std::move(file));
  size_ += count;
}

void Stream::add(std::unique_ptr<std::string> bytes) {
  if (bytes->empty()) return;
  segments_.push_back({size_, 0, 1, nullptr, bytes->data()});
  size_ += bytes->size();
  kept_ += bytes->capacity();
  copied_.push_back(std::move(bytes));
}

const InputFile* Stream::read(uint64_t start, uint64_t length, int32_t* tokens, int32_t* labels) {
  const auto after = [](uint64_t position, const Segment& segment) { return position < segment.start; };
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), start, after) - 1;
  for (uint64_t done = 0; done <= length; ++segment) {  // of length + 1
    const uint64_t end = segment + 1 == segments_.end() ? size_ : (segment + 1)->start;
    const uint64_t here = std::min(end - (start + done), length + 1 - done), width = segment->width;
    const uint64_t offset = segment->offset + (start + done - segment->start) * width;
    const auto* from = reinterpret_cast<const unsigned char*>(segment->bytes) + (segment->file ? 0 : offset);
    if (segment->file != nullptr) {
      if (!segment->file->copy(offset, here * width, buffer_.data())) return segment->file;
      from = buffer_.data();
    }
    if (width == 1) widen<uint8_t>(from, here, done, length, tokens, labels);
    if (width == 2) widen<uint16_t>(from, here, done, length, tokens, labels);
    if (width == 4) widen<uint32_t>(from, here, done, length, tokens, labels);
    if (width == 8) widen<uint64_t>(from, here, done, length, tokens, labels);
    done += here;
  }
  return nullptr;
}

}  // namespace text_data
