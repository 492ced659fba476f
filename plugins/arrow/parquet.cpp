// SPDX-License-Identifier: Apache-2.0
// Files of Parquet: one row group after the other, and of it only the columns that are needed.
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>

#include "rows.hpp"

namespace arrow_format {
namespace {

constexpr int64_t batch_bytes = int64_t{8} << 20, most_rows = 4096, buffer_bytes = int64_t{1} << 20;

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const parquet::arrow::SchemaField& child : field.children) add_leaves(child, leaves);
}

// The columns of the file below the field.
std::vector<int> leaves_of(const parquet::arrow::SchemaManifest& manifest, const std::vector<std::string>& way) {
  std::vector<int> leaves;
  const std::vector<parquet::arrow::SchemaField>* level = &manifest.schema_fields;
  const parquet::arrow::SchemaField* found = nullptr;
  for (const std::string& name : way) {
    const auto is = [&](const parquet::arrow::SchemaField& field) { return field.field->name() == name; };
    const auto at = std::find_if(level->begin(), level->end(), is);
    if (at == level->end()) throw Failure(ENG_DATA_LOSS, "its schemas of Arrow and of Parquet differ: it is damaged");
    found = &*at;
    level = &found->children;
  }
  if (found) add_leaves(*found, leaves);
  for (const parquet::arrow::SchemaField& field : manifest.schema_fields)
    if (!found) add_leaves(field, leaves);
  return leaves;
}

// Rows of about 8 MiB, so that memory does not depend on the size of a row group.
int64_t rows_at_a_time(const parquet::RowGroupMetaData& group, const std::vector<int>& leaves) {
  int64_t bytes = 0;
  for (const int leaf : leaves)
    bytes += std::clamp<int64_t>(group.ColumnChunk(leaf)->total_uncompressed_size(), 0, Content::most_memory);
  const int64_t row = bytes / std::max<int64_t>(group.num_rows(), 1);
  return std::clamp<int64_t>(batch_bytes / std::max<int64_t>(row, 1), 1, most_rows);
}

}  // namespace

void read_parquet(const std::shared_ptr<Content>& content, Rows& rows) {
  if (!content->seeks())
    throw Failure(ENG_UNSUPPORTED,
                  "Parquet is read from its end on, so a compressed file of it must be decompressed first");
  if (content->begins_with("PARE"))
    throw Failure(ENG_UNSUPPORTED, "the file is encrypted: write its rows into one that is not");
  parquet::ReaderProperties properties(content->pool());
  properties.enable_buffered_stream();
  properties.set_buffer_size(buffer_bytes);
  properties.set_page_checksum_verification(true);
  parquet::ArrowReaderProperties how(/*use_threads=*/false);
  how.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  content->check(builder.Open(content, properties), "");
  builder.memory_pool(content->pool());
  builder.properties(how);
  const std::unique_ptr<parquet::arrow::FileReader> reader = content->taken(builder.Build(), "");
  std::shared_ptr<arrow::Schema> schema;
  content->check(reader->GetSchema(&schema), "");
  rows.open(*schema);
  const std::vector<int> leaves = leaves_of(reader->manifest(), rows.way());
  const std::shared_ptr<parquet::FileMetaData> file = reader->parquet_reader()->metadata();
  Place place;
  for (int g = 0; g < file->num_row_groups(); ++g) {
    place.part = "row group " + std::to_string(g + 1) + " of " + std::to_string(file->num_row_groups());
    place.first_part = 0;
    const std::unique_ptr<parquet::RowGroupMetaData> group = file->RowGroup(g);
    if (static_cast<uint64_t>(g) < content->first_part()) {
      place.first += group->num_rows();
      continue;
    }
    rows.begin_part(static_cast<uint64_t>(g));
    reader->set_batch_size(rows_at_a_time(*group, leaves));
    const auto batches = content->taken(reader->GetRecordBatchReader({g}, leaves), place.part);
    for (std::shared_ptr<arrow::RecordBatch> batch;;) {
      content->check(batches->ReadNext(&batch), place.part);
      if (!batch) break;
      rows.put(*batch, place, *content);
      place.first_part += batch->num_rows();
      place.first += batch->num_rows();
    }
    if (place.first_part != group->num_rows())
      throw Failure(ENG_DATA_LOSS, place.part + ": has " + std::to_string(place.first_part) +
                                       " rows, and the file says " + std::to_string(group->num_rows()) +
                                       ": it is damaged, copy the file again");
  }
}

}  // namespace arrow_format
