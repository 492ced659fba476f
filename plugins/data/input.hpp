// SPDX-License-Identifier: Apache-2.0
// Reads files, compressed or not, and finds the documents in them.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace text_data {

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
  std::function<void(uint64_t bytes)> on_read;  // called with the number of bytes that each_piece read
  // Passes on the bytes [begin, end) in pieces of 1 MiB; the last one is shorter. A file that is cut short, or that
  // changed meanwhile, is an error.
  void each_piece(uint64_t begin, uint64_t end, const Take& take) const;
  // The same for the whole file. For NAME.gz and NAME.zst the pieces are the decompressed content.
  void each_piece(const Take& take) const;
  // Copies the bytes [offset, offset + size). Returns false if the file changed since it was opened, or cannot be read;
  // then what was written is useless. A file that was replaced or removed by name has not changed, because the
  // descriptor keeps the old one. Allocates nothing.
  bool copy(uint64_t offset, uint64_t size, void* out) const;
  // Throws Failure if the file is not what it was when it was opened.
  void check_same() const;

 private:
  bool same() const;
  void inflate(const Take& take) const;
  void unzstd(const Take& take) const;
  std::string path_;
  int fd_;
  struct stat status_ {};
};

enum class TextKind { plain, json_lines };
struct TextFormat {
  TextKind kind;
  bool compressed;
};

// How files are read, from the options of [data].
struct Reading {
  std::string format = "auto";  // "text" or "jsonl": every file has this format, whatever its name
  std::string field = "text";   // of JSON Lines
  bool replace = false;         // JSON Lines: U+FFFD for invalid characters instead of an error
};
// Decides by the file's name, unless `format` is set. Throws Failure for a file that must be converted to text first.
TextFormat text_format(const std::string& path, const std::string& format);

// Takes the documents of a file, in order.
struct DocumentSink {
  std::function<void()> begin;                 // of a document that is not empty
  std::function<void(std::string_view)> text;  // once or more
  std::function<void()> end;
};
void each_document(const InputFile& file, const Reading& reading, const DocumentSink& sink);

}  // namespace text_data
