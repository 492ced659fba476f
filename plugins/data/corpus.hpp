// SPDX-License-Identifier: Apache-2.0
// All documents as one stream of bytes, without a copy of the large files.
#pragma once

#include <sys/stat.h>
#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace text_data {

// A file mapped read-only, and what it looked like then. Mapped pages of a file that is rewritten in place change under
// the reader, and those of one that is cut short kill the process when touched, so `changed` is asked before each read:
// it looks at the path, and finds another size or time there. A file that was replaced or removed under its name is no
// change, since the mapping keeps the old one. What is cut short between the question and the read is not caught.
class MappedFile {
 public:
  // Maps the open file `fd` of `status.st_size` > 0 bytes. Throws Failure.
  MappedFile(const std::string& path, int fd, const struct stat& status);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }
  uint64_t size() const { return size_; }
  bool changed() const;  // allocates nothing

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;
  uint64_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  struct timespec modified_ {};
};

// The stream: documents in the order of the files, `separator` between two. Empty documents leave no trace. Files above
// 1 MiB are mapped; smaller ones are copied while they make up less than 64 MiB, for thousands of small mappings cost
// more than they save and small files are those that people edit while a run reads them. The texts of JSON Lines are
// copied.
class Corpus {
 public:
  // Reads each file once. Throws Failure(ENG_DATA_LOSS or ENG_INVALID) naming the file.
  Corpus(const std::vector<std::string>& files, const std::string& field, const std::string& separator);

  uint64_t size() const { return size_; }
  // XXH3 (128 bits) of the stream, 32 hexadecimal digits.
  const std::string& hash() const { return hash_; }

  // Writes bytes [start, start + length] of the stream, the first `length` to tokens, all but the first to labels.
  // Allocates nothing. Returns the file that changed since it was mapped (then nothing useful is written), or NULL.
  const MappedFile* read(uint64_t start, uint64_t length, int32_t* tokens, int32_t* labels) const;

 private:
  struct Segment {
    uint64_t start;
    const unsigned char* data;
    const MappedFile* file;  // NULL: copied
  };
  class Builder;

  std::vector<Segment> segments_;
  std::vector<std::unique_ptr<MappedFile>> mapped_;
  std::vector<std::unique_ptr<std::string>> copied_;
  uint64_t size_ = 0;
  std::string hash_;
};

}  // namespace text_data
