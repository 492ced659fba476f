// SPDX-License-Identifier: Apache-2.0
// Reads files, compressed or not.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace text_data {

enum class Packed { no, gzip, zstd };

constexpr std::size_t piece_bytes = std::size_t{1} << 20;  // that are read at a time

[[noreturn]] void fail_errno(const std::string& path, const char* doing, int code);
bool same_time(const struct timespec& a, const struct timespec& b);

// A regular file, open for reading. Throws Failure.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  const struct stat& status() const { return status_; }
  uint64_t size() const { return static_cast<uint64_t>(status_.st_size); }

  using Take = std::function<void(std::string_view piece)>;
  std::function<void(uint64_t bytes)> on_read;  // called with the number of bytes that were read of the file
  // Passes on the bytes [begin, end) in pieces of 1 MiB; the last one is shorter. A file that is cut short, or that
  // changed meanwhile, is an error. `take` may throw Enough.
  void each_piece(uint64_t begin, uint64_t end, const Take& take) const;
  struct Enough {};
  // Copies the bytes [offset, offset + size), which the file must have. Calls no on_read.
  void read_at(uint64_t offset, uint64_t size, char* out) const;
  // The first bytes of the content, at most head_bytes, and whether that is all.
  std::string head(Packed packed, bool* whole) const;
  // Copies the bytes [offset, offset + size). Returns false if the file changed since it was opened, or cannot be read;
  // then what was written is useless. A file that was replaced or removed by name has not changed, because the
  // descriptor keeps the old one. Allocates nothing.
  bool copy(uint64_t offset, uint64_t size, void* out) const;
  // Throws Failure if the file is not what it was when it was opened.
  void check_same() const;

 private:
  bool same() const;
  std::string path_;
  int fd_;
  struct stat status_ {};
};

class Unpacker;

// The content of a file as one stream of bytes: decompressed, if the file is of gzip or zstd. Throws Failure.
class ContentReader {
 public:
  ContentReader(const InputFile& file, Packed packed);
  ~ContentReader();
  // Copies the next bytes and returns their number, which is below `size` only at the end of the content.
  std::size_t read(char* out, std::size_t size);
  // Lets the next read begin at this byte, at most the size of the file, which is not compressed.
  void seek(uint64_t offset) { at_ = offset; }

 private:
  const InputFile& file_;
  uint64_t at_ = 0;                     // of a file that is not compressed
  std::unique_ptr<Unpacker> unpacker_;  // NULL: it is not
};

}  // namespace text_data
