// SPDX-License-Identifier: Apache-2.0
// Tables by RFC 4180: a header, then rows, cells with commas between, in quotes where they hold commas, quotes or line
// ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace text_data {

// Takes a file in pieces of any size and passes on its rows, in order. Blank lines are skipped. Lines end in LF or CR
// LF. A row has at most 64 MiB.
class CsvReader {
 public:
  using Row = std::vector<std::string>;
  // `name` is the file's name in errors; `separator`: "," or a tab. `header` gets the first row, `take` the others,
  // each with the line on which it begins, from 1 on.
  CsvReader(std::string name, char separator, std::function<void(const Row& names)> header,
            std::function<void(const Row& cells, uint64_t line)> take);

  // Throw Failure(ENG_INVALID, "NAME:LINE: ...") for what is no such table, and for a row with another number of cells
  // than the header.
  void feed(std::string_view piece);
  void finish();

 private:
  enum class State { begin, plain, quoted, quote, cr };  // `quote`: behind one inside of a cell in quotes
  void add(std::string_view text);
  void end_cell();
  void end_row();
  void after_cell(char c);
  [[noreturn]] void fail(uint64_t line, const std::string& what) const;

  const std::string name_;
  const char separator_;
  const std::function<void(const Row&)> header_;
  const std::function<void(const Row&, uint64_t)> take_;
  State state_ = State::begin;
  Row cells_;                // room for a row
  std::size_t count_ = 0;    // complete cells of the row
  std::size_t columns_ = 0;  // of the header; 0: it is not read yet
  std::size_t bytes_ = 0;    // of the row
  bool in_quotes_ = false;   // the cell
  uint64_t line_ = 1, row_line_ = 1;
};

// The separator of a file of this name: a tab for *.tsv, also where it is compressed.
char csv_separator(const std::string& path);

// The column with this name. Throws Failure if there is none, or several.
std::size_t csv_column(const CsvReader::Row& names, const std::string& field, const std::string& path);

// A row as an object of JSON, whose values are strings.
std::string csv_object(const CsvReader::Row& names, const CsvReader::Row& cells);

}  // namespace text_data
