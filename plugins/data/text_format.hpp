// SPDX-License-Identifier: Apache-2.0
// Chooses the format of a file and reads its documents. Each format is a table of engine/documents.h, ours too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "engine/documents.h"
#include "input.hpp"

namespace text_data {

struct TextFormat {
  std::string name = "text";  // "text", "bytes", "jsonl", "json", "csv", or that of another plugin's format
  Packed packed = Packed::no;
  uint64_t mark = 0;          // bytes of a byte-order mark, which is not part of the text
  eng_format by_plugin = {};  // of another plugin; its table is NULL if the format is ours

  bool is_ours() const { return by_plugin.table == nullptr; }
  bool is_lines() const { return is_ours() && name == "jsonl"; }
  bool is_verbatim() const { return is_ours() && (name == "text" || name == "bytes"); }  // it is the one document
  bool has_rows() const { return !is_verbatim(); }
  std::string key(const std::string& path) const;  // of ours, for the key of a cache
};

// The options of [data] about reading files.
struct Reading {
  std::string format = "auto";           // or the name of a format, which every file has
  std::string field = "text";            // of a row
  bool replace = false;                  // U+FFFD for what is not UTF-8, instead of an error
  bool skip = false;                     // leaves out rows whose text is null or missing, instead of an error
  const eng_options* options = nullptr;  // for our formats; valid while the source is opened or built
  bool rows = false;                     // a document of another plugin's format is a whole row, as JSON
};
// Decides by the first bytes. Throws Failure for a file that is no text, or whose name promises what it is not. A
// format of another plugin is valid until the source was opened or built.
TextFormat text_format(const InputFile& file, const Reading& reading);

// Counts for the notes to the user about files that were read.
struct Seen {
  uint64_t skipped = 0;  // rows without a text
  uint64_t wrong = 0;    // bytes of text that are not UTF-8, or NUL
};

// Takes the documents of a file, in order.
struct DocumentSink {
  std::function<void()> begin;                 // of a document that is not empty
  std::function<void(std::string_view)> text;  // once or more
  std::function<void()> end;
};
// Parts of a file, such as row groups, for a source that was interrupted.
struct FileParts {
  uint64_t first = 0;                                           // the documents from this one on are wanted
  std::function<void(uint64_t part, const Seen& before)> at{};  // a part begins; what was seen before it
};
void each_document(const InputFile& file, const Reading& reading, const TextFormat& format, const DocumentSink& sink,
                   Seen& seen, const FileParts& parts = {});

// Our formats: NULL if none has this name.
const eng_documents* own_format(std::string_view name);
// The format of another plugin that `name` names. Throws Failure if there is none.
eng_format plugin_format(const std::string& name);
// The format of another plugin that claims the file, or one without a table. `path` has no ending of a compression.
eng_format claiming_format(const std::string& path, std::string_view head);

}  // namespace text_data
