// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <algorithm>
#include <utility>

#include "csv.hpp"
#include "failure.hpp"
#include "json_array.hpp"
#include "lines.hpp"

namespace text_data {
namespace {

template <class Take>
void each_piece_of_content(const InputFile& file, const TextFormat& format, const Take& take) {
  ContentReader content(file, format.packed);
  std::string piece(piece_bytes, '\0');
  uint64_t mark = format.mark;
  for (std::size_t got = piece.size(); got == piece.size();) {
    got = content.read(piece.data(), piece.size());
    std::string_view more(piece.data(), got);
    more.remove_prefix(std::min<std::size_t>(mark, got));
    mark = 0;
    take(more);
  }
}

}  // namespace

void each_row(const InputFile& file, const Reading& reading, const TextFormat& format,
              const std::function<void(std::string, std::string)>& take) {
  const std::string& path = file.path();
  const auto at_line = [&](uint64_t line) { return path + ":" + std::to_string(line); };
  if (!format.is_ours()) {  // each document is the text of a row
    Reading whole = reading;
    whole.rows = true;
    Seen seen;
    std::string text;
    uint64_t number = 0;
    each_document(file, whole, format,
                  {[&] { text.clear(); }, [&](std::string_view piece) { text += piece; },
                   [&] { take(text, path + ": row " + std::to_string(++number)); }},
                  seen);
    return;
  }
  if (format.is_lines()) {
    each_line(file, format.packed, format.mark,
              [&](std::string_view line, uint64_t number) { take(std::string(line), at_line(number)); });
  } else if (format.name == "json") {
    ArrayReader reader(path,
                       [&](std::string_view row, uint64_t line, uint64_t) { take(std::string(row), at_line(line)); });
    each_piece_of_content(file, format, [&](std::string_view piece) { reader.feed(piece); });
    reader.finish();
  } else {
    CsvReader::Row names;
    CsvReader reader(
        path, csv_separator(path), [&](const CsvReader::Row& header) { names = header; },
        [&](const CsvReader::Row& cells, uint64_t line) { take(csv_object(names, cells), at_line(line)); });
    each_piece_of_content(file, format, [&](std::string_view piece) { reader.feed(piece); });
    reader.finish();
  }
  file.check_same();
}

}  // namespace text_data
