// SPDX-License-Identifier: Apache-2.0
#include "json_array.hpp"

#include <array>
#include <utility>

#include "failure.hpp"

namespace text_data {
namespace {

constexpr std::size_t longest_row = std::size_t{64} << 20;

// The bytes of a row that may change where it ends.
constexpr std::array<bool, 256> counts = [] {
  std::array<bool, 256> table{};
  for (const char c : {'"', '\\', '{', '}', '[', ']', '\n'}) table[static_cast<unsigned char>(c)] = true;
  return table;
}();

}  // namespace

void ArrayReader::fail(const std::string& what, std::size_t at) const {
  throw Failure(ENG_INVALID,
                name_ + ":" + std::to_string(line_) + ":" + std::to_string(seen_ + at + 1 - line_begin_) + ": " + what);
}

void ArrayReader::keep(std::string_view part) {
  if (part.size() > longest_row - row_.size())
    throw Failure(ENG_INVALID, name_ + ":" + std::to_string(row_line_) + ":" + std::to_string(row_column_) +
                                   ": the row is longer than 64 MiB, the limit: split its text over several rows");
  row_.append(part);
}

// Reads on in a row from piece[at], and returns the place behind what it read.
std::size_t ArrayReader::inside(std::string_view piece, std::size_t at) {
  const std::size_t begin = at;
  for (; at < piece.size(); ++at) {
    const char c = piece[at];
    if (escaped_) {
      escaped_ = false;
      if (c == '\n') newline(at);
      continue;
    }
    if (!counts[static_cast<unsigned char>(c)]) continue;
    if (c == '\n') {
      newline(at);
    } else if (c == '"') {
      quoted_ = !quoted_;
    } else if (c == '\\') {
      escaped_ = quoted_;
    } else if (!quoted_) {
      depth_ += c == '{' || c == '[' ? 1 : 0;
      if ((c == '}' || c == ']') && --depth_ == 0) {
        ++at;
        next_ = Next::comma;
        if (row_.empty()) return take_(piece.substr(begin, at - begin), row_line_, row_column_), at;
        keep(piece.substr(begin, at - begin));
        const std::string row = std::exchange(row_, {});
        take_(row, row_line_, row_column_);
        return at;
      }
    }
  }
  keep(piece.substr(begin));
  return at;
}

void ArrayReader::feed(std::string_view piece) {
  for (std::size_t at = 0; at < piece.size();) {
    const char c = piece[at];
    if (next_ == Next::inside) {
      at = inside(piece, at);
      continue;
    }
    if (c == '{' && (next_ == Next::first || next_ == Next::row)) {
      next_ = Next::inside;
      ++rows_;
      row_line_ = line_, row_column_ = seen_ + at + 1 - line_begin_;
      continue;  // the brace is the row's first byte
    }
    if (c == '\n') newline(at);
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!blank && next_ == Next::array && c == '[')
      next_ = Next::first;
    else if (!blank && next_ == Next::comma && c == ',')
      next_ = Next::row;
    else if (!blank && (next_ == Next::first || next_ == Next::comma) && c == ']')
      next_ = Next::nothing;
    else if (!blank)
      fail(next_ == Next::array     ? "the file does not begin with [, so it is not an array of rows"
           : next_ == Next::nothing ? "something follows the ] that ends the array"
           : next_ == Next::comma   ? "a , or ] is missing behind row " + std::to_string(rows_)
                                    : "row " + std::to_string(rows_ + 1) + " of the array is not an object",
           at);
    ++at;
  }
  seen_ += piece.size();
}

void ArrayReader::finish() {
  if (next_ == Next::nothing) return;
  throw Failure(next_ == Next::array ? ENG_INVALID : ENG_DATA_LOSS,
                name_ + ":" + std::to_string(line_) + ": " +
                    (next_ == Next::array
                         ? "the file is empty, not an array of rows"
                         : "the file is cut short: its array is not closed, behind row " + std::to_string(rows_)));
}

}  // namespace text_data
