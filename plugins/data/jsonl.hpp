// SPDX-License-Identifier: Apache-2.0
// JSON Lines: one object per line; one of its fields is the text of a document.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace text_data {

// Takes a file in pieces of any size and passes on the documents in order. Lines of white space are skipped. A line may
// end in CR LF; the last one needs no line end. A line has at most 64 MiB.
class JsonlReader {
 public:
  // `name` is the file's name in errors. `replace`: U+FFFD for bytes that are not UTF-8 and for halves of a surrogate
  // pair, which are errors otherwise. `document` gets each text (UTF-8, may hold NUL), valid during the call.
  JsonlReader(std::string name, std::string field, bool replace, std::function<void(std::string_view)> document);

  // Throw Failure(ENG_INVALID, "NAME:LINE: ...") for a line that is not such an object.
  void feed(std::string_view piece);
  void finish();

 private:
  void line(std::string_view text);
  class FieldHandler;  // what one line holds
  void append(std::string_view piece);
  void take(const FieldHandler& line) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_;
  std::string field_;
  bool replace_;
  std::function<void(std::string_view)> document_;
  std::string rest_;  // the start of a line that goes on in the next piece
  uint64_t line_ = 0;
};

}  // namespace text_data
