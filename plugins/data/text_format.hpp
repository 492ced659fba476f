// SPDX-License-Identifier: Apache-2.0
// How a text file is read, and the documents in it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "input.hpp"

namespace text_data {

enum class TextKind { plain, json_lines };
struct TextFormat {
  TextKind kind = TextKind::plain;
  Packed packed = Packed::no;
  uint64_t mark = 0;  // bytes of a byte-order mark, which is not part of the text
};

// How files are read, from the options of [data].
struct Reading {
  std::string format = "auto";  // "text", "jsonl" or "bytes": every file has this format
  std::string field = "text";   // of JSON Lines
  bool replace = false;         // U+FFFD for what is not UTF-8, instead of an error
  bool skip = false;            // leaves out rows of JSON Lines whose text is null or missing, instead of an error
};
// Decides by the first bytes. Throws Failure for a file that is no text, or whose name promises what it is not.
TextFormat text_format(const InputFile& file, const Reading& reading);

// What a user is told of files that were read.
struct Seen {
  uint64_t skipped = 0;  // rows without a text
  uint64_t wrong = 0;    // bytes of plain text that are not UTF-8, or NUL
};

// Takes the documents of a file, in order.
struct DocumentSink {
  std::function<void()> begin;                 // of a document that is not empty
  std::function<void(std::string_view)> text;  // once or more
  std::function<void()> end;
};
void each_document(const InputFile& file, const Reading& reading, const TextFormat& format, const DocumentSink& sink,
                   Seen& seen);

}  // namespace text_data
