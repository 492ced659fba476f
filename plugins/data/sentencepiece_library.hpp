// SPDX-License-Identifier: Apache-2.0
// The sentencepiece library behind a table of C functions. It is in a file of its own, which is loaded when a
// tokenizer.model is opened: everything else works where the library is not installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace text_data {

struct SentencePieceLibrary {
  const char* version;
  // A model, or NULL; then `text` has the reason, which ends in NUL.
  void* (*open)(const char* model, std::size_t bytes, char* text, std::size_t capacity);
  void (*close)(void* model);
  int (*pieces)(const void* model);
  int (*bos)(const void* model);  // -1: there is none
  int (*eos)(const void* model);
  // Returns the number of ids and writes at most `capacity` of them; -1: `text` has the reason.
  std::ptrdiff_t (*encode)(const void* model, const char* in, std::size_t bytes, int32_t* ids, std::size_t room,
                           char* text, std::size_t capacity);
  // Piece `id`: its bytes (valid as long as the model) and what it is.
  const char* (*piece)(const void* model, int id, std::size_t* bytes);
  bool (*control)(const void* model, int id);
  bool (*unused)(const void* model, int id);
  bool (*unknown)(const void* model, int id);
  bool (*byte)(const void* model, int id);
};

// Throws Failure(ENG_UNAVAILABLE) if the library cannot be loaded.
const SentencePieceLibrary& sentencepiece_library();

}  // namespace text_data
