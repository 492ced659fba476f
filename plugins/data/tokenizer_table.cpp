// SPDX-License-Identifier: Apache-2.0
// The kind eng.tokenizer/1.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/tokenizer.h"
#include "failure.hpp"
#include "tables.hpp"
#include "tokenizer.hpp"

namespace text_data {
namespace {

using Open = std::unique_ptr<Tokenizer> (*)(const std::string& path);

template <Open open>
eng_status create(const eng_options*, const char* path, void** self, eng_error* error) {
  return guarded(error, "opening a tokenizer", [&] { *self = open(path == nullptr ? "" : path).release(); });
}

void destroy(void* self) {
  delete static_cast<Tokenizer*>(self);
}

eng_status describe(void* self, eng_tokenizer_info* out, eng_error*) {
  const Tokenizer::Info& from = static_cast<const Tokenizer*>(self)->info();
  eng_tokenizer_info info{};
  info.struct_size = out->struct_size;
  info.vocabulary = from.vocabulary;
  info.bos = from.bos;
  info.eos = from.eos;
  info.eot = from.eot;
  std::snprintf(info.content_hash, sizeof(info.content_hash), "%s", from.hash.c_str());
  std::memcpy(out, &info, std::min<std::size_t>(sizeof(info), out->struct_size));
  return ENG_OK;
}

eng_status encode(void* self, const char* text, uint64_t size, uint32_t flags, int32_t* ids, uint64_t capacity,
                  uint64_t* count, eng_error* error) {
  return guarded(error, "encoding a text", [&] {
    const auto* tokenizer = static_cast<const Tokenizer*>(self);
    const bool special = (flags & ENG_ENCODE_SPECIAL) != 0;
    std::vector<int32_t> found = special ? tokenizer->prefix() : std::vector<int32_t>();
    tokenizer->encode({text, size}, found);
    if (special) found.insert(found.end(), tokenizer->suffix().begin(), tokenizer->suffix().end());
    std::copy_n(found.begin(), std::min<uint64_t>(capacity, found.size()), ids);
    *count = found.size();
  });
}

eng_status decode(void* self, const int32_t* ids, uint64_t count, char* text, uint64_t capacity, uint64_t* size,
                  eng_error* error) {
  return guarded(error, "decoding ids", [&] {
    const auto* tokenizer = static_cast<const Tokenizer*>(self);
    std::string found;
    for (uint64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= tokenizer->info().vocabulary) {
        throw Failure(ENG_OUT_OF_RANGE, "the id " + std::to_string(ids[i]) +
                                            " is not in the tokenizer's vocabulary of " +
                                            std::to_string(tokenizer->info().vocabulary));
      }
      tokenizer->decode(ids[i], found);
    }
    std::copy_n(found.begin(), std::min<uint64_t>(capacity, found.size()), text);
    *size = found.size();
  });
}

std::unique_ptr<Tokenizer> bytes(const std::string&) {
  return open_bytes();
}

std::unique_ptr<Tokenizer> any(const std::string& path) {
  return open_tokenizer(path, "");
}

// The path may also name the folder.
std::string inside(const std::string& path, const char* name) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? (std::filesystem::path(path) / name).string() : path;
}

std::unique_ptr<Tokenizer> huggingface(const std::string& path) {
  return open_huggingface(inside(path, "tokenizer.json"));
}

std::unique_ptr<Tokenizer> sentencepiece(const std::string& path) {
  return open_sentencepiece(inside(path, "tokenizer.model"));
}

template <Open open>
constexpr eng_tokenizer table = {.struct_size = sizeof(eng_tokenizer),
                                 .minor = 0,
                                 .create = create<open>,
                                 .destroy = destroy,
                                 .describe = describe,
                                 .encode = encode,
                                 .decode = decode};

}  // namespace

const eng_tokenizer* tokenizer_table(const char* name) {
  if (std::strcmp(name, "auto") == 0) return &table<any>;
  if (std::strcmp(name, "bytes") == 0) return &table<bytes>;
  if (std::strcmp(name, "huggingface") == 0) return &table<huggingface>;
  if (std::strcmp(name, "sentencepiece") == 0) return &table<sentencepiece>;
  return nullptr;
}

}  // namespace text_data
