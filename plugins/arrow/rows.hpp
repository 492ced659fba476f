// SPDX-License-Identifier: Apache-2.0
// The documents in batches of rows: a column of texts, or whole rows as JSON.
#pragma once

#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "content.hpp"

namespace arrow_format {

// The place of a batch in its file.
struct Place {
  std::string part;        // "row group 2"; the rows are counted in it
  int64_t first_part = 0;  // the batch's first row, in the part
  int64_t first = 0;       // the same, in the file
  std::string row(int64_t i) const;
};

class Rows {
 public:
  // The options of [data]: `field`, where "" wants whole rows, and `missing`.
  struct Asked {
    std::string field;
    bool skip = false;
  };
  Rows(Asked asked, const eng_documents_out& out, eng_documents_seen& seen, eng_error* error)
      : asked_(std::move(asked)), out_(out), seen_(seen), error_(error) {}

  // Finds the field. Throws Failure if there is none, or if it holds no text.
  void open(const arrow::Schema& schema);
  bool whole() const { return asked_.field.empty(); }
  // The names on the way to the field, from the outermost column on; empty for whole rows.
  const std::vector<std::string>& way() const { return way_; }

  // Puts the documents of a batch that has the field, and perhaps less than the schema. Arrow takes offsets and indices
  // of a file on trust, so they are checked first.
  void put(const arrow::RecordBatch& batch, const Place& place, const Content& content);
  // The rows from here on are those of this row group, or record batch.
  void begin_part(uint64_t part);
  // Throws Failure if all rows of the file were left out. `whole_file`: they were all put.
  void finish(bool whole_file) const;

 private:
  [[noreturn]] void no_field(const arrow::Schema& schema) const;
  void put_text(std::string_view text);

  const Asked asked_;
  const eng_documents_out& out_;
  eng_documents_seen& seen_;
  eng_error* error_;
  std::vector<std::string> way_;
  uint64_t rows_ = 0;
};

// Appends the value at `i` as JSON. NULL, and bytes that are no text, are null. Throws Failure for a number that JSON
// does not have.
void append_json(const arrow::Array& values, int64_t i, std::string& out);
// Appends a text in quotes.
void append_quoted(std::string_view text, std::string& out);

// Read a file of one of the two formats.
void read_parquet(const std::shared_ptr<Content>& content, Rows& rows);
void read_arrow(const std::shared_ptr<Content>& content, Rows& rows);

}  // namespace arrow_format
