// SPDX-License-Identifier: Apache-2.0
// The parts of a tokenizer.json around the model: what is done to a text before it, and to the ids after it.
#pragma once

#include <string>
#include <vector>

#include "json_reader.hpp"
#include "normaliser.hpp"
#include "splitter.hpp"

namespace text_data {

extern const char* const byte_level_pattern;  // GPT-2's

void read_normalizer(const JsonReader& reader, const json& value, const std::string& place, Normaliser& out);

struct SplitterFile {
  Splitter splitter;
  // ByteLevel is the last step, so the model's words are bytes; or it is an earlier one, so they are texts of its
  // characters.
  bool bytes = false, byte_characters = false;
  std::string space;     // what Metaspace writes for one, or ""
  bool drops = false;    // what stands at the beginning of a part may be lost (UnicodeScripts)
  bool by_word = false;  // no word reaches over a space that stands between two letters
};
void read_pre_tokenizer(const JsonReader& reader, const json& value, const std::string& place, SplitterFile& out);

}  // namespace text_data
