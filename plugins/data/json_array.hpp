// SPDX-License-Identifier: Apache-2.0
// The rows of a file that is one array of JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace text_data {

// Takes a file in pieces of any size and passes on the text of each object in the array, in order, with the line and
// the column of its brace, from 1 on. It keeps one row, of at most 64 MiB. It tells where a row ends, and not whether
// the row is JSON.
class ArrayReader {
 public:
  using Take = std::function<void(std::string_view row, uint64_t line, uint64_t column)>;
  // `name` is the file's name in errors.
  ArrayReader(std::string name, Take take) : name_(std::move(name)), take_(std::move(take)) {}

  // Throw Failure: "NAME:LINE:COLUMN: ..." where the file is no array of objects.
  void feed(std::string_view piece);
  void finish();  // throws if the array is cut short

 private:
  enum class Next { array, first, row, inside, comma, nothing };
  std::size_t inside(std::string_view piece, std::size_t at);
  void newline(std::size_t at) { ++line_, line_begin_ = seen_ + at + 1; }
  void keep(std::string_view part);
  [[noreturn]] void fail(const std::string& what, std::size_t at) const;

  const std::string name_;
  const Take take_;
  Next next_ = Next::array;
  std::string row_;                         // the start of a row that goes on in the next piece
  std::size_t depth_ = 0;                   // of braces and brackets inside of a row
  bool quoted_ = false, escaped_ = false;   // inside of a text, behind a backslash
  uint64_t seen_ = 0;                       // bytes before the piece
  uint64_t line_ = 1, line_begin_ = 0;      // the line, and its first byte
  uint64_t row_line_ = 0, row_column_ = 0;  // of the row
  uint64_t rows_ = 0;
};

}  // namespace text_data
