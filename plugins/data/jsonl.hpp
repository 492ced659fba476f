// SPDX-License-Identifier: Apache-2.0
// Rows of JSON, one object per line or in an array: one of their fields is the text of a document.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace text_data {

// Takes a file in pieces of any size and passes on the documents in order. Lines of white space are skipped. A line may
// end in CR LF; the last one needs no line end. A line has at most 64 MiB.
class JsonlReader {
 public:
  struct Options {
    std::string field;     // its name, or names of fields inside of each other with dots between
    bool replace = false;  // U+FFFD for bytes that are not UTF-8 and for halves of a surrogate pair, else an error
    bool skip = false;     // a row whose text is null or missing is left out, else an error
  };
  // `name` is the file's name in errors. `document` gets each text (UTF-8, may hold NUL), valid during the call.
  JsonlReader(std::string name, Options options, std::function<void(std::string_view)> document);

  // Throw Failure(ENG_INVALID, "NAME:LINE: ...") for a line that is not such an object.
  void feed(std::string_view piece);
  // One row, in place of `feed`, with the line and the column of its first byte in the file.
  void row(std::string_view text, uint64_t line, uint64_t column);
  void finish();                                 // throws if all rows were left out
  uint64_t skipped() const { return skipped_; }  // rows that were left out

 private:
  void line(std::string_view text);
  void parse(std::string_view text);
  class FieldHandler;  // what one line holds
  void append(std::string_view piece);
  void take(const FieldHandler& line);
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_;
  Options options_;
  std::vector<std::string> path_;  // the parts of the field; empty: it has no dots
  std::function<void(std::string_view)> document_;
  std::string rest_;  // the start of a line that goes on in the next piece
  uint64_t line_ = 0, rows_ = 0, skipped_ = 0;
  uint64_t column_ = 0;        // bytes of the line before the row
  const char* unit_ = "line";  // "row" in an array
};

}  // namespace text_data
