// SPDX-License-Identifier: Apache-2.0
// The formats of this plugin: plain text, bytes, JSON Lines, an array of JSON, tables.
#include <algorithm>

#include "csv.hpp"
#include "failure.hpp"
#include "json_array.hpp"
#include "jsonl.hpp"
#include "options.hpp"
#include "text_check.hpp"
#include "text_format.hpp"

namespace text_data {
namespace {

// The settings of [data] when the format was made.
struct OwnFormat {
  bool bytes = false;  // the content is taken as it is
  bool replace = false, skip = false;
  std::string field;
};

template <bool bytes>
eng_status make_format(const eng_options* options, void** self, eng_error* error) {
  return guarded(error, "opening a format", [&] {
    auto made = std::make_unique<OwnFormat>();
    made->bytes = bytes;
    made->replace = get_string(options, "errors") == "replace";
    made->skip = get_string(options, "missing") == "skip";
    made->field = get_string(options, "field");
    *self = made.release();
  });
}

void drop_format(void* self) {
  delete static_cast<OwnFormat*>(self);
}

// Ends the reading with this status; the text of it was given already.
void go_on(eng_status status) {
  if (status != ENG_OK) throw Failure(status, "");
}

template <class Take>
void each_piece_of(const eng_documents_in& in, eng_error* error, const Take& take) {
  std::string buffer(in.seek ? std::min<uint64_t>(piece_bytes, in.size + 1) : piece_bytes, '\0');
  for (uint64_t got = buffer.size(); got == buffer.size();) {
    go_on(in.read(&in, buffer.data(), buffer.size(), &got, error));
    if (got > 0) take(std::string_view(buffer.data(), got));
  }
}

// The whole content as one document.
eng_status read_plain(void* self, const eng_documents_in* in, const eng_documents_out* out, eng_documents_seen* seen,
                      eng_error* error) {
  return guarded(error, "reading text", [&] {
    const auto& made = *static_cast<const OwnFormat*>(self);
    const std::string path = in->path;
    TextCheck check(path, made.replace);
    each_piece_of(*in, error, [&](std::string_view piece) {
      if (!made.bytes) check.feed(piece);
      go_on(out->put(out, piece.data(), piece.size(), ENG_TEXT_MORE, error));
    });
    check.finish();
    go_on(out->put(out, nullptr, 0, 0, error));
    seen->wrong = check.wrong();
  });
}

// One field of each line.
eng_status read_lines(void* self, const eng_documents_in* in, const eng_documents_out* out, eng_documents_seen* seen,
                      eng_error* error) {
  return guarded(error, "reading JSON Lines", [&] {
    const auto& made = *static_cast<const OwnFormat*>(self);
    JsonlReader reader(in->path, {made.field, made.replace, made.skip},
                       [&](std::string_view text) { go_on(out->put(out, text.data(), text.size(), 0, error)); });
    each_piece_of(*in, error, [&](std::string_view piece) { reader.feed(piece); });
    reader.finish();
    seen->left_out = reader.skipped();
  });
}

// One field of each object in an array.
eng_status read_array(void* self, const eng_documents_in* in, const eng_documents_out* out, eng_documents_seen* seen,
                      eng_error* error) {
  return guarded(error, "reading an array of JSON", [&] {
    const auto& made = *static_cast<const OwnFormat*>(self);
    JsonlReader rows(in->path, {made.field, made.replace, made.skip},
                     [&](std::string_view text) { go_on(out->put(out, text.data(), text.size(), 0, error)); });
    ArrayReader reader(in->path,
                       [&](std::string_view row, uint64_t line, uint64_t column) { rows.row(row, line, column); });
    each_piece_of(*in, error, [&](std::string_view piece) { reader.feed(piece); });
    reader.finish();
    rows.finish();
    seen->left_out = rows.skipped();
  });
}

// One column of a table.
eng_status read_table(void* self, const eng_documents_in* in, const eng_documents_out* out, eng_documents_seen* seen,
                      eng_error* error) {
  return guarded(error, "reading a table", [&] {
    const auto& made = *static_cast<const OwnFormat*>(self);
    const std::string path = in->path;
    TextCheck check(path, made.replace);
    std::size_t column = 0;
    CsvReader reader(
        path, csv_separator(path), [&](const CsvReader::Row& names) { column = csv_column(names, made.field, path); },
        [&](const CsvReader::Row& cells, uint64_t) {
          go_on(out->put(out, cells[column].data(), cells[column].size(), 0, error));
        });
    each_piece_of(*in, error, [&](std::string_view piece) {
      check.feed(piece);
      reader.feed(piece);
    });
    check.finish();
    reader.finish();
    seen->wrong = check.wrong();
  });
}

constexpr eng_documents own_table(decltype(eng_documents::create) create, decltype(eng_documents::read) read) {
  return {sizeof(eng_documents), 0, create, drop_format, read};
}
constexpr eng_documents plain_format = own_table(make_format<false>, read_plain),
                        bytes_format = own_table(make_format<true>, read_plain),
                        lines_format = own_table(make_format<false>, read_lines),
                        array_format = own_table(make_format<false>, read_array),
                        table_format = own_table(make_format<false>, read_table);

}  // namespace

const eng_documents* own_format(std::string_view name) {
  return name == "text"    ? &plain_format
         : name == "bytes" ? &bytes_format
         : name == "jsonl" ? &lines_format
         : name == "json"  ? &array_format
         : name == "csv"   ? &table_format
                           : nullptr;
}

}  // namespace text_data
