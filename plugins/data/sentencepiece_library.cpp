// SPDX-License-Identifier: Apache-2.0
// The only file that knows the sentencepiece library.
#include "sentencepiece_library.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

namespace text_data {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

const Processor& of(const void* model) {
  return *static_cast<const Processor*>(model);
}

void put(char* text, std::size_t capacity, const std::string& what) {
  std::snprintf(text, capacity, "%s", what.c_str());
}

void* open(const char* model, std::size_t bytes, char* text, std::size_t capacity) try {
  auto made = std::make_unique<Processor>();
  const auto status = made->LoadFromSerializedProto({model, bytes});
  if (status.ok()) return made.release();
  put(text, capacity, status.ToString());
  return nullptr;
} catch (const std::exception& error) {
  put(text, capacity, error.what());
  return nullptr;
}

std::ptrdiff_t encode(const void* model, const char* in, std::size_t bytes, int32_t* ids, std::size_t room, char* text,
                      std::size_t capacity) try {
  std::vector<int> found;
  const auto status = of(model).Encode({in, bytes}, &found);
  if (!status.ok()) {
    put(text, capacity, status.ToString());
    return -1;
  }
  std::copy_n(found.begin(), std::min(room, found.size()), ids);
  return static_cast<std::ptrdiff_t>(found.size());
} catch (const std::exception& error) {
  put(text, capacity, error.what());
  return -1;
}

const char* piece(const void* model, int id, std::size_t* bytes) {
  const std::string& text = of(model).IdToPiece(id);
  *bytes = text.size();
  return text.data();
}

}  // namespace
}  // namespace text_data

extern "C" __attribute__((visibility("default"))) const text_data::SentencePieceLibrary engine_sentencepiece;
const text_data::SentencePieceLibrary engine_sentencepiece = {
    SENTENCEPIECE_VERSION,
    text_data::open,
    [](void* model) { delete static_cast<text_data::Processor*>(model); },
    [](const void* model) { return text_data::of(model).GetPieceSize(); },
    [](const void* model) { return text_data::of(model).bos_id(); },
    [](const void* model) { return text_data::of(model).eos_id(); },
    text_data::encode,
    text_data::piece,
    [](const void* model, int id) { return text_data::of(model).IsControl(id); },
    [](const void* model, int id) { return text_data::of(model).IsUnused(id); },
    [](const void* model, int id) { return text_data::of(model).IsUnknown(id); },
    [](const void* model, int id) { return text_data::of(model).IsByte(id); }};
