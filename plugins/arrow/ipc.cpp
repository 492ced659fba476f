// SPDX-License-Identifier: Apache-2.0
// Files and streams of Arrow (Feather, and the caches of the library datasets): one record batch after the other.
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>

#include "rows.hpp"

namespace arrow_format {
namespace {

void put_batch(const arrow::RecordBatch& batch, int number, Place& place, Rows& rows, const Content& content) {
  const auto part = static_cast<uint64_t>(number);
  if (part >= content.first_part()) {
    rows.begin_part(part);
    rows.put(batch, place, content);
  }
  place.first += batch.num_rows();
}

}  // namespace

void read_arrow(const std::shared_ptr<Content>& content, Rows& rows) {
  arrow::ipc::IpcReadOptions how = arrow::ipc::IpcReadOptions::Defaults();
  how.memory_pool = content->pool();
  how.use_threads = false;
  how.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
  Place place;
  const auto batch_number = [&](int i) { place.part = "record batch " + std::to_string(i + 1); };
  if (content->begins_with("ARROW1")) {
    if (!content->seeks())
      throw Failure(ENG_UNSUPPORTED,
                    "such a file of Arrow is read from its end on, so a compressed one must be decompressed first");
    const auto reader = content->taken(
        arrow::ipc::RecordBatchFileReader::Open(std::static_pointer_cast<arrow::io::RandomAccessFile>(content), how),
        "");
    rows.open(*reader->schema());
    for (int i = 0; i < reader->num_record_batches(); ++i) {
      batch_number(i);
      put_batch(*content->taken(reader->ReadRecordBatch(i), place.part), i, place, rows, *content);
    }
    return;
  }
  const auto reader = content->taken(
      arrow::ipc::RecordBatchStreamReader::Open(std::static_pointer_cast<arrow::io::InputStream>(content), how), "");
  rows.open(*reader->schema());
  for (int i = 0;; ++i) {
    batch_number(i);
    std::shared_ptr<arrow::RecordBatch> batch;
    content->check(reader->ReadNext(&batch), place.part);
    if (!batch) break;
    put_batch(*batch, i, place, rows, *content);
  }
  if (!content->at_mark())
    throw Failure(ENG_DATA_LOSS, "ends without the mark that ends a stream of Arrow, after " +
                                     std::to_string(place.first) +
                                     " rows: it is cut short, copy the file again, or write it anew");
}

}  // namespace arrow_format
