// SPDX-License-Identifier: Apache-2.0
#include "content.hpp"

#include <arrow/util/config.h>
#include <arrow/util/future.h>

#include <algorithm>
#include <cstring>

namespace arrow_format {

std::string printable(const std::string& text, std::size_t most) {
  std::string out = text.substr(0, most);
  for (char& c : out)
    if (c < 0x20 || c > 0x7e) c = c == '\n' ? ' ' : '?';
  return out + (text.size() > most ? "..." : "");
}

Content::Content(const eng_documents_in& in, eng_error* error) : in_(in), error_(error) {
  char head[8];
  uint64_t got = 0;
  const eng_status status = in_.read(&in_, head, sizeof(head), &got, error_);
  if (status != ENG_OK) throw Stopped{status};
  ahead_.assign(head, got);
}

void Content::check(const arrow::Status& status, const std::string& where) const {
  if (failed_ != ENG_OK) throw Stopped{failed_};
  if (status.ok()) return;
  const std::string at = where.empty() ? "" : where + ": ", why = printable(status.message());
  if (status.IsOutOfMemory())
    throw Failure(ENG_NO_MEMORY, at + "needs more memory than " + std::to_string(most_memory >> 30) +
                                     " GiB at a time, or is damaged: copy the file again, or write it with smaller row "
                                     "groups and pages. Arrow says: " +
                                     why);
  if (status.IsNotImplemented())
    throw Failure(ENG_UNSUPPORTED, at + "Arrow " + ARROW_VERSION_STRING + " cannot read it: " + why);
  throw Failure(ENG_DATA_LOSS, at + "is damaged, or cut short: copy the file again. Arrow says: " + why);
}

arrow::Status Content::go_on(eng_status status) {
  if (status == ENG_OK) return arrow::Status::OK();
  failed_ = status;
  return arrow::Status::IOError("the source reads no further");
}

arrow::Status Content::Close() {
  closed_ = true;
  return arrow::Status::OK();
}

arrow::Status Content::Seek(int64_t position) {
  if (failed_ != ENG_OK) return go_on(failed_);
  if (!seeks()) return arrow::Status::IOError("a compressed file has one direction");
  if (position < 0 || static_cast<uint64_t>(position) > in_.size)
    return arrow::Status::Invalid("byte ", position, " is wanted of ", in_.size);
  ahead_.clear();
  at_ = position;
  return go_on(in_.seek(&in_, static_cast<uint64_t>(position), error_));
}

arrow::Result<int64_t> Content::GetSize() {
  if (!seeks()) return arrow::Status::IOError("a compressed file does not tell its size");
  return static_cast<int64_t>(in_.size);
}

arrow::Result<int64_t> Content::Read(int64_t size, void* out) {
  if (failed_ != ENG_OK) return go_on(failed_);
  if (size < 0) return arrow::Status::Invalid("a length is negative");
  auto* to = static_cast<char*>(out);
  const auto first = std::min<int64_t>(size, static_cast<int64_t>(ahead_.size()));
  if (first > 0) std::memcpy(to, ahead_.data(), static_cast<std::size_t>(first));
  ahead_.erase(0, static_cast<std::size_t>(first));
  uint64_t got = 0;
  if (first < size)
    ARROW_RETURN_NOT_OK(go_on(in_.read(&in_, to + first, static_cast<uint64_t>(size - first), &got, error_)));
  const int64_t all = first + static_cast<int64_t>(got);
  const auto kept = std::min<int64_t>(all, 8);
  last_.append(to + all - kept, static_cast<std::size_t>(kept));
  if (last_.size() > 8) last_.erase(0, last_.size() - 8);
  short_ = all < size;
  at_ += all;
  return all;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> Content::Read(int64_t size) {
  if (seeks()) size = std::min(size, static_cast<int64_t>(in_.size) - at_);  // a damaged length may be anything
  ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(std::max<int64_t>(size, 0), &pool_));
  ARROW_ASSIGN_OR_RAISE(const int64_t got, Read(size, buffer->mutable_data()));
  ARROW_RETURN_NOT_OK(buffer->Resize(got));
  return std::shared_ptr<arrow::Buffer>(std::move(buffer));
}

arrow::Future<std::shared_ptr<arrow::Buffer>> Content::ReadAsync(const arrow::io::IOContext&, int64_t position,
                                                                 int64_t size) {
  return arrow::Future<std::shared_ptr<arrow::Buffer>>::MakeFinished(ReadAt(position, size));
}

arrow::Future<std::shared_ptr<arrow::Buffer>> Content::ReadAsync(const arrow::io::IOContext&, int64_t position,
                                                                 int64_t size, bool allow_short) {
  return arrow::Future<std::shared_ptr<arrow::Buffer>>::MakeFinished(ReadAt(position, size, allow_short));
}

}  // namespace arrow_format
