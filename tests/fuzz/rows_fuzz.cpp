// SPDX-License-Identifier: Apache-2.0
// The readers of arrays of JSON and of tables on arbitrary bytes: they hand out no more bytes than they got, or throw a
// Failure with a short text, and the same whether the bytes come at once or in pieces.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "plugins/data/csv.hpp"
#include "plugins/data/failure.hpp"
#include "plugins/data/json_array.hpp"

namespace {

struct Result {
  std::string rows;  // each with its place, and behind it a byte that UTF-8 does not have
  std::size_t size = 0;
  std::string error;
  bool operator==(const Result&) const = default;

  void add(std::string_view text, uint64_t line, uint64_t column) {
    size += text.size();
    rows.append(text) += '\xff';
    rows += std::to_string(line) + ":" + std::to_string(column);
  }
};

template <class Reader>
void feed(Reader& reader, std::string_view bytes, std::size_t piece, Result& result) {
  try {
    for (std::size_t at = 0; at < bytes.size(); at += piece) reader.feed(bytes.substr(at, piece));
    reader.finish();
  } catch (const text_data::Failure& failure) {
    result.error = failure.text;
    if (result.error.empty() || result.error.size() > 4000) std::abort();
  }
}

Result array(std::string_view bytes, std::size_t piece) {
  Result result;
  text_data::ArrayReader reader(
      "input", [&](std::string_view row, uint64_t line, uint64_t column) { result.add(row, line, column); });
  feed(reader, bytes, piece, result);
  return result;
}

Result table(std::string_view bytes, std::size_t piece, char separator) {
  Result result;
  std::size_t columns = 0;
  text_data::CsvReader reader(
      "input", separator,
      [&](const text_data::CsvReader::Row& names) {
        if (columns != 0 || names.empty()) std::abort();
        columns = names.size();
        for (const std::string& name : names) result.add(name, 1, 0);
      },
      [&](const text_data::CsvReader::Row& cells, uint64_t line) {
        if (cells.size() != columns) std::abort();
        for (std::size_t i = 0; i < columns; ++i) result.add(cells[i], line, i);
      });
  feed(reader, bytes, piece, result);
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::size_t piece = data[0] % 32 + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const Result rows = array(bytes, bytes.size() + 1);
  if (rows.size > bytes.size() || !(rows == array(bytes, piece))) std::abort();
  for (const char separator : {',', '\t'}) {
    const Result cells = table(bytes, bytes.size() + 1, separator);
    if (cells.size > bytes.size() || !(cells == table(bytes, piece, separator))) std::abort();
  }
  return 0;
}
