// SPDX-License-Identifier: Apache-2.0
#include "csv.hpp"

#include <algorithm>
#include <utility>

#include "failure.hpp"
#include "json_text.hpp"
#include "sniff.hpp"

namespace text_data {
namespace {

constexpr std::size_t longest_csv_row = std::size_t{64} << 20;

std::string csv_name(const std::string& name) {
  return nlohmann::json(name.substr(0, 60)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// A text in the quotes of JSON. Bytes that are not UTF-8 stay, for those who read the row to find.
void append_csv_text(const std::string& text, std::string& out) {
  constexpr char digits[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
    else
      ((out += "\\u00") += digits[c >> 4]) += digits[c & 15];
  }
  out += '"';
}

}  // namespace

CsvReader::CsvReader(std::string name, char separator, std::function<void(const Row&)> header,
                     std::function<void(const Row&, uint64_t)> take)
    : name_(std::move(name)), separator_(separator), header_(std::move(header)), take_(std::move(take)), cells_(1) {}

void CsvReader::fail(uint64_t line, const std::string& what) const {
  throw Failure(ENG_INVALID, name_ + ":" + std::to_string(line) + ": " + what);
}

void CsvReader::add(std::string_view text) {
  bytes_ += text.size();
  if (bytes_ > longest_csv_row)
    fail(row_line_, "the row is longer than 64 MiB, the limit: split its text over several rows, or close its quotes");
  cells_[count_] += text;
}

void CsvReader::end_cell() {
  ++count_;
  if (count_ == cells_.size()) {
    if (columns_ > 0 && count_ > columns_)
      fail(row_line_, "the row has more cells than the " + std::to_string(columns_) +
                          " of the header: put cells that hold the separator into quotes");
    cells_.emplace_back();
  }
  cells_[count_].clear();
  state_ = State::begin;
  in_quotes_ = false;
}

void CsvReader::end_row() {
  const bool blank = count_ == 0 && cells_[0].empty() && !in_quotes_;
  end_cell();
  if (!blank && columns_ > 0 && count_ != columns_)
    fail(row_line_, "the row has " + std::to_string(count_) + " cells, and the header " + std::to_string(columns_));
  if (!blank) {
    std::string after = std::move(cells_[count_]);
    cells_.resize(count_);  // the strings before it keep their memory
    if (columns_ == 0) {
      columns_ = count_;
      header_(cells_);
    } else {
      take_(cells_, row_line_);
    }
    cells_.push_back(std::move(after));
  }
  count_ = bytes_ = 0;
  cells_[0].clear();
  row_line_ = ++line_;
}

// Takes the byte behind a cell.
void CsvReader::after_cell(char c) {
  if (c == separator_) return end_cell();
  if (c == '\n') return end_row();
  if (c == '\r') {
    state_ = State::cr;
    return;
  }
  fail(line_, state_ == State::quote
                  ? "text follows the quote that ends a cell: double a quote that is part of the text"
                  : "a quote inside of a cell that is not in quotes: put the cell into quotes, and double the quote");
}

void CsvReader::feed(std::string_view piece) {
  for (std::size_t at = 0; at < piece.size();) {
    const char c = piece[at];
    switch (state_) {
      case State::begin:
        in_quotes_ = c == '"';
        state_ = in_quotes_ ? State::quoted : State::plain;
        at += in_quotes_ ? 1 : 0;
        break;
      case State::plain: {
        std::size_t end = at;
        while (end < piece.size() && piece[end] != separator_ && piece[end] != '\n' && piece[end] != '\r' &&
               piece[end] != '"')
          ++end;
        add(piece.substr(at, end - at));
        if (end < piece.size()) after_cell(piece[end++]);
        at = end;
        break;
      }
      case State::quoted: {
        const std::size_t end = std::min(piece.find('"', at), piece.size());
        const std::string_view part = piece.substr(at, end - at);
        line_ += static_cast<uint64_t>(std::count(part.begin(), part.end(), '\n'));
        add(part);
        if (end < piece.size()) state_ = State::quote;
        at = end + 1;
        break;
      }
      case State::quote:
        ++at;
        if (c != '"') {
          after_cell(c);
          break;
        }
        add("\"");
        state_ = State::quoted;
        break;
      case State::cr:
        if (c != '\n') fail(line_, "a carriage return stands alone outside of quotes: lines end in LF, or CR LF");
        ++at;
        end_row();
        break;
    }
  }
}

void CsvReader::finish() {
  if (state_ == State::quoted)
    fail(row_line_, "a quote of this row is not closed before the end of the file, which may be cut short");
  if (state_ != State::begin || count_ > 0) end_row();
  if (columns_ == 0) fail(1, "the file is empty: the first row of a table names its columns");
}

char csv_separator(const std::string& path) {
  const std::string name = bare_name(path);
  return name.size() > 4 && name.compare(name.size() - 4, 4, ".tsv") == 0 ? '\t' : ',';
}

std::size_t csv_column(const CsvReader::Row& names, const std::string& field, const std::string& path) {
  const auto found = std::find(names.begin(), names.end(), field);
  if (found == names.end()) {
    std::string all;
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 20); ++i)
      all += (i ? ", " : "") + csv_name(names[i]);
    if (names.size() > 20) all += ", ... (" + std::to_string(names.size()) + " in all)";
    const bool other = names.size() == 1 && names[0].find_first_of(";\t|") != std::string::npos;
    throw Failure(ENG_INVALID, path + ":1: no column " + csv_name(field) + "; the header has " + all +
                                   (other ? ": cells are separated by commas, or by tabs in a file *.tsv"
                                          : ": set [data] field to the one that holds the text"));
  }
  if (std::find(found + 1, names.end(), field) != names.end())
    throw Failure(ENG_INVALID, path + ":1: several columns have the name " + csv_name(field));
  return static_cast<std::size_t>(found - names.begin());
}

std::string csv_object(const CsvReader::Row& names, const CsvReader::Row& cells) {
  std::string out = "{";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += ", ";
    append_csv_text(names[i], out);
    out += ": ";
    append_csv_text(cells[i], out);
  }
  return out + "}";
}

}  // namespace text_data
