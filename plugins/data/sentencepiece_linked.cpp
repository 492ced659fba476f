// SPDX-License-Identifier: Apache-2.0
// For programs that link the sentencepiece library themselves: the fuzzers.
#include "sentencepiece_library.hpp"

extern "C" const text_data::SentencePieceLibrary engine_sentencepiece;

namespace text_data {

const SentencePieceLibrary& sentencepiece_library() {
  return engine_sentencepiece;
}

}  // namespace text_data
