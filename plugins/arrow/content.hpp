// SPDX-License-Identifier: Apache-2.0
// The content of a file as Arrow reads it, and Arrow's errors as errors of this plugin.
#pragma once

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "../common/error.hpp"
#include "engine/documents.h"

namespace arrow_format {

using Failure = common::Error;

// Ends the reading with a status whose text was given already.
struct Stopped {
  eng_status status;
};

// Text of a file or of Arrow in a form fit for messages: short, printable ASCII, one line.
std::string printable(const std::string& text, std::size_t most = 200);

// The bytes of a file. All of it runs in the thread that calls: Arrow's pools of threads are not used.
class Content : public arrow::io::RandomAccessFile {
 public:
  // Arrow gets at most this much memory for a file at a time; a damaged length asks for more.
  static constexpr int64_t most_memory = int64_t{4} << 30;

  Content(const eng_documents_in& in, eng_error* error);

  bool seeks() const { return in_.seek != nullptr; }
  // The first row group, or record batch, whose rows are wanted.
  uint64_t first_part() const { return ENG_HAS(&in_, first_part) ? in_.first_part : 0; }
  bool begins_with(const std::string& magic) const { return ahead_.compare(0, magic.size(), magic) == 0; }
  // True if the last bytes that were read are the mark that ends a stream of Arrow.
  bool at_mark() const { return !short_ && last_ == std::string("\xff\xff\xff\xff\0\0\0\0", 8); }
  arrow::MemoryPool* pool() { return &pool_; }

  // Throws for what Arrow did not do: Failure, or Stopped if the file could not be read. `where`: the place in the
  // file, such as "row group 2", or "".
  void check(const arrow::Status& status, const std::string& where) const;
  template <class T>
  T taken(arrow::Result<T> result, const std::string& where) const {
    check(result.status(), where);
    return std::move(result).ValueUnsafe();
  }

  arrow::Status Close() override;
  bool closed() const override { return closed_; }
  arrow::Result<int64_t> Tell() const override { return at_; }
  arrow::Status Seek(int64_t position) override;
  arrow::Result<int64_t> GetSize() override;
  arrow::Result<int64_t> Read(int64_t size, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t size) override;
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext& context, int64_t position,
                                                          int64_t size) override;
  arrow::Future<std::shared_ptr<arrow::Buffer>> ReadAsync(const arrow::io::IOContext& context, int64_t position,
                                                          int64_t size, bool allow_short) override;

 private:
  arrow::Status go_on(eng_status status);

  const eng_documents_in& in_;
  eng_error* error_;
  eng_status failed_ = ENG_OK;  // of the source
  std::string ahead_;           // the first bytes, which a stream gets again
  std::string last_;            // the last eight that were read
  int64_t at_ = 0;
  bool short_ = false;  // the last read came to the end of the file
  bool closed_ = false;
  arrow::ProxyMemoryPool counted_{arrow::system_memory_pool()};
  arrow::CappedMemoryPool pool_{&counted_, most_memory};
};

}  // namespace arrow_format
